"""Rules that combine categories and decisions, against counting by hand and statsmodels."""

import numpy as np
import pytest
from statsmodels.stats.proportion import proportion_confint

from usvit.metrics.combined_rules import COMBINATIONS, BiopsyChange, combined_biopsies, per_thousand


def test_each_rule_changes_the_images_that_it_says():
    rng = np.random.default_rng(0)
    alone, doubtful, followed, called, cancer = (rng.random(500) < 0.5 for _ in range(5))
    for rule in COMBINATIONS:
        found = combined_biopsies(alone, doubtful, followed, called, rule)
        for k in range(500):
            expected = alone[k]
            if rule in ("downgrade", "both") and doubtful[k] and not called[k]:
                expected = False
            if rule in ("upgrade", "both") and followed[k] and called[k]:
                expected = True
            assert found[k] == expected
        change = BiopsyChange.of(cancer, alone, found)
        assert int(found.sum()) == int(alone.sum()) - int(change.avoided.sum()) + int(change.added.sum())
        assert (change.missed <= change.avoided).all() and (change.found <= change.added).all()
        if rule == "downgrade":
            assert not change.added.any()
        if rule == "upgrade":
            assert not change.avoided.any()


def test_numbers_per_thousand_are_wilsons_for_single_images_and_longer_for_patients():
    hits = np.arange(200) % 10 == 0
    found = per_thousand(hits, np.arange(200))
    low, high = proportion_confint(20, 200, method="wilson")
    assert found.value == pytest.approx(100)
    assert found.ci95 == pytest.approx((1000 * low, 1000 * high))
    patients = np.sort(np.arange(200) % 20)
    clustered = per_thousand(np.isin(patients, [0, 1]), patients)
    assert clustered.ci95[1] - clustered.ci95[0] > found.ci95[1] - found.ci95[0]
    assert per_thousand(np.zeros(50, bool), np.arange(50)).ci95[0] == 0
