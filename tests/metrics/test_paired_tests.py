"""Paired differences of shares."""

import dataclasses
from itertools import combinations

import numpy as np
import pytest

from usvit.metrics.paired_tests import PairedShares, holm, mcnemar, paired_difference


def hits(both, only_a, only_b, neither):
    """Two models' hits from the fourfold table."""
    a = [True] * (both + only_a) + [False] * (only_b + neither)
    b = [True] * both + [False] * only_a + [True] * only_b + [False] * neither
    return np.array(a), np.array(b)


@pytest.mark.parametrize(
    ("table", "expected"),  # Newcombe (1998), Statistics in Medicine 17:2635, table II, method 8
    [((36, 12, 2, 0), (0.0569, 0.3404)), ((97, 1, 1, 1), (-0.0319, 0.0319))],
)
def test_with_one_image_a_group_it_is_newcombes(table, expected):
    a, b = hits(*table)
    found = paired_difference(a, b, np.arange(len(a)), of="images")
    assert found.value == pytest.approx((table[1] - table[2]) / len(a))
    assert found.ci95 == pytest.approx(expected, abs=0.02)
    assert found.p == mcnemar(a, b, np.arange(len(a))).p


def test_it_turns_round_with_the_models():
    a, b = hits(30, 9, 4, 7)
    group = np.arange(50) // 2
    one, other = paired_difference(a, b, group, of="x"), paired_difference(b, a, group, of="x")
    assert other.ci95 == pytest.approx([-one.ci95[1], -one.ci95[0]])
    assert other.p == one.p and "clustered" in one.method


def test_images_repeated_within_patients_do_not_narrow_it():
    a, b = hits(120, 36, 16, 28)
    once = paired_difference(a, b, np.arange(200), of="x")
    five = paired_difference(a.repeat(5), b.repeat(5), np.arange(200).repeat(5), of="x")
    assert five.ci95 == pytest.approx(once.ci95, abs=0.01) and five.p == pytest.approx(once.p, abs=0.01)


def test_models_that_decide_alike_differ_by_nothing_and_none_is_undefined():
    a = np.arange(40) % 4 > 0
    found = paired_difference(a, a, np.arange(40), of="x")
    assert (found.value, found.p) == (0, 1) and found.ci95[0] <= 0 <= found.ci95[1]
    assert paired_difference([], [], [], of="positive images").reason == "there are no positive images"


def test_paired_interval_is_that_of_the_differences_of_groups():
    rng = np.random.default_rng(0)
    group = np.repeat(np.arange(200), 2)
    a = rng.random(400) < 0.8
    b = np.where(rng.random(400) < 0.1, ~a, a)
    found = paired_difference(a, b, group, of="test images")
    per_group = (a.astype(float) - b).reshape(200, 2).mean(1)
    half = 1.96 * per_group.std(ddof=1) / np.sqrt(200)
    assert found.value == pytest.approx(per_group.mean())
    np.testing.assert_allclose(found.ci95, [per_group.mean() - half, per_group.mean() + half], atol=0.006)
    assert paired_difference(b, a, group, of="test images").value == pytest.approx(-found.value)


def test_errors_of_a_few_patients_have_few_degrees_of_freedom():
    """With errors in two of 40 patients of model A, the variance of its share is that of two patients."""
    code = np.repeat(np.arange(40), 5)
    a, b = ~np.isin(code, (3, 9)), np.arange(200) % 10 > 0
    found = PairedShares.of(a, b, code)
    assert found.freedom[0] < 6 < 30 < found.freedom[1]
    many = dataclasses.replace(found, freedom=(39.0, 39.0)).interval()
    assert np.ptp(found.interval()) > 1.1 * np.ptp(many)


def test_of_hypotheses_that_exclude_each_other_only_one_counts():
    """Shaffer (1986), S2, by enumeration: a step's factor is the largest number of true hypotheses that are left."""
    p = {"A to B": 0.004, "B to A": 0.7, "A to C": 0.011, "C to A": 0.02, "B to C": 0.3, "C to B": 0.013}
    key = {name: "".join(sorted(name.replace(" to ", ""))) for name in p}
    found, so_far = holm(p, key), 0.0
    order = sorted(p, key=p.__getitem__)
    for step, name in enumerate(order):
        left = order[step:]
        most = max(
            len(true)
            for size in range(len(left) + 1)
            for true in combinations(left, size)
            if len({key[one] for one in true}) == size
        )
        so_far = max(so_far, min(1.0, most * p[name]))
        assert found[name] == pytest.approx(so_far)
    assert holm({"A to B": 0.02, "B to A": 0.99}, key) == {"A to B": 0.02, "B to A": 0.99}
    assert all(found[name] <= whole for name, whole in holm(p).items())
