"""``usvit cv --weights RUN`` from the command line: fold k goes on where fold k ended."""

import json

import pytest
from safetensors.torch import load_file

from tests.conftest import TINY
from usvit.files import sha256_of_file


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_a_run_goes_on_from_a_run_fold_by_fold_and_not_over_other_folds(usvit, tmp_path, small_phantom, tiny_run):
    cv = ("cv", "--dataset", "phantom", "--data-root", small_phantom, *TINY)
    first, second = tiny_run, tmp_path / "second"
    frozen = ("--set", "optim.lr=1e-9")  # so that the old weights are still to be seen
    answer = usvit(*cv, "--out", second, "--weights", first, *frozen)
    assert answer.code == 0, answer.err
    assert "Weights tiny-run: " in answer.err and "(the head's)" in answer.err
    files = [first / f"fold-{fold}" / "model.safetensors" for fold in range(3)]
    for fold, file in enumerate(files):
        old, new = load_file(file), load_file(second / f"fold-{fold}" / "model.safetensors")
        key = "layer4.0.conv1.weight"
        assert (new[key] - old[key]).abs().max() < 1e-4
        metadata = json.loads((second / f"fold-{fold}" / "model.json").read_text())
        assert metadata["upstream"]["sha256"] == sha256_of_file(file)
        before = json.loads((first / f"fold-{fold}" / "model.json").read_text())["seen_sha256"]
        assert metadata["seen_sha256"]["upstream"] == sorted({*before["train"], *before["val"]})
    record = json.loads((second / "run.json").read_text())["model"]["weights"]
    assert record["folds"] == [sha256_of_file(file) for file in files]
    assert record["loaded"]["tensors"] > 10 and record["loaded"]["new"] == ["fc.weight", "fc.bias"]

    answer = usvit(*cv, "--out", tmp_path / "third", "--weights", first, "--seed", 5)
    assert answer.code == 2
    assert "has seen images of" in answer.err and f"--folds {first}/folds.csv" in answer.err
    answer = usvit(*cv, "--out", tmp_path / "third", "--weights", first, "--set", "split.folds=2")
    assert answer.code == 2
    assert "is a run of 3 folds, and this run has 2" in answer.err
    assert not (tmp_path / "third").exists()
