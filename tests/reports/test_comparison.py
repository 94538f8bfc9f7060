"""The comparison as page, Markdown and LaTeX: the same numbers, and nobody's text becomes markup."""

import re
import shutil
from html.parser import HTMLParser

import pandas as pd
import pytest

from tests.cli.runs import make_run
from tests.evaluation.conftest import CLASSES, make_study, with_inner_rows
from usvit.evaluation import Predictions, compare_predictions
from usvit.reports.comparison import compare

pytestmark = pytest.mark.slow

HOSTILE = "<img src=x onerror=alert(1)>|$\\&_{{7*7}}"


class Page(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.data, self.ids = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for key, value in attrs if key == "id"]

    def handle_data(self, data):
        self.data.append(data)


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    runs = [make_run(folder / name, seed=seed, skill=skill) for name, seed, skill in (("a_1", 1, 2.5), ("b%2", 2, 0.3))]
    record, out = compare(*runs, out=folder / "out")
    record = record.content()
    return record, out


def test_page_markdown_and_latex_hold_the_same_numbers(compared):
    record, out = compared
    area = record["pairs"][0]["headline"]
    number = f"{area['value']:.3f}"
    for name, between in (("compare.html", " <span"), ("compare.md", " ("), ("compare.tex", " (")):
        text = (out / name).read_text()
        assert number in text, name
        for run in record["runs"]:
            assert f"{run['auc']['value']:.3f}{between}" in text, name


def test_the_page_is_self_contained_and_its_ids_are_unique(compared):
    _, out = compared
    text = (out / "compare.html").read_text()
    page = Page(text)
    assert len(page.ids) == len(set(page.ids))
    assert not [tag for tag, _ in page.tags if tag in ("script", "link", "img", "iframe")]
    assert not re.search(r'(?:src|href)="(?!#)', text)
    for _, attrs in page.tags:
        if attrs.get("href", "").startswith("#"):
            assert attrs["href"][1:] in page.ids
    assert len(text) < 300_000


def test_markdown_is_one_table_row_a_run_and_latex_is_balanced(compared):
    _, out = compared
    before = (out / "compare.md").read_text().split("## Differences")[0]
    rows = [line for line in before.splitlines() if line.startswith("| a")]
    assert len(rows) == 2  # the AUCs and the decisions of the run
    assert rows[0].startswith("| a\\_1 |")
    tex = (out / "compare.tex").read_text()
    assert tex.count(r"\begin{") == tex.count(r"\end{") >= 8  # a table each of AUCs, decisions, and differences of both
    assert r"a\_1" in tex
    assert r"b\%2" in tex
    assert "NaN" not in tex


def test_text_of_users_is_never_markup(tmp_path):
    first = make_run(tmp_path / "first", seed=1)
    for number in (1, 2):
        table = pd.read_csv(first / "predictions.csv", dtype=str)
        table["label"] = table["label"].replace("benign", HOSTILE)
        renamed = {f"{kind}_benign": f"{kind}_{HOSTILE}" for kind in ("prob", "logit")}
        table.rename(columns=renamed).to_csv(tmp_path / f"<b>x{number}.csv", index=False)
    shutil.rmtree(first)
    files = [tmp_path / f"<b>x{number}.csv" for number in (1, 2)]
    _, out = compare(*files, positive=HOSTILE, out=tmp_path / "out")
    page = Page((out / "compare.html").read_text())
    assert not [tag for tag, _ in page.tags if tag in ("img", "b")]
    assert any(HOSTILE in text for text in page.data)
    assert "{{7*7}}" in (out / "compare.html").read_text()
    markdown = (out / "compare.md").read_text()
    assert "<img" not in re.sub(r"\\<", "", markdown)
    tex = (out / "compare.tex").read_text()
    assert r"\$\textbackslash{}\&\_\{\{7{*}7\}\}" in tex


def test_models_that_rank_alike_are_told_apart_by_nothing(tmp_path):
    one = make_run(tmp_path / "one", seed=1)
    shutil.copytree(one, tmp_path / "two")
    record, out = compare(one, tmp_path / "two", out=tmp_path / "out")
    record = record.content()
    pair = record["pairs"][0]
    assert (pair["auc"]["value"], pair["auc"]["p"], pair["accuracy"]["p"]) == (0, 1, 1)
    assert pair["auc"]["ci95"] is None
    assert "0.000" in (out / "compare.md").read_text()


def test_a_run_beside_its_own_table_says_why_the_intervals_differ():
    both = with_inner_rows(make_study(0))
    test = both[both["part"] == "test"]
    opened = [Predictions(name, table, CLASSES, "malignant") for name, table in (("run", both), ("table.csv", test))]
    record = compare_predictions(opened, ["run", "table.csv"])
    own, copy = (one.headline.ci95 for one in record.runs)
    assert copy[1] - copy[0] > own[1] - own[0]
    (said,) = [one for one in record.warnings if "training share" in one]
    assert said.startswith(
        "The AUCs within folds of table.csv have longer intervals than the same scores would have in"
    )
    alike = compare_predictions([opened[1], opened[1]], ["a", "b"])
    assert not [one for one in alike.warnings if "training share" in one]
