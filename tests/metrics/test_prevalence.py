"""Predictive values at a stated prevalence."""

import numpy as np
import pytest

from usvit.errors import UsvitError
from usvit.metrics.prevalence import predictive_values, ratio_interval


def study(seed=0, positives=60, negatives=140, images=1):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(positives + negatives), images)
    reference = group < positives
    return reference, 1.5 * reference + rng.normal(size=len(group)) > 0.8, group


def test_at_the_test_s_own_share_they_are_its_own_predictive_values():
    reference, called, group = study()
    found = predictive_values(reference, called, group, float(reference.mean()))
    assert found.ppv.value == pytest.approx(reference[called].mean())
    assert found.npv.value == pytest.approx((~reference)[~called].mean())


@pytest.mark.parametrize("prevalence", [0.005, 0.2, 0.9])
def test_the_value_is_bayes_rule(prevalence):
    reference, called, group = study(1)
    se, sp = called[reference].mean(), (~called)[~reference].mean()
    found = predictive_values(reference, called, group, prevalence)
    hit, miss = prevalence * se, prevalence * (1 - se)
    assert found.ppv.value == pytest.approx(hit / (hit + (1 - prevalence) * (1 - sp)))
    assert found.npv.value == pytest.approx((1 - prevalence) * sp / ((1 - prevalence) * sp + miss))
    for value in (found.ppv, found.npv):
        assert value.ci95[0] < value.value < value.ci95[1]


def test_the_interval_is_about_that_of_mercaldo_lau_and_zhou():
    """Their logit interval of independent cases, written out; large samples, where all methods agree."""
    reference, called, group = study(2, 600, 1400)
    se, sp, p = called[reference].mean(), (~called)[~reference].mean(), 0.03
    middle = np.log(p * se / ((1 - p) * (1 - sp)))
    half = 1.959964 * np.sqrt((1 - se) / (se * 600) + sp / ((1 - sp) * 1400))
    expected = [1 / (1 + np.exp(-(middle - half))), 1 / (1 + np.exp(-(middle + half)))]
    assert predictive_values(reference, called, group, p).ppv.ci95 == pytest.approx(expected, rel=0.03)


def test_no_false_positive_still_has_a_lower_bound():
    reference = np.arange(100) < 40
    found = predictive_values(reference, np.arange(100) < 30, np.arange(100), 0.01)
    assert found.ppv.value == 1 and found.ppv.ci95[1] == 1 and 0.02 < found.ppv.ci95[0] < 0.3
    nothing = predictive_values(reference, np.zeros(100, bool), np.arange(100), 0.01)
    assert nothing.ppv.value is None and nothing.ppv.reason == "no image is called positive"
    assert nothing.npv.value == pytest.approx(0.99)
    alone = predictive_values(np.ones(5, bool), np.ones(5, bool), np.arange(5), 0.1)
    assert alone.ppv.value is None


def test_images_of_one_patient_do_not_narrow_it():
    reference, called, group = study(3)
    once = predictive_values(reference, called, group, 0.1).ppv.ci95
    six = predictive_values(reference.repeat(6), called.repeat(6), group.repeat(6), 0.1).ppv.ci95
    assert six == pytest.approx(once, abs=0.02)


def test_the_ratio_of_shares_without_a_denominator_is_unbounded():
    assert ratio_interval(0.5, (0.4, 0.6), 0.0, (0.0, 0.1))[1] == np.inf
    assert ratio_interval(0.0, (0.0, 0.1), 0.5, (0.4, 0.6))[0] == 0


@pytest.mark.parametrize("prevalence", [0, 1, -0.1, 2, float("nan")])
def test_a_prevalence_that_is_none_is_refused(prevalence):
    with pytest.raises(UsvitError, match=r"--prevalence .* above 0 and below 1"):
        predictive_values(*study(), prevalence)
