"""The page of ``usvit test``, of a run that was really made."""

import json

import pytest

from tests.upstream.classifier_test.colours import OPTIONS, colour_weights, put, shown
from tests.upstream.reports.test_training_page import words
from usvit.errors import UsvitError
from usvit.upstream.reports.test_page import write_test_report

pytestmark = pytest.mark.slow


@pytest.fixture
def tested(tmp_path, usvit):
    for at, (colour, wnid) in enumerate([(0, "n01440764"), (1, "n01443537"), (1, "n01440764")]):
        put(tmp_path / "images" / wnid / f"{at}.png", *shown(colour))
    weights = [f"vit_ti16={colour_weights(tmp_path / name)}" for name in ("a.safetensors", "b.safetensors")]
    words = ("test", *weights, "--source", "folder", "--path", tmp_path / "images", *OPTIONS)
    answer = usvit(*words, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    return tmp_path / "out"


def test_the_page_has_the_figures_rules_and_disagreement_of_the_record(tested):
    text = words(tested / "report.html")
    for row in json.loads((tested / "test.json").read_text())["results"]:
        low, high = row["top1"]["ci95"]
        assert f"{row['classifier']} folder:train 0.667 {low:.3f} to {high:.3f}" in text
    assert "The most probable of all outputs decides. (folder:train, 1,000 outputs" in text
    assert "n01440764 0.500 (2), n01443537 1.000 (1)" in text
    assert "labels 0.000 0.333 0.333 a.safetensors 0.333 0.000 0.000" in text
    assert "Not known: they are not on record" in text
    assert "Nothing was trained or chosen" in text and "not recorded" not in text


def test_the_page_is_one_file_without_script_and_the_same_bytes_each_time(tested):
    before = (tested / "report.html").read_bytes()
    assert b"<script" not in before
    (tested / "report.html").unlink()
    assert write_test_report(tested).read_bytes() == before


def test_a_damaged_table_is_named(tested):
    (tested / "per_class.csv").write_text("classifier,source\n")
    with pytest.raises(UsvitError, match=r"per_class\.csv"):
        write_test_report(tested)
