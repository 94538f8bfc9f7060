"""The page of a test-retest, of the records of tests/records/fixtures."""

from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from usvit.evaluation import ScorePairs
from usvit.records import RepeatabilityRecord, load_record
from usvit.reports import write_repeatability_page

FIXTURES = Path(__file__).parents[1] / "records" / "fixtures"
PAIRS = ScorePairs(np.linspace(0, 1, 20), np.linspace(0.1, 0.9, 20))


class Words(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_data(self, data):
        self.found += data.split()


@pytest.fixture
def page(tmp_path):
    def make(file, **changed):
        record = load_record(FIXTURES / file, RepeatabilityRecord).model_copy(update=changed)
        path = tmp_path / "repeatability.html"
        write_repeatability_page(path, record, PAIRS)
        html = path.read_text()
        reader = Words()
        reader.feed(html)
        return record, html, " ".join(reader.found)

    return make


def shown(value):
    return f"{value.value:.3f} {value.ci95[0]:.3f} to {value.ci95[1]:.3f}"


@pytest.mark.slow
def test_repeats_are_shown_with_their_figures_and_intervals(page):
    record, html, text = page("repeatability-1.0.json")
    scale = record.repeats.scales.logit
    assert shown(scale.icc) in text and shown(scale.repeatability_coefficient) in text
    for flip in record.repeats.flips:
        assert f"{flip.rule.replace('>=', '≥')} {flip.n_pairs} {flip.n_flips} {shown(flip.rate)}" in text
    assert "A warning." in text and "ICC(1,1)" in text and "not recorded" not in text
    assert "<script" not in html and html.count('class="plot"') == 1


@pytest.mark.slow
def test_changes_are_shown_with_the_worst_and_those_that_were_not_possible(page):
    record, html, text = page("repeatability-changes-1.0.json")
    assert shown(record.changes[0].scales.probability.bias) in text
    assert record.most_flips["most probable class"] in text
    assert "calipers on, 1 pair: 40 images that do not allow the change" in text
    assert "not measured: no image allows the change" in text and "not recorded" not in text
    assert html.count('class="plot"') == 2


@pytest.mark.slow
def test_names_of_others_are_escaped_and_the_bytes_are_the_same(page):
    first = page("repeatability-1.0.json", name="<b>run</b>")[1]
    assert "<b>run</b>" not in first and "&lt;b&gt;run" in first
    assert page("repeatability-1.0.json", name="<b>run</b>")[1] == first
