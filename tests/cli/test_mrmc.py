"""``usvit mrmc`` as a user runs it."""

import json

import pandas as pd
import pytest

from tests.evaluation.test_reader_answers import answers, readings, with_the_rest


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "my answers.csv"
    model = answers(60, "AI", ("alone",)).query("reader == 'A'").assign(reader="AI")
    pd.concat([answers(60, "ABC"), model]).to_csv(path, index=False)
    return path


def test_a_study_is_analysed_and_its_files_say_the_same(usvit, tmp_path, table):
    said = usvit("mrmc", table, "--model", "AI", "--positive-from", 0.5, "--margin", 0.05, "--out", tmp_path / "out")
    assert said.code == 0 and "3 readers, beside the model AI: 60 cases of 30 patients, 30 positive" in said.out
    record = json.loads((tmp_path / "out" / "mrmc.json").read_text())
    value = record["figures"][0]["differences"][0]["mean"][0]["estimate"]["value"]
    for name in ("mrmc.md", "mrmc.html", "mrmc.tex"):
        text = (tmp_path / "out" / name).read_text()
        assert f"{abs(value):.3f}" in text and "aided minus unaided" in text, name
    shown = usvit("mrmc", table, "--model", "AI", "--json", "--out", tmp_path / "again")
    assert json.loads(shown.out)["model"] == "AI"


def test_mistakes_write_nothing(usvit, tmp_path, table):
    said = usvit("mrmc", table, "--out", tmp_path / "out")
    assert (said.code, (tmp_path / "out").exists()) == (2, False)
    assert "reader AI in unaided has no rating of 60 cases" in said.err and "Traceback" not in said.err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    said = usvit("mrmc", table, "--model", "AI", "--out", tmp_path / "full")
    assert said.code == 2 and [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.txt"]


def test_a_missing_interval_says_why(usvit, tmp_path):
    answers(8, "A").to_csv(tmp_path / "a.csv", index=False)
    said = usvit("mrmc", tmp_path / "a.csv", "--out", tmp_path / "out")
    assert "one reader tells nothing about other readers" in said.out


def test_readings_of_usvit_review_have_times_courses_repeats_and_a_checklist(usvit, tmp_path):
    with_the_rest(readings()).to_csv(tmp_path / "readings.csv", index=False)
    said = usvit("mrmc", tmp_path / "readings.csv", "--out", tmp_path / "out")
    assert said.code == 0
    assert "Left out: 6 readings of training cases and 1 reading that were not finished" in said.out
    record = json.loads((tmp_path / "out" / "mrmc.json").read_text())
    ratio = next(one for one in record["times"]["changes"] if one["what"] == "ratio")["mean"][0]["estimate"]["value"]
    page = (tmp_path / "out" / "mrmc.html").read_text()
    for text in (page, (tmp_path / "out" / "mrmc.md").read_text(), (tmp_path / "out" / "mrmc.tex").read_text()):
        assert f"{ratio:.3f}" in text and "mean over readers" in text and "end less start" in text
    assert page.count("<svg") >= 2 and "DECIDE-AI 14b" in page and "for the authors to state" in page
