"""What results show of themselves, in Python and in a notebook."""

from pathlib import Path

import pytest

from tests.reports.conftest import fake_run
from usvit.experiments import RunResult
from usvit.records import MetricsRecord, load_record, load_run_record
from usvit.records.base import Record
from usvit.representation import Summarised


class Cake(Summarised):
    def __init__(self, **facts):
        self.facts = facts

    def _facts(self):
        return self.facts


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"pieces": 8, "weight": 1.23456, "eaten": False}, "Cake(pieces=8, weight=1.235, eaten=False)"),
        ({"path": Path("a/b"), "of": ["flour", "eggs"]}, "Cake(path='a/b', of=['flour', 'eggs'])"),
        ({"counts": {"egg": 3}, "nothing": None, "empty": []}, "Cake(counts={egg: 3})"),
        ({"too_many": list(range(6)), "deep": [[1, 2]]}, "Cake(deep=[[1, 2]])"),
        ({"long": "x" * 1000}, f"Cake(long='{'x' * 60}...')"),
        ({"inner": Cake(size=1)}, "Cake(inner=Cake(size=1))"),
        ({"inner": Cake(**{f"layer{n}": n for n in range(99)})}, "Cake(inner=Cake(...))"),
    ],
)
def test_a_few_facts_are_shown_and_no_large_content(facts, shown):
    assert repr(Cake(**facts)) == shown


def test_a_notebook_shows_a_table_in_which_names_are_no_markup():
    page = Cake(name="<script>alert(1)</script>", n=2)._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page
    assert page.count("<tr>") == 2


def test_no_record_shows_more_than_a_few_lines():
    class Long(Record):
        rows: list[int]
        name: str

    assert repr(Long(rows=list(range(100_000)), name="n")) == "Long(name='n')"


def test_a_run_shows_its_headline(tmp_path):
    folder = fake_run(tmp_path / "run")
    metrics = load_record(folder / "metrics.json", MetricsRecord)
    run = RunResult(folder, metrics, load_run_record(folder))
    assert len(repr(run)) < 500
    assert "n_images=" in repr(run) and "auc=Estimate(value=" in repr(run)
