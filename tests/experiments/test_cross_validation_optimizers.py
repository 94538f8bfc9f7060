"""Muon and schedule-free AdamW by the real command: they resume, and impossible settings fail before any output."""

import pytest

from tests.conftest import TINY

VIT = ("--model", "timm:test_vit", "--set", "split.folds=2", "--set", "optim.lr=0.003")
CONSTANT = ("--set", "optim.schedule=constant")
pytestmark = pytest.mark.slow


@pytest.mark.usefixtures("without_report")
@pytest.mark.parametrize(
    "optim", [("--set", "optim.name=nadamuon"), ("--set", "optim.name=schedule_free_adamw", *CONSTANT)]
)
def test_a_training_stopped_in_the_middle_resumes_to_the_same_bytes(usvit, small_phantom, tmp_path, monkeypatch, optim):
    def run(name):
        options = (*TINY, *VIT, *optim, "--set", "train.checkpoint_seconds=0")
        answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / name, *options)
        assert answer.code == 0, answer.err
        return tmp_path / name

    whole = run("whole")
    from usvit.training import checkpoint

    saved, real = [], checkpoint.save_checkpoint

    def save_then_stop(path, state):
        real(path, state)
        saved.append(state["step"])
        if len(saved) == 8:  # in the middle of the second fold
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises((AssertionError, KeyboardInterrupt)):
        patch.setattr(checkpoint, "save_checkpoint", save_then_stop)
        run("cut")
    cut = run("cut")
    for name in ("predictions.csv", "fold-0/model.safetensors", "fold-1/model.safetensors"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("optim.name=muon", "model.tune=head"), "optim.name=muon trains hidden matrices"),
        (("optim.name=muon", "model.name=timm:test_resnet"), "optim.name=muon trains hidden matrices"),
        (("optim.name=schedule_free_adamw",), "set optim.schedule=constant"),
        (
            (
                "optim.name=schedule_free_adamw",
                "optim.schedule=constant",
                "model.name=timm:test_resnet",
                "train.batch_norm=as_is",
            ),
            "running statistics of batch normalisation",
        ),
    ],
)
def test_what_an_optimiser_cannot_train_is_an_error_before_anything_is_written(
    usvit, small_phantom, tmp_path, settings, said
):
    pairs = [word for setting in settings for word in ("--set", setting)]
    answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / "run", *TINY, *VIT, *pairs)
    assert answer.code == 2 and said in " ".join(answer.err.split()) and "Traceback" not in answer.err
    assert not (tmp_path / "run").exists()
