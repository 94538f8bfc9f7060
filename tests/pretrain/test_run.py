"""``usvit pretrain`` from images to weights: what it writes, what begins from it, and what bad input gets."""

import contextlib
import io
import json
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from safetensors.torch import load_file

from tests.conftest import TINY
from usvit.cli import main

SMALL = (
    *("--model", "vit_ti16", "--device", "cpu", "--precision", "fp32"),
    *("--set", "model.vit.width=32", "--set", "model.vit.heads=2", "--set", "model.vit.depth=2"),
    *("--set", "model.vit.mlp=64", "--set", "model.image_size=32"),
    *("--set", "source.size=24", "--set", "source.image_size=32", "--set", "train.batch_size=8"),
    *("--set", "optim.warmup_steps=1", "--set", "train.log_every=1", "--set", "train.checkpoint_seconds=0"),
)
FRACTALS = ("--recipe", "fractals", *SMALL, "--set", "source.classes=3", "--set", "train.eval_every=3")


def usvit(*arguments, check=True):
    """The command in this process (starting one takes seconds): its exit code and what it said on standard error."""
    said, argv = io.StringIO(), sys.argv
    sys.argv = ["usvit", *map(str, arguments)]
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            main()
        code = 0
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv = argv
    assert not check or code == 0, said.getvalue()
    return subprocess.CompletedProcess(argv, code, stderr=said.getvalue())


@pytest.fixture(scope="module")
def supervised(tmp_path_factory):
    out = tmp_path_factory.mktemp("pretrain") / "run"
    usvit("pretrain", *FRACTALS, "--set", "train.steps=6", "--out", out)
    return out


def read(path):
    return json.loads(path.read_text())


def test_a_run_is_whole_and_says_what_it_is(supervised):
    names = {path.relative_to(supervised).as_posix() for path in supervised.rglob("*") if path.is_file()}
    fold = {"model.safetensors", "model.json", "history.csv", "steps.csv", "events.out.tfevents.0.usvit"}
    assert names - {".lock"} == {"run.json", "pretrain.json"} | {f"fold-0/{name}" for name in fold}
    record, passport = read(supervised / "run.json"), read(supervised / "fold-0" / "model.json")
    assert record["state"] == "finished" and record["kind"] == "pretrain" and record["folds"]["n"] == 1
    assert passport["stage"] == "pretrain" and passport["source"]["name"] == "fractals"
    assert passport["preprocessing"]["image_size"] == 32
    steps, history = (pd.read_csv(supervised / "fold-0" / name) for name in ("steps.csv", "history.csv"))
    assert steps.step.tolist() == [1, 2, 3, 4, 5, 6] and history.step.tolist() == [3, 6]
    assert history.train_loss.iloc[0] == pytest.approx(steps.loss[:3].mean())
    kept = read(supervised / "pretrain.json")["kept"][0]
    assert kept["val_accuracy"] == history.val_accuracy.iloc[-1] and kept["step"] == 6


def test_a_run_that_stopped_at_any_step_goes_on_to_the_same_weights_and_losses(supervised, tmp_path):
    """SIGTERM after the first row of the log, then the same command again."""
    out = tmp_path / "run"
    command = [sys.executable, "-m", "usvit", "pretrain", *FRACTALS, "--set", "train.steps=6", "--out", str(out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    log = out / "fold-0" / "steps.csv"
    while process.poll() is None and not (log.is_file() and log.read_text().count("\n") > 1):
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate()
    if process.returncode != 0:  # on a fast machine it may have been done
        assert process.returncode == 143 and "the same command goes on" in said, said
        assert not (out / "fold-0" / "model.json").exists()
    usvit(*command[3:])
    whole, resumed = (load_file(run / "fold-0" / "model.safetensors") for run in (supervised, out))
    assert all(np.array_equal(whole[key], resumed[key]) for key in whole)
    curves = [pd.read_csv(run / "fold-0" / "steps.csv").loss.tolist() for run in (supervised, out)]
    assert curves[0] == curves[1]


def test_fine_tuning_begins_from_it_and_says_so(supervised, small_phantom, tmp_path):
    tiny = [value for value in TINY if value not in ("--model", "timm:test_resnet", "--weights", "scratch")]
    shape = SMALL[: SMALL.index("source.size=24") - 1]
    usvit("cv", "--data-root", small_phantom, *tiny, *shape, "--weights", supervised, "--out", tmp_path / "cv")
    passport = read(tmp_path / "cv" / "fold-0" / "model.json")
    first = passport["upstream"]["lineage"][0]
    assert passport["upstream"]["source"] == "run" and first["source"]["name"] == "fractals"
    assert first["weights_sha256"] == read(supervised / "fold-0" / "model.json")["weights_sha256"]


def test_masked_images_of_each_folds_training_part_are_all_that_is_seen(small_phantom, tmp_path):
    """Fold k of the cross-validation begins where fold k of the pre-training ended; other folds are refused."""
    data = ("--dataset", "phantom", "--data-root", small_phantom)
    fold = ("--set", "split.folds=3", "--set", "train.steps=2")
    usvit("pretrain", "--recipe", "mae_phantom", *SMALL, *data, *fold, "--source", "data", "--out", tmp_path / "mae")
    folds = pd.read_csv(tmp_path / "mae" / "folds.csv")
    tiny = [value for value in TINY if value not in ("--model", "timm:test_resnet", "--weights", "scratch")]
    shape = SMALL[: SMALL.index("source.size=24") - 1]
    arguments = ["cv", *data[2:], *tiny, *shape, "--set", "split.folds=3", "--weights", tmp_path / "mae"]
    usvit(*arguments, "--out", tmp_path / "cv")
    manifest = pd.read_parquet(tmp_path / "cv" / "manifest.parquet").set_index("image_id").sha256
    for k in range(3):
        seen = set(read(tmp_path / "mae" / f"fold-{k}" / "model.json")["seen_sha256"]["train"])
        assert seen == set(manifest[folds.image_id[(folds.fold == k) & (folds.part == "train")]])
        passport = read(tmp_path / "cv" / f"fold-{k}" / "model.json")
        assert set(passport["seen_sha256"]["upstream"]) == seen
    refused = usvit(*arguments, "--seed", "5", "--out", tmp_path / "other", check=False)
    assert refused.returncode == 2 and "has seen" in refused.stderr


def test_what_is_a_copy_of_a_test_image_is_left_out(small_phantom, tmp_path):
    """Half of the upstream folder are downstream images, saved again."""
    upstream = tmp_path / "upstream"
    upstream.mkdir()
    pictures = sorted(path for path in small_phantom.rglob("*.png") if "_mask" not in path.name)[:6]
    for number, path in enumerate(pictures):
        Image.open(path).convert("RGB").save(upstream / f"copy-{number}.jpg", quality=90)
    noise = np.random.default_rng(0)
    for number in range(8):
        Image.fromarray(noise.integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(upstream / f"noise-{number}.png")
    usvit(
        *("pretrain", "--recipe", "mae_phantom", *SMALL, "--source", "unlabeled", "--path", upstream),
        *("--set", "source.exclude=[phantom]", "--data-root", small_phantom, "--set", "train.steps=1"),
        *("--out", tmp_path / "run"),
    )
    excluded = pd.read_csv(tmp_path / "run" / "fold-0" / "excluded.csv")
    assert set(excluded.upstream_name) == {f"copy-{number}.jpg" for number in range(6)}
    passport = read(tmp_path / "run" / "fold-0" / "model.json")
    assert len(passport["seen_sha256"]["train"]) == 8


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["--recipe", "fractal"], "fractals"),
        (["--source", "imagenett"], "imagenet"),
        (["--source", "imagenet"], "--data-root"),
        (["--set", "views.polcy=none"], "views.policy"),
        (["--model", "resnet50", "--set", "objective=mae", "--set", "model.image_size=64"], "plain ViT"),
        (["--set", "distill.kind=token", "--set", "distill.teacher=vit_ti16"], "distill"),
        (["--set", "model.image_size=40"], "40"),
        (["--cell", "recommended"], "no sweep"),
        (["--source", "phantom+fractals"], "labels"),
        (["--set", "optim.lr=1e30", "--set", "optim.clip_norm=null", "--set", "train.steps=6"], "at step"),
    ],
)
def test_bad_input_gets_one_paragraph_that_says_what_to_do(arguments, words, tmp_path):
    # Later --set win: the shape of SMALL comes first.
    done = usvit("pretrain", *FRACTALS, "--set", "train.steps=1", *arguments, "--out", tmp_path / "run", check=False)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr and words in done.stderr
    assert not list(tmp_path.rglob("model.safetensors"))


def test_another_recipe_does_not_go_on_in_the_same_folder(supervised):
    before = {path: path.read_bytes() for path in supervised.rglob("*") if path.is_file()}
    done = usvit("pretrain", *FRACTALS, "--set", "train.steps=7", "--out", supervised, check=False)
    assert done.returncode == 2 and "train.steps was 6, now 7" in done.stderr
    assert before == {path: path.read_bytes() for path in supervised.rglob("*") if path.is_file()}


def test_a_pretrained_network_is_no_classifier_to_score_with(supervised, small_phantom, tmp_path):
    done = usvit("score", "--model", supervised, "--input", small_phantom, "--out", tmp_path / "s", check=False)
    assert done.returncode == 2 and "usvit cv --weights" in done.stderr
