"""Candidates of a map of probabilities, what they find, and the free-response curve, on cases worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from usvit.metrics.lesion_detection import MOST_CANDIDATES, candidates, detect, found_above, froc, sensitivity_at


def square(row, column, side, value=1.0, shape=(40, 40)):
    found = np.zeros(shape, np.float32)
    found[row : row + side, column : column + side] = value
    return found


def test_two_lesions_a_false_candidate_and_a_missed_lesion():
    true = (square(2, 2, 6) + square(20, 20, 6) + square(32, 2, 4)) > 0
    seen = square(3, 3, 6, 0.8) + square(20, 21, 6, 0.6) + square(2, 30, 5, 0.7)
    found = detect(seen, true)
    assert found.lesions == [(36, 0.8), (36, 0.6), (16, 0.0)] and found.false == [(25, 0.7)]


def test_one_candidate_over_two_lesions_finds_one():
    true = (square(5, 5, 5) + square(5, 12, 5)) > 0
    found = detect(square(5, 5, 12, 0.9), true)
    assert sorted(confidence for _, confidence in found.lesions) == [0.0, 0.9] and found.false == []


def test_a_speck_in_a_lesion_is_a_false_candidate():
    found = detect(square(10, 10, 2, 0.9), square(5, 5, 20) > 0)
    assert found.lesions == [(400, 0.0)] and found.false == [(4, 0.9)]  # IoU 0.01


def test_candidates_are_the_highest_peaks_and_low_ones_are_none():
    peaks = sum(square(7 * k, 3, 3, 0.9 - 0.1 * k, (60, 20)) for k in range(8))
    assert [peak for _, peak in candidates(peaks)] == pytest.approx([0.9, 0.8, 0.7, 0.6, 0.5])
    assert len(candidates(peaks)) == MOST_CANDIDATES and candidates(square(0, 0, 5, 0.09)) == []
    assert detect(square(0, 0, 5, 0), square(0, 0, 5, 0) > 0).false == []


def test_the_curve_counts_lesions_and_false_candidates_above_each_threshold():
    table = pd.DataFrame(
        {
            "is_lesion": [True, True, True, False, False],
            "confidence": [0.9, 0.5, 0.0, 0.7, 0.3],
            "group_id": list("abcad"),
        }
    )
    curve = froc(table, n_images=4)
    assert curve.threshold.tolist() == [0.9, 0.7, 0.5, 0.3]
    assert curve.false_per_image.tolist() == [0, 0.25, 0.25, 0.5]
    assert curve.sensitivity.tolist() == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3])
    assert sensitivity_at(table, curve, 0.125).value == pytest.approx(1 / 3)
    assert sensitivity_at(table, curve, 0.25).value == pytest.approx(2 / 3)
    assert found_above(table, 0.95).value == 0 and found_above(table[~table.is_lesion], 0.5).value is None
