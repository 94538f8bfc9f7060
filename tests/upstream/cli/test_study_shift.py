"""``usvit study shift`` as its user meets it."""

import json
import re

import pytest

from tests.upstream.studies.shift.conftest import scanners  # noqa: F401 - a fixture

FAST = ("--model", "timm:test_resnet", "--recipe", "demo", "--device", "cpu", "--hold-out", "--draws", 5)
FAST += ("--set", "model.image_size=32", "--set", "train.steps=2")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("busi",), "only one is named"),
        (("a=phantom", "b=phantom", "--sizes", "ten"), "--sizes ten"),
        (("a=phantom", "b=phantom", "--sizes", "1"), "a recalibration on 1 patients"),
        (("a=phantom", "b=phantom", "--draws", "0"), "--draws"),
        (("a=phantom", "b=phantom", "--rule", "best"), "Unknown operating point 'best'"),
        (("a=phantom", "b=phantom", "--prevalence", "5"), "--prevalence 5"),
        (("a=phantom", "b=phantom", "--model", "vit_b33"), "Nearest: vit_b32"),
        (("a=phantom", "b=phantom", "--set", "train.stepps=3"), "Nearest: train.steps"),
        (("a=phantom", "b=phantom", "--set", "data.manifest=x"), "name the manifest as one of the sets"),
        (("phantom", "phantm"), "'phantm' is not a set"),
    ],
)
def test_a_users_mistake_is_one_paragraph_and_exit_2(usvit, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    answer = usvit("study", "shift", *arguments)
    assert answer.code == 2 and says.lower() in answer.err.lower() and "Traceback" not in answer.err
    assert not (tmp_path / "studies").exists()


@pytest.mark.slow
def test_it_prints_both_sides_and_the_page(usvit, tmp_path, scanners):  # noqa: F811
    sets = (f"near={scanners / 'near'}", f"far={scanners / 'far'}")
    answer = usvit("study", "shift", *sets, *FAST, "--sizes", "10,500", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert f"page: {tmp_path / 'out' / 'shift.html'}" in answer.out
    assert re.search(r"^near +96 ", answer.out, re.M) and re.search(r"^ +10  platt ", answer.out, re.M)
    for word in ("Inside", "Outside", "Paired change", "Not with 500 patients"):
        assert word in answer.out
    content = json.loads(
        usvit("study", "shift", *sets, *FAST, "--sizes", "10,500", "--out", tmp_path / "out", "--json").out
    )
    assert content["kind"] == "train" and len(content["rows"]) == 2


def test_a_file_or_name_after_study_is_still_a_study(usvit):
    implied, named = usvit("study", "shifft"), usvit("study", "run", "shifft")
    assert "Unknown study 'shifft'" in implied.err and implied.err == named.err
