"""Levels of a column against each other, corrected after Holm."""

import numpy as np
import pytest

from usvit.evaluation.subgroup_differences import FIGURES, correct_after_holm, level_differences
from usvit.metrics.clustered import clustered_auc
from usvit.metrics.intervals import Z, wilson
from usvit.metrics.paired_tests import holm
from usvit.records import Subgrouping


def study(seed=0, n=300, skill=(1.5, 1.5, 1.5)):
    rng = np.random.default_rng(seed)
    group = np.arange(n) // 2
    level = np.array(["a", "b", "c"], dtype=object)[group % 3]
    label = (rng.random(n // 2 + 1) < 0.4)[group].astype(int)
    gain = np.array(skill)[group % 3]
    odds = gain * (2 * label - 1) + rng.normal(size=n // 2 + 1)[group] + rng.normal(size=n)
    prob = 1 / (1 + np.exp(-odds))
    return label, np.column_stack([1 - prob, prob]), group, level


def test_the_difference_is_that_of_the_parts_own_figures_and_of_their_variances():
    label, prob, group, level = study(0, 900, (0.8, 0.8, 0.8))
    found = level_differences(label, prob, group, level, positive=1)
    assert [(one.level, one.against) for one in found] == [(name, "all others") for name in "abc"]
    own = level == "a"
    each = [clustered_auc(label[at] == 1, prob[at, 1], group[at]) for at in (own, ~own)]
    assert found[0].auc.value == pytest.approx(each[0].value - each[1].value)
    # Patients of one level only: the variances add up. The logit interval's slope at the value gives each back.
    spread = [
        (np.log(hi / (1 - hi)) - np.log(lo / (1 - lo))) / (2 * Z) * v.value * (1 - v.value)
        for v, (lo, hi) in ((v, v.ci95) for v in each if "logit" in v.method)
    ]
    assert len(spread) == 2
    low, high = found[0].auc.ci95
    assert (high - low) / 2 == pytest.approx(Z * np.hypot(*spread), rel=0.06)  # Student's t is a little wider
    right = prob.argmax(1) == label
    assert found[0].accuracy.value == pytest.approx(right[own].mean() - right[~own].mean())


def test_two_levels_are_compared_once_and_one_level_not_at_all():
    label, prob, group, level = study()
    two = np.where(level == "a", "a", "b")
    (one,) = level_differences(label, prob, group, two, positive=1)
    assert (one.level, one.against) == ("a", "b")
    assert level_differences(label, prob, group, np.full(len(label), "a"), positive=1) == []


def test_a_level_where_the_model_fails_is_found_and_equal_ones_are_not():
    found = level_differences(*study(3, 600, (1.5, 1.5, 0.0)), positive=1)
    assert found[2].auc.p < 0.001 and found[2].auc.value < -0.2
    p = [one.auc.p for seed in range(60) for one in level_differences(*study(seed), positive=1)]
    assert np.mean(np.array(p) < 0.05) < 0.10


def test_patients_on_both_sides_are_taken_into_account():
    label, prob, group, _ = study(4, 400)
    side = np.tile(["left", "right"], 200)  # each patient has an image of either
    twice = np.repeat(prob[::2], 2, axis=0)  # and both score alike: no difference, and it is certain
    (one,) = level_differences(label, twice, group, side, positive=1)
    assert one.auc.value == 0 and one.auc.ci95 is None and one.auc.reason == "the variance is 0"


def test_a_side_without_a_class_or_with_one_patient_says_why():
    label, prob, group, level = study()
    level = np.where(label == 1, "positive", "negative").astype(object)
    (one,) = level_differences(label, prob, group, level, positive=1)
    assert one.auc.value is None and "no positive" in one.auc.reason
    single = np.where(group == 0, "one", "rest")
    (one,) = level_differences(label, prob, group, single, positive=1)
    assert one.accuracy.ci95 is None and one.accuracy.p is None
    assert one.accuracy.reason == "too small: 1 group with images in 'one', and at least 5 are needed"


def test_holm_reaches_every_p_of_every_table():
    differences = [level_differences(*study(k), positive=1) for k in range(2)]
    tables = [Subgrouping(by="level", levels=[], differences=one, reason=None) for one in differences]
    corrected = correct_after_holm(tables)
    every = [getattr(one, name) for table in corrected for one in table.differences for name in FIGURES]
    assert len(every) == 24
    expected = holm(dict(enumerate(value.p for value in every)))
    assert [value.p_holm for value in every] == list(expected.values())


def test_with_one_image_a_patient_a_share_has_newcombes_interval():
    """Newcombe (1998), Statistics in Medicine 17:873, table II: 56/70 against 48/80, method 10."""
    hits = np.array([True] * 56 + [False] * 14 + [True] * 48 + [False] * 32)
    label = np.ones(150, dtype=int)
    prob = np.column_stack([~hits, hits]).astype(float)
    level = np.array(["a"] * 70 + ["b"] * 80, dtype=object)
    (one,) = level_differences(label, prob, np.arange(150), level, positive=1)
    assert one.sensitivity.value == pytest.approx(0.2)
    assert one.sensitivity.ci95 == pytest.approx([0.0524, 0.3339], abs=1e-4)
    assert one.specificity.value is None and one.specificity.reason == "no negative images in 'a'"
    assert wilson(56, 70) is not None and one.sensitivity.p < 0.05


def test_the_p_of_a_share_is_where_its_interval_ends_at_0():
    for seed in range(8):
        for one in level_differences(*study(seed), positive=1):
            for name in ("accuracy", "sensitivity", "specificity"):
                low, high = getattr(one, name).ci95
                assert (getattr(one, name).p < 0.05) == (low > 0 or high < 0)


def test_a_level_that_is_all_right_still_has_an_interval():
    label, prob, group, level = study(2, 300, (9.0, 1.0, 1.0))
    first = level_differences(label, prob, group, level, positive=1)[0]
    assert prob[(level == "a") & (label == 1)].argmax(1).all()
    assert first.sensitivity.ci95[0] < first.sensitivity.value < first.sensitivity.ci95[1] <= 1


def test_patients_on_both_sides_make_a_share_more_certain():
    label, prob, group, _ = study(4, 400)
    side = np.tile(["left", "right"], 200).astype(object)
    twice = np.repeat(prob[::2], 2, axis=0)
    (within,) = level_differences(label, twice, group, side, positive=1)
    apart = (group % 2).astype(str).astype(object)
    (between,) = level_differences(label, twice, group, apart, positive=1)
    widths = [np.diff(one.accuracy.ci95)[0] for one in (within, between)]
    assert within.n_groups == within.n_groups_against == 200 and widths[0] < widths[1] / 2


@pytest.mark.parametrize("by", ["patient", "image"])
def test_the_difference_of_0_is_covered(by):
    held, n = dict.fromkeys(FIGURES, 0), 100
    for seed in range(n):
        label, prob, group, _ = study(seed, 400, (1.0, 1.0, 1.0))
        level = (group if by == "patient" else np.arange(400)) // (1 if by == "image" else 3) % 2
        (one,) = level_differences(label, prob, group, level.astype(str).astype(object), positive=1)
        for name in FIGURES:
            held[name] += getattr(one, name).ci95[0] <= 0 <= getattr(one, name).ci95[1]
    assert all(count / n >= 0.9 for count in held.values()), held
