"""``benchmarks.coverage``: what its cells count, and that every row has a title of its own."""

import numpy as np
import pytest

from benchmarks.coverage.__main__ import TABLES
from benchmarks.coverage.harness import Interval, Spread, Table, cell, interval, rejects
from usvit.estimate import Estimate

NONE = Interval(np.nan, np.nan, 0.5)


def test_a_cell_has_the_coverage_the_mean_length_and_the_studies_without_an_interval():
    held, missed = Interval(0.25, 0.75, 0.5), Interval(0.75, 1.0, 0.5)
    assert cell([held, held, held, missed], 4) == "0.750 (0.438)"
    assert cell([held, NONE, missed], 3) == "0.500 (0.375; 1 without)"
    assert cell([NONE, NONE], 2) == "none"


def test_with_a_true_value_for_each_study_the_mean_truth_has_a_coverage_too():
    found = [Interval(0.0, 0.4, 0.2), Interval(0.5, 1.0, 0.8)]
    assert cell(found, 2) == "0.500: 1.000, 0.500 (0.450)"


def test_other_cells_are_means_and_say_how_many_studies_lack_them():
    assert cell([True, False, False, False], 4) == "0.250"
    assert cell([1.0, 0.0], 5) == "0.500 [3 without]"
    assert cell([Spread(1.0), Spread(3.0)], 2) == "2.000 (1.000; 1.100 to 2.900)"


def test_values_without_an_interval_or_p_neither_hold_nor_reject():
    assert np.isnan(interval(Estimate(value=None, ci95=None, reason="none"), 0.3).low)
    assert not interval(None, 0.3).holds and interval(Estimate(value=0.3, ci95=(0.2, 0.4)), 0.3).holds
    assert not rejects(Estimate(value=0.3, ci95=None)) and rejects(Estimate(value=0.3, ci95=None, p=0.01))


@pytest.mark.parametrize("name", TABLES)
def test_the_rows_of_a_table_have_different_titles(name):
    titles = [str(row) for row in TABLES[name].rows]
    assert len(set(titles)) == len(titles) and all(titles)


def test_a_table_numbers_its_studies_from_the_seed_and_fills_columns_that_do_not_apply(capsys):
    seen = []

    def study(row, k):
        seen.append((row, k))
        return {"both": 1.0} | ({"first only": 0.5} if row == "a" else {})

    Table(("a", "b"), study).print(2, 7, [0, 1])
    assert seen == [("a", 7), ("a", 8), ("b", 7), ("b", 8)]
    assert capsys.readouterr().out.splitlines()[2:] == ["| a | 1.000 | 0.500 |", "| b | 1.000 | – |"]
