"""Parts of a network trained, by the real command: what is kept, what is counted, what resumes."""

import json

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from safetensors.torch import load_file, save_file

from tests.conftest import TINY, succeed
from usvit.data.io.decoding import read_image
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.evaluation.predictions import read_predictions

VIT = ("--model", "timm:test_vit", "--set", "optim.lr=0.01", "--set", "model.drop_path=0.3")
HEAD = (*VIT, "--set", "model.tune=head")
COMPARED = ["step", "lr", "train_loss", "val_loss", "val_accuracy", "val_auc"]


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    """Random weights in a file, so that all folds begin with the same."""
    torch.manual_seed(5)
    path = tmp_path_factory.mktemp("weights") / "vit.safetensors"
    save_file(timm.create_model("test_vit", num_classes=7, img_size=32).state_dict(), path)
    return path


@pytest.fixture
def run(usvit, small_phantom, tmp_path):
    def run(name, *more):
        answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / name, *TINY, *more)
        assert answer.code == 0, answer.err
        return tmp_path / name, answer

    return run


@pytest.fixture(scope="module")
def head(backbone, small_phantom, tmp_path_factory):
    """A run of the head alone, with its report: the folder, and what the command said. Tests only read it."""
    out = tmp_path_factory.mktemp("head") / "run"
    return out, succeed("cv", "--data-root", small_phantom, "--out", out, *TINY, *HEAD, "--weights", backbone)


def logits(out, fold=None):
    table = read_predictions((out if fold is None else out / f"fold-{fold}") / "predictions.csv")
    return table[[column for column in table if column.startswith("logit_")]].to_numpy()


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_a_head_on_kept_features_ends_as_the_head_of_the_whole_network(run, head, backbone, monkeypatch):
    kept, _ = head
    from usvit.training.head_training import HeadTraining

    monkeypatch.setattr(HeadTraining, "_difference", lambda *_: "the test wants it so")
    whole, answer = run("whole", *HEAD, "--weights", backbone)
    assert "not on stored features: the test wants it so." in answer.err
    assert logits(kept) == pytest.approx(logits(whole), abs=1e-5) and abs(logits(kept)).max() > 1e-3
    for fold in range(3):
        one, two = (pd.read_csv(out / f"fold-{fold}" / "history.csv")[COMPARED] for out in (kept, whole))
        pd.testing.assert_frame_equal(one, two, rtol=1e-5)


@pytest.mark.slow
def test_the_files_of_a_trained_head_are_those_of_a_whole_network(head, backbone, small_phantom):
    out, said = head
    assert "tuning head: 195 of 0.3 M parameters" in said
    record = json.loads((out / "run.json").read_text())
    metadata = json.loads((out / "fold-0" / "model.json").read_text())
    assert record["model"]["trainable"] == 195 and metadata["tune"] == "head"  # 3 classes of 64 features
    state, begun = load_file(out / "fold-0" / "model.safetensors"), load_file(backbone)
    for key, value in state.items():
        assert key.startswith("head.") or torch.equal(value, begun[key]), key
    model = timm.create_model("test_vit", num_classes=3, img_size=32).eval()
    model.load_state_dict(state)
    preprocessing = Preprocessing(**metadata["preprocessing"])
    paths = pd.read_parquet(out / "manifest.parquet").set_index("image_id").path
    table = read_predictions(out / "fold-0" / "predictions.csv")
    images = [preprocessing.resized(read_image(small_phantom / paths[image_id])) for image_id in table.image_id]
    with torch.no_grad():
        found = model(preprocessing.normalised(torch.tensor(np.stack(images))))
    assert found.numpy() == pytest.approx(logits(out, fold=0), abs=1e-5) and found.abs().max() > 1e-3


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_random_backbones_differ_by_fold_and_so_do_their_features(run):
    out, _ = run("scratch", *HEAD)
    one, two = (load_file(out / f"fold-{k}" / "model.safetensors")["blocks.0.attn.qkv.weight"] for k in range(2))
    assert not torch.equal(one, two)


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_a_head_training_stopped_in_the_middle_resumes_to_the_same_predictions(run, usvit, monkeypatch, backbone):
    options = (*HEAD, "--weights", backbone, "--set", "train.checkpoint_seconds=0")
    whole, _ = run("whole", *options)
    from usvit.training import checkpoint

    saved, real = [], checkpoint.save_checkpoint

    def save_then_stop(path, state):
        real(path, state)
        saved.append(state["step"])
        if len(saved) == 10:  # in the middle of the second fold
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises((AssertionError, KeyboardInterrupt)):
        patch.setattr(checkpoint, "save_checkpoint", save_then_stop)
        run("cut", *options)
    assert saved[-1] not in (0, 6)
    cut, answer = run("cut", *options)
    assert "1 of 3 folds are done" in answer.err
    assert (cut / "predictions.csv").read_bytes() == (whole / "predictions.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_a_head_is_trained_on_augmented_images_too(run, head, backbone):
    plain, _ = head
    out, _ = run("augmented", *HEAD, "--weights", backbone, "--set", "input.augment=light")
    begun = load_file(backbone)["blocks.0.mlp.fc1.weight"]
    assert torch.equal(load_file(out / "fold-1" / "model.safetensors")["blocks.0.mlp.fc1.weight"], begun)
    assert logits(out) == pytest.approx(logits(plain), abs=1.0) and (logits(out) != logits(plain)).any()


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_attention_alone_is_tuned_at_another_size_from_a_files_weights(run, backbone):
    """Train small, fine-tune large (Three things, section 4): the positions grow with the image, and train."""
    out, answer = run(
        "large",
        *(*VIT, "--weights", backbone, "--set", "model.tune=attn"),
        *("--set", "model.image_size=64", "--set", "train.steps=2", "--set", "optim.layer_decay=0.75"),
    )
    assert "tuning attn: " in answer.err
    state, begun = load_file(out / "fold-0" / "model.safetensors"), load_file(backbone)
    assert state["pos_embed"].shape[1] == 1 + 16 and begun["pos_embed"].shape[1] == 1 + 4
    moved = {
        key for key in begun if not key.startswith(("head.", "pos_embed")) and not torch.equal(begun[key], state[key])
    }
    assert moved == {key for key in begun if ".attn." in key}


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_gradients_computed_again_change_no_byte_of_the_predictions(run):
    short = (*VIT, "--set", "train.steps=2", "--set", "split.folds=2")
    plain, _ = run("plain", *short)
    again, _ = run("again", *short, "--set", "model.grad_checkpointing=true")
    assert (again / "predictions.csv").read_bytes() == (plain / "predictions.csv").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("model.tune=attn",), "no attention layers, so model.tune=attn would train nothing"),
        (("model.tune=everything",), "'full', 'head', 'attn', 'ffn', 'norm' or 'lora'"),
        (("model.name=timm:dla46_c", "model.grad_checkpointing=true"), "no gradient checkpointing"),
        (("optim.layer_decay=1.5",), "optim.layer_decay"),
    ],
)
def test_what_a_network_cannot_be_tuned_as_is_an_error_before_anything_is_written(
    usvit, small_phantom, tmp_path, settings, said
):
    pairs = [word for setting in settings for word in ("--set", setting)]
    answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / "run", *TINY, *pairs)
    assert answer.code == 2 and said in answer.err and "Traceback" not in answer.err
    assert not (tmp_path / "run").exists()
