"""The main job from images to report, on a small phantom."""

import hashlib
import json
import os
import random
import re
import shutil
import socket
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from safetensors.torch import load_file

from tests.conftest import TINY
from tests.dying import kill
from tests.processes import command_line, ended_well, run
from usvit.evaluation.predictions import read_predictions

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tiny_run, tmp_path_factory):
    """A copy of the finished run, since a run is locked by who continues it."""
    return shutil.copytree(tiny_run, tmp_path_factory.mktemp("runs") / "run")


def command(root, out, *more):
    return ["cv", "--data-root", str(root), "--out", str(out), *TINY, *more]


EVERY_STEP = ("--set", "train.checkpoint_seconds=0")


def run_command(root, out, *more):
    ended_well(run(command_line, *command(root, out, *more)))
    return out


def test_every_file_of_the_design_is_there_and_says_who_made_it(finished):
    names = {path.relative_to(finished).as_posix() for path in finished.rglob("*") if path.is_file()}
    per_fold = {
        f"fold-{k}/{name}"
        for k in range(3)
        for name in ("model.safetensors", "model.json", "novelty.safetensors", "history.csv", "predictions.csv")
    }
    top = {"run.json", "manifest.parquet", "folds.csv", "predictions.csv", "metrics.json", "report.html"}
    seen = {name for name in names if re.fullmatch(r"fold-[0-2]/seen-[0-9a-f]{16}\.copies", name)}
    assert len(seen) == 6  # near-duplicate descriptions of the training and of the inner validation images
    assert names - {".lock"} - seen == per_fold | top
    record = json.loads((finished / "run.json").read_text())
    assert record["state"] == "finished" and record["kind"] == "cv"
    assert record["data"]["n_images"] == 48
    assert record["folds"]["sha256"] == hashlib.sha256((finished / "folds.csv").read_bytes()).hexdigest()


def test_every_image_is_predicted_once_by_a_model_that_has_not_seen_its_patient(finished):
    pooled = read_predictions(finished / "predictions.csv")
    manifest = pd.read_parquet(finished / "manifest.parquet")
    assert sorted(pooled.image_id) == sorted(manifest.image_id)
    folds = pd.read_csv(finished / "folds.csv").merge(manifest[["dataset", "image_id", "group_id", "sha256"]])
    assert (folds.groupby(["fold", "group_id"]).part.nunique() == 1).all()
    for k in range(3):
        metadata = json.loads((finished / f"fold-{k}" / "model.json").read_text())
        seen = {*metadata["seen_sha256"]["train"], *metadata["seen_sha256"]["val"]}
        assert seen.isdisjoint(folds[(folds.fold == k) & (folds.part == "test")].sha256)
        assert len(seen) == (folds[folds.fold == k].part != "test").sum()


def test_the_fold_weights_with_their_metadata_give_the_fold_predictions(finished, small_phantom):
    import timm
    import torch

    from usvit.data.io.decoding import read_image
    from usvit.data.transforms.preprocessing import Preprocessing

    metadata = json.loads((finished / "fold-1" / "model.json").read_text())
    model = timm.create_model(metadata["timm"].partition(".")[0], num_classes=len(metadata["classes"])).eval()
    model.load_state_dict(load_file(finished / "fold-1" / "model.safetensors"))
    preprocessing = Preprocessing(**metadata["preprocessing"])
    manifest = pd.read_parquet(finished / "manifest.parquet").set_index("image_id")
    for _, row in read_predictions(finished / "fold-1" / "predictions.csv").head(5).iterrows():
        image = preprocessing.resized(read_image(small_phantom / manifest.path[row.image_id]))
        with torch.no_grad():
            logits = model(preprocessing.normalised(torch.tensor(image)[None]))[0]
        expected = [row[f"logit_{label}"] for label in metadata["classes"]]
        assert np.allclose(logits.numpy(), expected, atol=1e-4)


def test_class_weights_come_from_the_training_part_of_the_fold_alone(finished):
    from usvit.training.losses import balanced_class_weights

    folds = pd.read_csv(finished / "folds.csv").merge(
        pd.read_parquet(finished / "manifest.parquet")[["dataset", "image_id", "label"]]
    )
    labels = folds[(folds.fold == 0) & (folds.part == "train")].label
    classes = ["benign", "malignant", "normal"]
    weights = balanced_class_weights(np.array([classes.index(label) for label in labels]), 3)
    assert weights == pytest.approx([len(labels) / (3 * (labels == label).sum()) for label in classes])


@pytest.mark.usefixtures("without_report")
def test_the_same_seed_gives_the_same_bytes_and_another_seed_other_folds(finished, small_phantom, tmp_path, usvit):
    for seed, same in ((0, True), (1, False)):
        out = tmp_path / str(seed)
        assert usvit(*command(small_phantom, out), "--seed", seed).code == 0
        for name in ("predictions.csv", "folds.csv"):
            assert ((out / name).read_bytes() == (finished / name).read_bytes()) is same


@pytest.mark.usefixtures("without_report")
def test_pixels_on_the_device_give_the_same_bytes(finished, small_phantom, tmp_path, usvit):
    out = tmp_path / "run"
    assert usvit(*command(small_phantom, out, "--set", "input.device_store=true")).code == 0
    assert (out / "predictions.csv").read_bytes() == (finished / "predictions.csv").read_bytes()
    for k in range(3):
        name = f"fold-{k}/model.safetensors"
        assert (out / name).read_bytes() == (finished / name).read_bytes()


@pytest.mark.usefixtures("without_report")
def test_a_device_that_augments_gives_the_same_predictions_to_rounding(small_phantom, tmp_path, usvit):
    logits = {}
    for name, settings in {
        "plain": (),
        "host": ("input.augment=light",),
        "sent": ("input.augment=light", "input.augment_on=device"),
        "placed": ("input.augment=light", "input.augment_on=device", "input.device_store=true"),
    }.items():
        options = [part for setting in settings for part in ("--set", setting)]
        assert usvit(*command(small_phantom, tmp_path / name, *options)).code == 0
        table = read_predictions(tmp_path / name / "predictions.csv")
        logits[name] = table[[column for column in table if column.startswith("logit_")]].to_numpy()
    assert (logits["sent"] == logits["placed"]).all(), "where the pixels are does not matter"
    assert abs(logits["placed"] - logits["host"]).max() < 1e-3
    assert abs(logits["plain"] - logits["host"]).max() > 1e-2, "the augmentation matters"


@pytest.fixture(scope="module")
def repeated(small_phantom, tmp_path_factory):
    """The same run, repeated once."""
    return run_command(small_phantom, tmp_path_factory.mktemp("runs") / "repeated", "--repeats", "2")


def test_a_repeated_run_tests_each_image_once_in_each_repeat(finished, repeated):
    pooled = read_predictions(repeated / "predictions.csv")
    assert sorted(pooled.fold.unique()) == [*range(6)]
    assert pooled.groupby("fold")["repeat"].first().tolist() == [0, 0, 0, 1, 1, 1]
    assert (pooled.groupby(["repeat", "image_id"]).size() == 1).all() and len(pooled) == 2 * 48
    folds = pd.read_csv(repeated / "folds.csv")
    assert folds.groupby("fold")["repeat"].first().tolist() == [0, 0, 0, 1, 1, 1]
    record = json.loads((repeated / "run.json").read_text())
    assert (record["folds"]["n"], record["folds"]["repeats"]) == (6, 2)


def test_the_first_repeat_is_the_run_without_repeats(finished, repeated):
    once = read_predictions(finished / "predictions.csv")
    pooled = read_predictions(repeated / "predictions.csv")
    first = pooled[pooled["repeat"] == 0].drop(columns="repeat").reset_index(drop=True)
    pd.testing.assert_frame_equal(first, once)
    second = pooled[pooled["repeat"] == 1].sort_values("image_id")
    assert not np.allclose(second.prob_malignant, once.sort_values("image_id").prob_malignant)


def test_a_repeated_run_reports_scores_and_explains(repeated, small_phantom, tmp_path, usvit):
    page = (repeated / "report.html").read_text()
    assert "two repeats" in page or "2 repeats" in page
    said = usvit("explain", repeated, "--data-root", small_phantom, "--out", tmp_path / "maps", "--images", 4)
    assert said.code == 0, said.err
    network = (
        "--model",
        repeated,
        "--fold",
        3,
    )  # of the second repeat; a mean needs temperatures, which six steps may not give
    said = usvit("score", *network, "--input", small_phantom, "--out", tmp_path / "scores")
    assert said.code in (0, 3), said.err


@pytest.mark.usefixtures("without_report")
def test_workers_and_the_memory_mapped_cache_change_nothing(finished, small_phantom, tmp_path, usvit):
    out = tmp_path / "workers"
    options = ("--workers", 2, "--set", "input.cache_gb=0")
    assert usvit(*command(small_phantom, out), *options).code == 0
    assert (out / "predictions.csv").read_bytes() == (finished / "predictions.csv").read_bytes()


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
def test_a_run_killed_at_three_random_moments_ends_in_the_same_predictions(finished, small_phantom, tmp_path, usvit):
    out = tmp_path / "killed"
    moments = random.Random(int(os.environ.get("USVIT_KILL_SEED", "0")))
    for where in ("torn", "after", "torn"):  # of the run's 15 checkpoints, 5 a fold
        kill(command(small_phantom, out, *EVERY_STEP), moments.randint(3, 5), where)
        assert not (out / "metrics.json").exists()
    assert list(out.rglob(".*.partial*"))
    assert usvit(*command(small_phantom, out, *EVERY_STEP)).code == 0
    assert (out / "predictions.csv").read_bytes() == (finished / "predictions.csv").read_bytes()
    assert not list(out.rglob("state.pt")) and not list(out.rglob(".*.partial*"))


@pytest.mark.usefixtures("without_report")
def test_resuming_in_mid_fold_goes_on_from_the_checkpoint(small_phantom, tmp_path, usvit):
    """Dropout, optimiser and early stopping go on where they were: the history is an uninterrupted run's."""
    dropout = ("--model", "timm:test_vit", "--set", "model.drop_path=0.3")
    whole = tmp_path / "whole"
    assert usvit(*command(small_phantom, whole, *dropout)).code == 0
    out = tmp_path / "cut"
    options = (*dropout, *EVERY_STEP)
    kill(command(small_phantom, out, *options), 8, "after")
    assert list(out.glob("fold-1/state.pt")), "the fold was not begun, or is finished"
    assert usvit(*command(small_phantom, out, *options)).code == 0
    for k in range(3):
        columns = ["step", "lr", "train_loss", "val_loss", "val_accuracy", "val_auc"]
        pd.testing.assert_frame_equal(
            pd.read_csv(out / f"fold-{k}" / "history.csv")[columns],
            pd.read_csv(whole / f"fold-{k}" / "history.csv")[columns],
        )
    assert (out / "predictions.csv").read_bytes() == (whole / "predictions.csv").read_bytes()


def test_what_a_kill_at_the_very_end_of_a_fold_leaves_is_cleared_away(finished, small_phantom, tmp_path, usvit):
    out = shutil.copytree(finished, tmp_path / "run")
    record = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**record, "state": "running"}))
    for name in ("state.pt", ".state.pt.partial-0123"):
        (out / "fold-0" / name).write_bytes(b"left behind")
    assert usvit(*command(small_phantom, out)).code == 0
    assert not list(out.glob("fold-*/*state*")) and not list(out.glob("fold-*/.*"))
    assert (out / "predictions.csv").read_bytes() == (finished / "predictions.csv").read_bytes()


def test_a_finished_run_is_not_run_again(finished, small_phantom, usvit):
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("*") if path.is_file()}
    answer = usvit(*command(small_phantom, finished))
    assert answer.code == 0 and str(finished / "report.html") in answer.out
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_the_printed_figures_are_those_of_the_files(finished, small_phantom, usvit):
    metrics = json.loads((finished / "metrics.json").read_text())
    answer = usvit(*command(small_phantom, finished))
    auc = metrics["headline"]["auc"]["value"]
    assert re.search(rf"AUC, malignant vs rest +{auc:.3f}", answer.out)
    assert json.loads(usvit(*command(small_phantom, finished), "--json").out) == metrics


def test_another_configuration_in_the_same_folder_is_refused_and_changes_nothing(finished, small_phantom, usvit):
    before = (finished / "run.json").read_bytes()
    answer = usvit(*command(small_phantom, finished), "--set", "optim.lr=0.5")
    assert answer.code == 2
    assert "optim.lr was 0.0001, now 0.5" in answer.err and "--out" in answer.err
    assert (finished / "run.json").read_bytes() == before


def test_other_images_in_the_same_folder_are_refused(finished, small_phantom, tmp_path, usvit):
    other = shutil.copytree(small_phantom, tmp_path / "other")
    path = sorted(other.rglob("*.png"))[0]
    pixels = np.array(Image.open(path))
    pixels[0, 0] ^= 1
    Image.fromarray(pixels).save(path)
    answer = usvit(*command(other, finished))
    assert answer.code == 2 and "started with different images" in answer.err


def test_a_foreign_folder_is_not_written_to(small_phantom, tmp_path, usvit):
    (tmp_path / "thesis.txt").write_text("three years of work")
    answer = usvit(*command(small_phantom, tmp_path))
    assert answer.code == 2 and "is not a run of usvit" in answer.err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_edited_folds_are_noticed(finished, small_phantom, tmp_path, usvit):
    out = shutil.copytree(finished, tmp_path / "run")
    record = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**record, "state": "running"}))
    text = (out / "folds.csv").read_text()
    (out / "folds.csv").write_text(text.replace("train", "test", 1))
    answer = usvit(*command(small_phantom, out))
    assert answer.code == 2 and "folds.csv has been changed" in answer.err


def test_the_main_path_runs_with_sockets_blocked(small_phantom, tmp_path, usvit, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    answer = usvit(*command(small_phantom, tmp_path / "run"), "--set", "input.augment=light")
    assert answer.code == 0, answer.err


def test_the_hold_out_has_the_same_parts_and_files(small_phantom, tmp_path, usvit):
    out = tmp_path / "train"
    arguments = command(small_phantom, out)[1:]
    assert usvit("train", *arguments).code == 0
    folds = pd.read_csv(out / "folds.csv")
    assert set(folds.part) == {"train", "val", "test"} and set(folds.fold) == {0}
    share = folds.part.value_counts(normalize=True)
    assert share["train"] == pytest.approx(0.70, abs=0.08) and share["test"] == pytest.approx(0.15, abs=0.08)
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["n_images"] == (folds.part == "test").sum()
    assert metrics["mean_sd"]["accuracy"]["sd"] is None


def test_a_diverged_training_says_so(small_phantom, tmp_path, usvit):
    answer = usvit(*command(small_phantom, tmp_path / "run"), "--set", "optim.lr=1e30")
    assert answer.code == 2 and "diverged" in answer.err and "optim.lr" in answer.err


@pytest.mark.usefixtures("without_report")
def test_real_busi_is_predicted_once_each_without_the_conflicting_pair(real_data, tmp_path, usvit):
    """Every sixth image, the pair among them; ``data/datasets/test_manifest.py`` reads all."""
    part, out = tmp_path / "Dataset_BUSI_with_GT", tmp_path / "busi"
    for label in ("benign", "malignant", "normal"):
        (part / label).mkdir(parents=True)
        for path in (real_data / "Dataset_BUSI_with_GT" / label).glob("*.png"):
            if int(re.search(r"\((\d+)\)", path.name)[1]) % 6 == 1:
                (part / label / path.name).symlink_to(path)
    answer = usvit(
        *("cv", "--dataset", "busi", "--data-root", tmp_path, "--out", out),
        *(*TINY, "--set", "split.folds=5", "--set", "input.resize=squash"),
    )
    assert answer.code == 0, answer.err
    assert "left out: benign (433)" in answer.out and "left out: malignant (145)" in answer.out
    pooled = read_predictions(out / "predictions.csv")
    assert len(pooled) == 129 and not pooled.duplicated("image_id").any()
    assert pooled.label.value_counts().to_dict() == {"benign": 72, "malignant": 34, "normal": 23}
