"""Adapters trained by the real command: their files, their base, resumption, and what reads them."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from tests.conftest import TINY, succeed
from tests.experiments.test_cross_validation_tune import logits
from usvit.data.io.decoding import read_image
from usvit.errors import UsvitError
from usvit.evaluation.predictions import read_predictions
from usvit.experiments.run_directory import load_run_record
from usvit.files import sha256_of_file
from usvit.models.fixed_network import resolve_networks
from usvit.models.trained_model import load_trained

LORA = (
    *("--model", "timm:test_vit", "--set", "model.tune=lora", "--set", "split.folds=2"),
    *("--set", "optim.name=adamw", "--set", "optim.lr=0.02", "--set", "optim.warmup_steps=0"),
)
pytestmark = pytest.mark.slow


def make_base(path, seed=5):
    torch.manual_seed(seed)
    save_file(timm.create_model("test_vit", num_classes=7, img_size=32).state_dict(), path)
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return make_base(tmp_path_factory.mktemp("weights") / "vit.safetensors")


@pytest.fixture
def run(usvit, small_phantom, tmp_path):
    def run(name, *more):
        answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / name, *TINY, *more)
        assert answer.code == 0, answer.err
        return tmp_path / name

    return run


@pytest.fixture(scope="module")
def adapters(base, small_phantom, tmp_path_factory):
    """A run with its report, which tests only read."""
    out = tmp_path_factory.mktemp("adapters") / "run"
    succeed("cv", "--data-root", small_phantom, "--out", out, *TINY, *LORA, "--weights", base)
    return out


def test_a_fold_holds_adapters_and_head_and_loads_as_the_whole_network(adapters, base, small_phantom, usvit, tmp_path):
    out = adapters
    file, begun = out / "fold-0" / "model.safetensors", load_file(base)
    metadata = json.loads((out / "fold-0" / "model.json").read_text())
    stated = {"source": "file", "name": base.name, "sha256": sha256_of_file(base), "upstream": None}
    assert metadata["tune"] == "lora"
    assert metadata["adapter"] == {"method": "lora", "rank": 8, "alpha": 8.0, "targets": ["q", "v"], "base": stated}
    with safe_open(file, "pt") as opened:
        assert json.loads(opened.metadata()["usvit"])["adapter"] == metadata["adapter"]
    state = load_file(file)
    assert {key.rpartition(".")[0].rpartition(".")[2] for key in state} == {"head", "lora_a", "lora_b"}
    assert max(value.abs().max() for key, value in state.items() if "lora_b" in key) > 1e-4
    assert load_run_record(out).model.trainable == sum(value.numel() for value in state.values())

    trained = load_trained(out / "fold-0")
    own = trained.model.state_dict()
    moved = {key for key in begun if not key.startswith("head.") and not torch.equal(own[key], begun[key])}
    assert moved == {key for key in begun if key.endswith("attn.qkv.weight")}
    table = read_predictions(out / "fold-0" / "predictions.csv")
    paths = pd.read_parquet(out / "manifest.parquet").set_index("image_id").path
    images = [trained.preprocessing.resized(read_image(small_phantom / paths[name])) for name in table.image_id]
    with torch.no_grad():
        found = trained.model(trained.preprocessing.normalised(torch.tensor(np.stack(images))))
    assert found.numpy() == pytest.approx(logits(out, fold=0), abs=1e-5)

    fixed = next(iter(resolve_networks(str(out / "fold-0")))).network().eval()  # as usvit test uses it
    assert all(torch.equal(value, own[key]) for key, value in fixed.state_dict().items())

    # An export is whole: it needs no base.
    answer = usvit("models", "export", out / "fold-0", "--out", tmp_path / "export", "--format", "safetensors")
    assert answer.code == 0, answer.err
    assert "adapter" not in json.loads((tmp_path / "export" / "model.json").read_text())
    base_moved = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "export", base_moved)
    assert torch.equal(load_trained(base_moved).model.state_dict()["head.weight"], own["head.weight"])


@pytest.mark.usefixtures("without_report")
def test_another_base_or_none_is_refused_in_one_paragraph(run, usvit, tmp_path, monkeypatch):
    base = make_base(tmp_path / "vit.safetensors")
    out = run("run", *LORA, "--weights", base)
    other = make_base(tmp_path / "other.safetensors", seed=6)
    kept = tmp_path / "kept.safetensors"
    base.rename(kept)

    export = ("models", "export", out / "fold-0", "--format", "safetensors", "--out")

    def refused(said, *more):
        before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
        answer = usvit(*export, tmp_path / "export", *more)
        message = answer.err.strip()
        assert answer.code == 2 and said in message.replace("\n", " ") and "Traceback" not in message
        assert sha256_of_file(kept) in message.replace("\n", "").replace(" ", "")
        assert not (tmp_path / "export").exists()
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before

    refused("Name that file or run by --base or USVIT_BASE")
    monkeypatch.setenv("USVIT_BASE", str(other))
    refused(f"--base or USVIT_BASE names {other}; {other} has SHA-256")
    refused(f"names {base}; there is no file of weights", "--base", base)
    answer = usvit(*export, tmp_path / "given", "--base", kept)
    assert answer.code == 0, answer.err
    monkeypatch.delenv("USVIT_BASE")
    shutil.copy(other, base)  # the path of the run holds another file now
    refused("has SHA-256")
    shutil.copy(kept, out / "fold-0" / "base.safetensors")
    load_trained(out / "fold-0")


def test_edited_metadata_and_lone_adapters_are_refused(adapters, usvit, small_phantom, tmp_path):
    fold = shutil.copytree(adapters / "fold-0", tmp_path / "copy")
    metadata = json.loads((fold / "model.json").read_text())
    metadata["adapter"]["base"]["sha256"] = "0" * 64
    (fold / "model.json").write_text(json.dumps(metadata))
    with pytest.raises(UsvitError, match="name different bases"):
        load_trained(fold)
    (fold / "model.json").unlink()
    again = ("--weights", fold / "model.safetensors", "--model", "timm:test_vit")
    answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / "next", *TINY, *again)
    assert answer.code == 2 and "are adapters (LoRA), not a whole network" in " ".join(answer.err.split())


@pytest.mark.usefixtures("without_report")
def test_a_training_stopped_in_the_middle_resumes_to_the_same_bytes(run, base, monkeypatch):
    options = (*LORA, "--weights", base, "--set", "model.lora.dropout=0.2", "--set", "train.checkpoint_seconds=0")
    whole = run("whole", *options)
    from usvit.training import checkpoint

    saved, real = [], checkpoint.save_checkpoint

    def save_then_stop(path, state):
        real(path, state)
        saved.append(state["step"])
        if len(saved) == 8:  # in the middle of the second fold
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises((AssertionError, KeyboardInterrupt)):
        patch.setattr(checkpoint, "save_checkpoint", save_then_stop)
        run("cut", *options)
    cut = run("cut", *options)
    for name in ("predictions.csv", "fold-0/model.safetensors", "fold-1/model.safetensors"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.usefixtures("without_report")
def test_a_run_of_adapters_is_a_base_itself(run, adapters):
    """Adapters of adapters, at a larger image: the chain of bases is merged when the network is loaded."""
    first = adapters
    again = ("--weights", first, "--folds", first / "folds.csv", "--set", "model.image_size=64")
    second = run("second", *LORA, *again)
    record = json.loads((second / "fold-1" / "model.json").read_text())
    assert record["adapter"]["base"]["sha256"] == sha256_of_file(first / "fold-1" / "model.safetensors")
    weights = [load_trained(out / "fold-1").model.state_dict()["blocks.0.attn.qkv.weight"] for out in (first, second)]
    assert 1e-4 < (weights[1] - weights[0]).abs().max() < 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("model.weights=scratch",), "adapts trained weights, but model.weights is scratch"),
        (("model.lora.targets=[q,w]",), "model.lora.targets"),
        (("model.lora.rank=0",), "model.lora.rank"),
    ],
)
def test_impossible_adapters_are_an_error_before_anything_is_written(
    usvit, small_phantom, tmp_path, base, settings, said
):
    pairs = [word for setting in settings for word in ("--set", setting)]
    answer = usvit(
        "cv", "--data-root", small_phantom, "--out", tmp_path / "run", *TINY, *LORA, "--weights", base, *pairs
    )
    assert answer.code == 2 and said in " ".join(answer.err.split()) and "Traceback" not in answer.err
    assert not (tmp_path / "run").exists()
