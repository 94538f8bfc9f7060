"""Batch normalisation in fine-tuning by the real command."""

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import TINY

LAST = ("--set", "train.early_stopping.keep=last", "--set", "split.folds=2", "--set", "train.batch_size=32")


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_recomputed_statistics_are_the_only_difference_and_come_from_the_training_images(
    usvit, small_phantom, tmp_path
):
    found = {}
    for how in ("as_is", "recomputed"):
        options = (*TINY, *LAST, "--set", f"train.batch_norm={how}")
        answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / how, *options)
        assert answer.code == 0, answer.err
        found[how] = load_file(tmp_path / how / "fold-0/model.safetensors")
    differ = {name for name, value in found["as_is"].items() if not torch.equal(value, found["recomputed"][name])}
    assert differ == {
        name for name in found["as_is"] if name.endswith(("running_mean", "running_var", "batches_tracked"))
    }
    assert found["recomputed"]["bn1.num_batches_tracked"] == 1  # all training images of a fold are one batch


@pytest.mark.parametrize(
    ("command", "setting", "said"),
    [
        ("cv", "frozen", "keeps the statistics of the initial weights, but model.weights is scratch"),
        ("pretrain", "recomputed", "is for 'usvit cv' and 'usvit train'"),
        ("cv", "fixed", "train.batch_norm"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(usvit, tmp_path, command, setting, said):
    out = tmp_path / "run"
    answer = usvit(command, "--out", out, "--weights", "scratch", "--set", f"train.batch_norm={setting}")
    assert answer.code == 2 and said in " ".join(answer.err.split()) and "Traceback" not in answer.err
    assert not out.exists()
