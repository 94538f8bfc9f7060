"""The report of an evaluation, through the command line: a table of another tool, and an external test."""

import json

import numpy as np
import openpyxl
import pandas as pd
import pytest

from tests.scoring.make_scores import make_scores

COLUMNS = ("--label", "y", "--prob", "score", "--positive", "1", "--image", "file", "--patient", "who")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A table of another tool; one of its images is called like a formula."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([0, 1], 30))
    score = np.clip(rng.normal(0.35 + 0.3 * y, 0.2), 0.01, 0.99)
    names = ["=1+1", *(f"im{i}.png" for i in range(1, 60))]
    path = tmp_path_factory.mktemp("table") / "other.csv"
    pd.DataFrame({"file": names, "y": y, "score": score, "who": np.arange(60) // 2}).to_csv(path, index=False)
    return path


@pytest.mark.slow
def test_the_evaluation_of_a_table_gets_the_report_of_a_run(usvit, table, tmp_path):
    out = tmp_path / "out"
    answer = usvit("evaluate", table, *COLUMNS, "--out", out)
    assert answer.code == 0, answer.err
    page, text = (out / "report.html").read_text(), (out / "report.md").read_text()
    for shown in (page, text):
        assert "Predictions of the table other.csv: 60 images in 30 groups" in shown
        assert not [word for word in ("was trained from", "hold-out (test) split", "Training time") if word in shown]
    metrics = json.loads((out / "metrics.json").read_text())
    book = openpyxl.load_workbook(out / "report.xlsx")
    figures = {row[0]: row[1:] for row in book["figures"].values}
    accuracy = metrics["headline"]["accuracy"]
    assert figures["headline.accuracy"][:3] == pytest.approx((accuracy["value"], *accuracy["ci95"]))
    assert len([*book["predictions"].values]) == 61
    cells = [cell for sheet in book for row in sheet.iter_rows() for cell in row]
    assert "=1+1" in [cell.value for cell in cells]
    assert not [cell.coordinate for cell in cells if cell.data_type == "f"]
    before = [(out / name).read_bytes() for name in ("report.html", "report.xlsx")]
    answer = usvit("report", out, "--figures", "svg")
    assert answer.code == 0, answer.err
    assert [(out / name).read_bytes() for name in ("report.html", "report.xlsx")] == before
    assert (out / "figures" / "roc.svg").is_file()
    assert usvit("evaluate", out).code == 0
    assert usvit("evaluate", table, *COLUMNS, "--out", out).code == 0  # an earlier evaluation is replaced


@pytest.mark.slow
def test_an_evaluation_is_no_run_with_networks(usvit, table, small_phantom, tmp_path):
    out = tmp_path / "out"
    assert usvit("evaluate", table, *COLUMNS, "--out", out).code == 0
    answer = usvit("explain", out)
    assert (answer.code, "holds predictions and no network" in answer.err) == (2, True)
    answer = usvit("cv", "--data-root", small_phantom, "--out", out)
    assert (answer.code, "holds an evaluation of usvit evaluate" in answer.err) == (2, True)
    answer = usvit("report", table)
    assert (answer.code, "usvit evaluate" in answer.err) == (2, True)


@pytest.mark.slow
def test_an_external_test_gets_a_page_for_a_reviewer(usvit, tmp_path):
    truth = make_scores(tmp_path / "scores", key=tmp_path / "key", n_patients=12, failed=2)
    truth.to_csv(tmp_path / "labels.csv", index=False)
    out = tmp_path / "out"
    command = ("--labels", tmp_path / "labels.csv", "--join", "item_id", "--out", out)
    answer = usvit("evaluate", tmp_path / "scores", *command)
    assert answer.code == 0, answer.err
    page, text = (out / "report.html").read_text(), (out / "report.md").read_text()
    for shown in (page, text):
        assert "External test of a frozen model" in shown
        assert "There was no external test" not in shown
        assert "abelled files that could not be scored" in shown
        assert str(tmp_path) not in shown
    answer = usvit("report", tmp_path / "scores")
    assert (answer.code, "--labels FILE" in answer.err) == (2, True)
