"""``usvit pretrain`` from images to weights: what it writes, what begins from it, and what bad input gets."""

import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from safetensors.torch import load_file, save_file

from tests.conftest import TINY
from tests.processes import command_line, start
from tests.records.contents import content
from tests.upstream.sources.layouts import put, write_pets
from usvit.cli import main
from usvit.errors import UsvitError
from usvit.records import RunRecord
from usvit.training.step_log import StepLog
from usvit.upstream.records.training import KeptWeights, PretrainRecord

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


@pytest.mark.slow
def test_a_run_is_whole_and_says_what_it_is(supervised):
    names = {path.relative_to(supervised).as_posix() for path in supervised.rglob("*") if path.is_file()}
    fold = {"model.safetensors", "model.json", "history.csv", "steps.csv", "events.out.tfevents.0.usvit"}
    assert names - {".lock"} == {"run.json", "pretrain.json", "report.html"} | {f"fold-0/{name}" for name in fold}
    record, metadata = read(supervised / "run.json"), read(supervised / "fold-0" / "model.json")
    assert record["state"] == "finished" and record["kind"] == "pretrain" and record["folds"]["n"] == 1
    assert metadata["stage"] == "pretrain" and metadata["source"]["name"] == "fractals"
    assert metadata["preprocessing"]["image_size"] == 32
    steps, history = (pd.read_csv(supervised / "fold-0" / name) for name in ("steps.csv", "history.csv"))
    assert steps.step.tolist() == [1, 2, 3, 4, 5, 6] and history.step.tolist() == [3, 6]
    assert history.train_loss.iloc[0] == pytest.approx(steps.loss[:3].mean())
    kept = read(supervised / "pretrain.json")["kept"][0]
    assert kept["val_accuracy"] == history.val_accuracy.iloc[-1] and kept["step"] == 6


@pytest.mark.slow
def test_a_run_that_stopped_at_any_step_goes_on_to_the_same_weights_and_losses(supervised, tmp_path, monkeypatch):
    """SIGTERM after the second row of the log, in the middle of an epoch, then the same command again."""
    command, add = ("pretrain", *FRACTALS, "--set", "train.steps=6", "--out", tmp_path / "run"), StepLog.add

    def asked(log, row):
        add(log, row)
        if row["step"] == 2:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as patch:
        patch.setattr(StepLog, "add", asked)
        stopped = usvit(*command, check=False)
    out = tmp_path / "run"
    assert stopped.returncode == 143 and "the same command continues" in stopped.stderr
    assert (out / "fold-0" / "state.pt").exists() and not (out / "fold-0" / "model.json").exists()
    usvit(*command)
    whole, resumed = (load_file(run / "fold-0" / "model.safetensors") for run in (supervised, out))
    assert all(np.array_equal(whole[key], resumed[key]) for key in whole)
    curves = [pd.read_csv(run / "fold-0" / "steps.csv").loss.tolist() for run in (supervised, out)]
    assert curves[0] == curves[1]


@pytest.mark.slow
def test_another_resolution_goes_on_with_the_head(supervised, tmp_path):
    go_on = ("--weights", supervised, "--set", "model.head=kept", "--set", "train.steps=1", "--set", "optim.lr=1e-20")
    usvit("pretrain", *FRACTALS, *go_on, "--set", "model.image_size=48", "--out", tmp_path / "run")
    before, after = (load_file(run / "fold-0" / "model.safetensors") for run in (supervised, tmp_path / "run"))
    assert np.array_equal(before["head.weight"], after["head.weight"]) and before["head.weight"].any()
    other = usvit("pretrain", *FRACTALS, *go_on, "--set", "source.classes=4", "--out", tmp_path / "no", check=False)
    assert other.returncode == 2 and "set model.head to new" in other.stderr


@pytest.mark.slow
def test_fine_tuning_begins_from_it_and_says_so(supervised, small_phantom, tmp_path):
    tiny = [value for value in TINY if value not in ("--model", "timm:test_resnet", "--weights", "scratch")]
    shape = SMALL[: SMALL.index("source.size=24") - 1]
    usvit("cv", "--data-root", small_phantom, *tiny, *shape, "--weights", supervised, "--out", tmp_path / "cv")
    metadata = read(tmp_path / "cv" / "fold-0" / "model.json")
    first = metadata["upstream"]["lineage"][0]
    assert metadata["upstream"]["source"] == "run" and first["source"]["name"] == "fractals"
    assert first["weights_sha256"] == read(supervised / "fold-0" / "model.json")["weights_sha256"]


@pytest.mark.slow
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
        metadata = read(tmp_path / "cv" / f"fold-{k}" / "model.json")
        assert set(metadata["seen_sha256"]["upstream"]) == seen
    refused = usvit(*arguments, "--seed", "5", "--out", tmp_path / "other", check=False)
    assert refused.returncode == 2 and "has seen" in refused.stderr


@pytest.mark.slow
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
    metadata = read(tmp_path / "run" / "fold-0" / "model.json")
    assert len(metadata["seen_sha256"]["train"]) == 8


@pytest.mark.slow
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
        (
            ["--source", "data", "--set", "source.val=null", "--set", "objective=mae", "--set", "source.hashes=false"],
            "leave source.hashes true",
        ),
        (["--set", "model=vit_ti16"], "model"),
        (["--set", "train.early_stopping.patience=2", "--set", "source.val=null"], "no validation images"),
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


@pytest.mark.slow
def test_what_validated_it_has_been_seen(small_phantom, tmp_path):
    folder = tmp_path / "folder" / "train"
    for number in range(8):
        (folder / f"c{number % 2}").mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"c{number % 2}" / f"{number}.png")
    source = ("--source", "folder", "--path", tmp_path / "folder", "--set", "source.val_share=0.25")
    usvit("pretrain", *FRACTALS, *source, "--set", "train.steps=1", "--out", tmp_path / "run")
    seen = read(tmp_path / "run" / "fold-0" / "model.json")["seen_sha256"]
    assert len(seen["train"]) == 6 and len(seen["val"]) == 2 and not set(seen["train"]) & set(seen["val"])
    assert "unhashed" not in seen

    # Without hashes: named, and said to whoever begins there.
    unhashed = (*source, "--set", "source.hashes=false", "--set", "train.steps=1")
    usvit("pretrain", *FRACTALS, *unhashed, "--out", tmp_path / "unhashed")
    told = read(tmp_path / "unhashed" / "fold-0" / "model.json")["seen_sha256"]
    assert told == {"train": [], "val": [], "upstream": [], "unhashed": ["folder"]}
    tiny = [value for value in TINY if value not in ("--model", "timm:test_resnet", "--weights", "scratch")]
    shape = SMALL[: SMALL.index("source.size=24") - 1]
    begin = ("cv", "--data-root", small_phantom, *tiny, *shape, "--out", tmp_path / "run")  # refused: it is a run
    said = [usvit(*begin, "--weights", tmp_path / name, check=False).stderr for name in ("unhashed", "run")]
    assert "Warning: The network of --weights" in said[0] and "trained on folder with source.hashes=false" in said[0]
    assert "Mind" not in said[1]


@pytest.mark.slow
def test_the_teacher_is_in_the_record_the_metadata_and_the_identity(supervised, tmp_path):
    teacher = tmp_path / "teacher"
    shutil.copytree(supervised / "fold-0", teacher)
    arguments = ("--set", "distill.kind=hard", "--set", "distill.teacher=vit_ti16", "--set", "train.steps=2")
    arguments = (*FRACTALS, *arguments, "--set", f"distill.weights={teacher}", "--out", tmp_path / "run")
    usvit("pretrain", *arguments)
    run, metadata = read(tmp_path / "run" / "run.json"), read(tmp_path / "run" / "fold-0" / "model.json")
    sha256 = read(teacher / "model.json")["weights_sha256"]
    told = run["learnt_from"]["networks"]
    assert [(one["role"], one["architecture"], one["weights_sha256"]) for one in told] == [
        ("teacher", "vit_ti16", sha256)
    ]
    assert metadata["learnt_from"] == told
    other = load_file(teacher / "model.safetensors")
    save_file({key: value * 1.5 for key, value in other.items()}, teacher / "model.safetensors")
    changed = read(teacher / "model.json") | {
        "weights_sha256": hashlib.sha256((teacher / "model.safetensors").read_bytes()).hexdigest()
    }
    (teacher / "model.json").write_text(json.dumps(changed))
    done = usvit("pretrain", *arguments, check=False)
    assert done.returncode == 2 and "different teacher networks" in done.stderr


@pytest.mark.slow
def test_layer_scale_of_another_run_is_kept_and_that_run_is_recorded(tmp_path):
    """The thesis's control 're-trained with fixed weights': only LayerScale comes from the first training."""
    scaled = (*FRACTALS, "--set", "model.vit.layer_scale=0.1", "--set", "train.steps=2", "--set", "optim.lr=0.01")
    folder = tmp_path / "images"
    for number in range(6):
        (folder / f"c{number % 3}").mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"c{number % 3}" / f"{number}.png")
    usvit(
        "pretrain", *scaled, "--source", "folder", "--path", folder, "--set", "source.val=null", "--out", tmp_path / "a"
    )
    fixed = (*scaled, "--set", f"model.layer_scale_from={tmp_path / 'a'}")
    usvit("pretrain", *fixed, "--out", tmp_path / "b")
    usvit("pretrain", *fixed, "--set", "optim.lr=1e-30", "--out", tmp_path / "start")
    usvit("pretrain", *scaled, "--set", "optim.lr=1e-30", "--out", tmp_path / "plain")
    first, second, start, plain = (
        load_file(tmp_path / name / "fold-0" / "model.safetensors") for name in ("a", "b", "start", "plain")
    )
    assert sum(".ls" in key for key in first) == 4
    for key in first:
        if ".ls" in key:
            assert np.array_equal(second[key], first[key]) and first[key].std() > 0, key
        else:  # new weights, those of a training without the setting, which are trained
            assert np.allclose(start[key], plain[key], rtol=0, atol=1e-20), key
            assert not np.array_equal(second[key], start[key]), key

    run, metadata = (read(tmp_path / "b" / name) for name in ("run.json", "fold-0/model.json"))
    told, before = run["learnt_from"]["networks"], read(tmp_path / "a" / "fold-0" / "model.json")
    assert metadata["learnt_from"] == told and len(told) == 1
    assert (told[0]["role"], told[0]["weights_sha256"]) == ("source of LayerScale", before["weights_sha256"])
    assert len(before["seen_sha256"]["train"]) == 6
    assert sorted(metadata["seen_sha256"]["upstream"]) == sorted(before["seen_sha256"]["train"])
    assert run["model"]["params"] - run["model"]["trainable"] == 4 * 32
    usvit("pretrain", *fixed, "--out", tmp_path / "b")  # a finished run, found again


@pytest.mark.parametrize(
    ("choice", "said"), [("scratch", "no trained values"), ("nothing/here", "there is no such file")]
)
def test_values_of_layer_scale_that_do_not_exist_are_refused(choice, said, tmp_path):
    done = usvit(
        "pretrain", *FRACTALS, "--set", f"model.layer_scale_from={choice}", "--out", tmp_path / "run", check=False
    )
    assert done.returncode == 2 and said in done.stderr and "model.layer_scale_from" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_checkpoint_of_another_recipe_is_refused(supervised, tmp_path, monkeypatch):
    """The same shapes, another rate: nothing but the identity tells."""
    from usvit.upstream.pretraining_run import experiment as module

    stopped = UsvitError("full")
    monkeypatch.setattr(module, "write_model", lambda *_: (_ for _ in ()).throw(stopped))
    for name, rate in (("a", "0.001"), ("b", "0.002")):
        arguments = (*FRACTALS, "--set", "train.steps=3", "--set", f"optim.lr={rate}", "--out", tmp_path / name)
        assert usvit("pretrain", *arguments, check=False).returncode == 2
    monkeypatch.undo()
    state = (tmp_path / "a" / "fold-0" / "state.pt").read_bytes()
    (tmp_path / "b" / "fold-0" / "state.pt").write_bytes(state)
    done = usvit("pretrain", *arguments, check=False)
    assert done.returncode == 2 and "belongs to another training" in done.stderr and "Traceback" not in done.stderr


def record_of_a_tokenizer():
    whole = content("run-pretrain")
    return RunRecord.model_validate(whole | {"config": whole["config"] | {"objective": "tokenizer"}})


def test_a_cell_leaves_to_the_user_what_the_user_sets(tmp_path, monkeypatch):
    """Cells that differ in the rate alone are one training where the rate is given."""
    (tmp_path / "own.yaml").write_text("sweep: {optim.lr: [0.1, 0.2], seed: [1, 2]}\n")
    trained = []
    done = SimpleNamespace(result=PretrainRecord(kept=[]), path=tmp_path, record=record_of_a_tokenizer())
    monkeypatch.setattr(
        "usvit.upstream.pretraining_run.experiment.Pretraining.run", lambda self: trained.append(self.config) or done
    )
    own = ("--recipe", tmp_path / "own.yaml", "--cell", "all", "--set", "optim.lr=0.5", "--set", "train.steps=1")
    usvit("pretrain", *own, "--out", tmp_path / "out")
    assert [(config.seed, config.optim.lr) for config in trained] == [(1, 0.5), (2, 0.5)]


@pytest.mark.slow
def test_test_images_of_a_named_set_are_left_out(tmp_path):
    """Steiner et al. 2022, section 3.1: upstream images are de-duplicated against the downstream test sets."""
    write_pets(tmp_path / "pets")
    (tmp_path / "upstream").mkdir()
    tested = next((tmp_path / "pets").rglob("Bengal_2.jpg"))
    shutil.copy(tested, tmp_path / "upstream" / "copy.jpg")
    for number in range(5):
        put(tmp_path / "upstream" / f"{number}.png", 900 + number)
    usvit(
        *("pretrain", "--recipe", "mae_phantom", *SMALL, "--source", "unlabeled", "--path", tmp_path / "upstream"),
        *("--set", "source.exclude=[pets]", "--data-root", f"pets={tmp_path / 'pets'}", "--set", "train.steps=1"),
        *("--set", "train.batch_size=4", "--out", tmp_path / "run"),
    )
    excluded = pd.read_csv(tmp_path / "run" / "fold-0" / "excluded.csv")
    assert excluded.upstream_name.tolist() == ["copy.jpg"] and excluded.dataset.tolist() == ["pets:test"]
    assert read(tmp_path / "run" / "run.json")["data"]["exclude"]["datasets"] == ["pets:test"]


def test_an_unknown_set_to_leave_out_is_named_with_what_exists(tmp_path):
    done = usvit("pretrain", *FRACTALS, "--set", "source.exclude=[cifar11]", "--out", tmp_path / "run", check=False)
    assert done.returncode == 2 and "data set in source.exclude 'cifar11'" in done.stderr and "cifar10" in done.stderr


@pytest.mark.slow
def test_the_data_set_that_is_learnt_from_cannot_be_left_out(small_phantom, tmp_path):
    data = ("--source", "phantom+data", "--dataset", "phantom", "--data-root", small_phantom)
    shape = ("--recipe", "mae_phantom", *SMALL, "--set", "train.steps=1", "--set", "source.exclude=[phantom]")
    done = usvit("pretrain", *shape, *data, "--out", tmp_path / "run", check=False)
    assert done.returncode == 2 and "source.exclude names phantom" in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_tokenizer_is_not_offered_to_cv(capsys):
    from usvit.upstream.cli.pretrain import _print

    (kept, *_) = content("pretrain")["kept"]
    for folds, where in (((), "a b"), ((0, 1), "a b/fold-0")):
        record = record_of_a_tokenizer()
        _print(
            SimpleNamespace(
                result=PretrainRecord(kept=[KeptWeights(**kept | {"fold": fold}) for fold in folds]),
                path=Path("a b"),
                record=record,
            )
        )
        said = capsys.readouterr().out
        assert "usvit cv" not in said and f"--recipe beit --set beit.tokenizer='{where}'" in said


@pytest.mark.slow
def test_of_two_processes_one_says_what_both_end_with(supervised, tmp_path):
    """A folder that is refused, found by the first process alone; and an unknown setting, found by both."""
    cases = (
        (("--set", "train.steps=7"), "holds a run with another configuration"),
        (("--set", "train.stepss=7"), "train.steps"),
        (("--source", "imagenet", "--set", "train.steps=1"), "--data-root"),
    )
    for number, (arguments, words) in enumerate(cases):
        command = ("pretrain", *FRACTALS, *arguments, "--out", supervised)
        done = start(tmp_path / f"said-{number}.txt", command_line, *command, torchrun=2).wait()
        said = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]  # torchrun adds its own words
        assert len(said) == 1 and words in said[0], done.stderr
        # The launcher may end the second one (SIGTERM) before it has ended itself.
        assert "exitcode  : 2 " in done.stderr and "bug in usvit" not in done.stderr, done.stderr


@pytest.fixture(scope="module")
def photographs(tmp_path_factory):
    """Eight pictures of several shapes in two classes, larger than the network's input."""
    folder, generator = tmp_path_factory.mktemp("photographs"), np.random.default_rng(0)
    for number in range(8):
        path = folder / f"class{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        pixels = generator.integers(0, 256, (8 + number, 10, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((60, 48 + 6 * number)).save(path)
    return folder


def from_photographs(folder):
    source = ("--source", "folder", "--path", folder, "--set", "source.val=null")
    return ("--recipe", "fractals", *SMALL, *source, "--set", "views.policy=three_augment")


def decoded_run(photographs, out, *more):
    source = (*from_photographs(photographs), "--set", "source.val_share=0.25")
    steps = ("--set", "train.steps=3", "--set", "train.eval_every=3")
    usvit("pretrain", *source, *steps, "--out", out, *more)
    return load_file(out / "fold-0" / "model.safetensors"), read(out / "run.json")


@pytest.mark.slow
def test_decoded_images_train_the_same_weights_wherever_they_lie(photographs, tmp_path):
    """In memory, in a mapped file with a process that draws, and on the device."""
    on_device = ("--set", "views.on=device")
    ways = {
        "memory": ("--set", "source.decoded=memory", *on_device),
        "mapped": ("--set", "source.decoded=memory", *on_device, "--set", "source.decoded_gb=0", "--workers", "1"),
        "device": ("--set", "source.decoded=device"),
    }
    found = {name: decoded_run(photographs, tmp_path / name, *way) for name, way in ways.items()}
    weights, record = found["memory"]
    assert record["data"]["decoded"] == {"longest_side": 48}
    for other, _ in found.values():
        assert all(np.array_equal(weights[key], other[key]) for key in weights)
    from_files, record = decoded_run(photographs, tmp_path / "files", *on_device)
    assert "decoded" not in record["data"]
    assert not all(np.array_equal(weights[key], from_files[key]) for key in weights), "it changes the pixels"
    on_host, _ = decoded_run(photographs, tmp_path / "host", "--set", "source.decoded=auto")
    assert all(np.allclose(weights[key], on_host[key], atol=0.05) for key in weights), "crops differ by rounding"


@pytest.mark.slow
def test_two_processes_share_the_decoded_images(photographs, tmp_path):
    options = (*from_photographs(photographs), "--set", "source.decoded=memory", "--set", "train.steps=2")
    out = ("--out", tmp_path / "run")
    done = start(tmp_path / "said.txt", command_line, "pretrain", *options, *out, torchrun=2).wait()
    assert done.returncode == 0, done.stderr[-2000:]
    assert (tmp_path / "run" / "fold-0" / "model.json").exists()
    assert not list((tmp_path / "run").glob(".decoded*"))


def test_what_the_host_alone_computes_cannot_be_cropped_on_the_device(tmp_path):
    for more, words in (
        (("--set", "views.policy=randaugment"), "PIL computes views.policy=randaugment"),
        (("--set", "views.on=cpu"), "views.on is cpu"),
    ):
        where = ("--set", "source.decoded=device", "--out", tmp_path / "run")
        done = usvit("pretrain", *FRACTALS, *where, *more, check=False)
        assert done.returncode == 2
        assert words in done.stderr and "set source.decoded=memory" in done.stderr
