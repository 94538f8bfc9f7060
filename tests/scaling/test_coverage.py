"""Bands of simulated sweeps contain the true exponents about as often as they promise."""

import numpy as np
import pytest

from usvit.scaling.bootstrap import band, bootstrap
from usvit.scaling.simulation import known_surface, star_points
from usvit.scaling.variable_projection import SweepFitter


def test_a_band_is_that_of_the_middle_values():
    assert band(np.arange(1, 1002.0)) == pytest.approx((26.0, 976.0))
    assert band(np.array([1.0] * 95 + [np.nan] * 5)) is None  # more are undefined than lie outside of the band
    assert band(np.array([1.0] * 99 + [np.nan])) == (1.0, 1.0)


@pytest.mark.slow
def test_bands_of_95_percent_contain_the_true_exponents():
    """Of 40 sweeps and 3 exponents, 114 are expected; benchmarks/shape_scaling.py has the 200 sweeps of the docs."""
    surface = known_surface()
    shapes, compute = star_points()
    fitter, clean = SweepFitter(shapes, compute), surface.loss(shapes, compute)
    inside = 0
    for seed in range(40):
        losses = clean * (1 + np.random.default_rng(seed).normal(0, 0.001, len(clean)))
        found = fitter.fit(losses, starts=4)
        drawn = np.array([one.exponents for one in bootstrap(fitter, losses, found, 100, seed)])
        for place, true in enumerate(surface.exponents):
            low, high = band(drawn[:, place])
            inside += low <= true <= high
    assert 104 <= inside <= 120
