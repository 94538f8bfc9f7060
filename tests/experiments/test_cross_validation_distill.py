"""Cross-validation with a teacher: fold k of a run teaches fold k, and no teacher has seen the test images."""

import json

import pytest

from usvit.data.splits import load_metadata

STUDENT = ("--model", "deit_ti_distilled", "--weights", "scratch", "--set", "model.image_size=32", "--device", "cpu")
STEPS = ("--set", "train.batch_size=8", "--set", "train.steps=2", "--set", "split.folds=3", "--precision", "fp32")


def settings(run, kind="token"):
    return ("--set", f"distill.weights={run}", "--set", f"distill.kind={kind}")


@pytest.mark.usefixtures("without_report")
def test_fold_k_learns_from_fold_k_and_both_records_say_so(usvit, tiny_run, small_phantom, tmp_path):
    out = tmp_path / "run"
    answer = usvit("cv", "--data-root", small_phantom, "--out", out, *STUDENT, *STEPS, *settings(tiny_run))
    assert answer.code == 0, answer.err
    teachers = [load_metadata(tiny_run / f"fold-{fold}" / "model.safetensors") for fold in range(3)]
    hashes = [teacher.weights_sha256 for teacher in teachers]
    told = json.loads((out / "run.json").read_text())["learnt_from"]["networks"]
    assert [one["weights_sha256"] for one in told] == hashes and {one["role"] for one in told} == {"teacher"}
    for fold, teacher in enumerate(teachers):
        metadata = load_metadata(out / f"fold-{fold}" / "model.safetensors")
        assert [one.weights_sha256 for one in metadata.learnt_from] == [hashes[fold]]
        assert set(metadata.seen_sha256.upstream) == {*teacher.seen_sha256.train, *teacher.seen_sha256.val}


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--seed", "1"), "The network of distill.weights"),
        (("--set", "split.folds=2"), "is a run of 3 folds, and this run has 2"),
        (("--set", "data.classes=[benign,malignant]"), "Choose a run with the same data.classes"),
        (("--model", "vit_ti16"), "set distill.kind=hard, which needs none"),
        (("--set", "distill.kind=none"), "set both, or neither"),
        (("--set", "model.tune=head"), "set model.tune to full"),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(usvit, tiny_run, small_phantom, tmp_path, more, said):
    out = tmp_path / "run"
    arguments = (*STUDENT, *STEPS, *settings(tiny_run), *more)
    answer = usvit("cv", "--data-root", small_phantom, "--out", out, *arguments)
    assert answer.code == 2 and said in answer.err and not out.exists()
