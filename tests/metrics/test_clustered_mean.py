"""The paired difference of means over images, against SciPy's paired t test."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from usvit.metrics.clustered_mean import clustered_difference


def test_a_paired_difference_of_single_images_is_the_paired_t_test():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 30))
    found, test = clustered_difference(a, b, np.arange(30)), ttest_rel(a, b)
    assert found.p == pytest.approx(test.pvalue) and found.ci95 == pytest.approx(tuple(test.confidence_interval()))
    twice = clustered_difference(np.tile(a, 2), np.tile(b, 2), np.tile(np.arange(30), 2))
    assert twice.p == pytest.approx(found.p)  # copies of an image add nothing
