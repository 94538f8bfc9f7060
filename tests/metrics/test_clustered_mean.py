"""The paired difference of means over images, against SciPy's paired t test."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from usvit.metrics.clustered_mean import clustered_difference


def test_a_paired_difference_of_single_images_is_nearly_the_paired_t_test():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 30))
    found, test = clustered_difference(a, b, np.arange(30)), ttest_rel(a, b)
    # Satterthwaite's degrees of freedom are near n - 1, not equal to it.
    assert found.p == pytest.approx(test.pvalue, rel=0.1)
    assert found.ci95 == pytest.approx(tuple(test.confidence_interval()), abs=0.1)
    twice = clustered_difference(np.tile(a, 2), np.tile(b, 2), np.tile(np.arange(30), 2))
    assert twice.p == pytest.approx(found.p, rel=0.02)  # copies of an image add nothing


def test_the_p_value_is_below_5_percent_if_the_interval_excludes_zero():
    rng = np.random.default_rng(5)
    shifts = [clustered_difference(rng.normal(0.4, 1, 40), np.zeros(40), np.arange(40) // 2) for _ in range(20)]
    excluded = [not one.ci95[0] <= 0 <= one.ci95[1] for one in shifts]
    assert excluded == [one.p < 0.05 for one in shifts] and 0 < sum(excluded) < 20
