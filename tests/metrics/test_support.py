"""Groups that count: those of the rarer class, and fewer where one patient holds most images."""

import numpy as np
import pytest

from usvit.metrics.bootstrap import figure_values
from usvit.metrics.clustered import clustered_auc, clustered_difference
from usvit.metrics.proportions import clustered_share
from usvit.metrics.support import (
    Support,
    effective_groups,
    few_groups_sentences,
    rarest,
    steadied_design_effect,
    support_of,
)


def test_the_effective_number_is_the_number_where_groups_are_of_one_size_and_near_one_where_one_has_all():
    assert effective_groups([3] * 40) == pytest.approx(40)
    assert effective_groups([1000, *[1] * 9]) == pytest.approx(1009**2 / (1e6 + 9))
    assert effective_groups([]) == 0 and effective_groups([0, 5]) == 1


def test_the_variance_of_a_mean_is_that_of_so_many_equal_groups():
    sizes = np.array([30, 1, 1, 5, 9])
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200_000, len(sizes)))  # images of one group are equal
    means = values @ sizes / sizes.sum()
    assert 1 / means.var() == pytest.approx(effective_groups(sizes), rel=0.02)


def test_the_rarer_class_decides():
    label = np.array([0] * 90 + [1] * 10)
    found = rarest(label, np.arange(100), {0: "negative images", 1: "positive images"})
    assert (found.n_groups, found.of) == (10, "positive images")
    assert found.warning == (
        "from 10 groups with positive images only: below 50, intervals cover the true value less often than 95 %"
    )


def test_a_patient_with_most_images_is_told_of():
    code = np.concatenate([np.zeros(500, int), np.arange(1, 80)])
    said = support_of(code).warning
    assert said is not None and "80 groups, which count as 1" in said
    assert Support(80, 80).warning is None


def test_values_of_many_groups_with_few_positives_carry_the_warning():
    rng = np.random.default_rng(1)
    positive = np.arange(400) < 12
    a, b = (positive + rng.normal(size=400) for _ in range(2))
    group = np.arange(400)
    assert "12 groups with positive images" in clustered_auc(positive, a, group).warning
    assert "12 groups" in clustered_difference(positive, a, b, group).warning
    prob = 1 / (1 + np.exp(-2 * (a - 1)))
    prob = np.column_stack([1 - prob, prob])
    found = figure_values(positive.astype(int), prob, group, classes=["no", "yes"], ranked=False, n_resamples=50).values
    assert "12 groups" in found["balanced_accuracy"].warning and "12 groups" in found["f1"]["yes"].warning
    assert found["brier"].warning is None and found["accuracy"].warning is None


def test_a_share_of_sixty_patients_of_whom_one_has_most_images_is_warned_of():
    group = np.concatenate([np.zeros(300, int), np.arange(1, 60)])
    assert "count as 1" in clustered_share(np.arange(359) % 3 > 0, group).warning


def test_sentences_name_each_class_with_few_groups_and_leave_out_an_absent_one():
    label = np.array([0] * 60 + [1] * 20)
    (said,) = few_groups_sentences(label, np.arange(80), ["benign", "malignant", "normal"])
    assert "malignant 20." in said and "benign" not in said and "normal" not in said
    assert few_groups_sentences(np.repeat([0, 1], 60), np.arange(120), ["a", "b"]) == []
    few = few_groups_sentences(label[30:], np.arange(50) // 2, ["benign", "malignant"])
    assert len(few) == 2 and few[0].startswith("Intervals are from 25 groups only")


def test_the_design_effect_counts_one_more_group_whose_images_are_alike():
    assert steadied_design_effect(2.0, 18.0, 15) == pytest.approx((15 * 2 + 18) / 16)
    assert steadied_design_effect(20.0, 18.0, 15) == 20.0  # never shorter
    assert steadied_design_effect(1.0, 1.0, 3) == 1.0  # one image a group: nothing to add
    assert steadied_design_effect(1.5, 2.0, 10_000) == pytest.approx(1.5, abs=1e-4)


@pytest.mark.slow
def test_shares_near_1_are_covered_with_thirteen_patients():
    rng, held = np.random.default_rng(5), 0
    for _ in range(600):
        score = np.sqrt(0.8) * rng.normal(size=13)[:, None] + np.sqrt(0.2) * rng.normal(size=(13, 18))
        low, high = clustered_share((score < 1.2816).ravel(), np.repeat(np.arange(13), 18)).ci95
        held += low <= 0.9 <= high
    assert held / 600 > 0.925  # 0.90 without the correction
