"""Levels of a column against each other, corrected after Holm."""

import numpy as np
import pytest

from usvit.evaluation.subgroup_differences import correct_after_holm, level_differences
from usvit.metrics.clustered import clustered_auc
from usvit.metrics.intervals import Z
from usvit.metrics.paired_tests import holm


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
    assert [(one["level"], one["against"]) for one in found] == [(name, "all others") for name in "abc"]
    own = level == "a"
    each = [clustered_auc(label[at] == 1, prob[at, 1], group[at]) for at in (own, ~own)]
    assert found[0]["auc"]["value"] == pytest.approx(each[0]["value"] - each[1]["value"])
    # Patients of one level only: the variances add up. The logit interval's slope at the value gives each back.
    spread = [
        (np.log(hi / (1 - hi)) - np.log(lo / (1 - lo))) / (2 * Z) * v["value"] * (1 - v["value"])
        for v, (lo, hi) in ((v, v["ci95"]) for v in each if "logit" in v["method"])
    ]
    assert len(spread) == 2
    low, high = found[0]["auc"]["ci95"]
    assert (high - low) / 2 == pytest.approx(Z * np.hypot(*spread), rel=0.06)  # Student's t is a little wider
    right = prob.argmax(1) == label
    assert found[0]["accuracy"]["value"] == pytest.approx(right[own].mean() - right[~own].mean())


def test_two_levels_are_compared_once_and_one_level_not_at_all():
    label, prob, group, level = study()
    two = np.where(level == "a", "a", "b")
    (one,) = level_differences(label, prob, group, two, positive=1)
    assert (one["level"], one["against"]) == ("a", "b")
    assert level_differences(label, prob, group, np.full(len(label), "a"), positive=1) == []


def test_a_level_where_the_model_fails_is_found_and_equal_ones_are_not():
    found = level_differences(*study(3, 600, (1.5, 1.5, 0.0)), positive=1)
    assert found[2]["auc"]["p"] < 0.001 and found[2]["auc"]["value"] < -0.2
    p = [one["auc"]["p"] for seed in range(60) for one in level_differences(*study(seed), positive=1)]
    assert np.mean(np.array(p) < 0.05) < 0.10


def test_patients_on_both_sides_are_taken_into_account():
    label, prob, group, _ = study(4, 400)
    side = np.tile(["left", "right"], 200)  # each patient has an image of either
    twice = np.repeat(prob[::2], 2, axis=0)  # and both score alike: no difference, and it is certain
    (one,) = level_differences(label, twice, group, side, positive=1)
    assert one["auc"]["value"] == 0 and one["auc"]["ci95"] is None and one["auc"]["reason"] == "the variance is 0"


def test_a_side_without_a_class_or_with_one_patient_says_why():
    label, prob, group, level = study()
    level = np.where(label == 1, "positive", "negative").astype(object)
    (one,) = level_differences(label, prob, group, level, positive=1)
    assert one["auc"]["value"] is None and "no positive" in one["auc"]["reason"]
    single = np.where(group == 0, "one", "rest")
    (one,) = level_differences(label, prob, group, single, positive=1)
    assert one["accuracy"]["ci95"] is None and one["accuracy"]["reason"] == "one group alone on one side"


def test_holm_reaches_every_p_of_every_table():
    tables = {k: level_differences(*study(k), positive=1) for k in range(2)}
    assert correct_after_holm(tables) == 12
    every = [one[name] for entries in tables.values() for one in entries for name in ("auc", "accuracy")]
    expected = holm(dict(enumerate(value["p"] for value in every)))
    assert [value["p_holm"] for value in every] == list(expected.values())
