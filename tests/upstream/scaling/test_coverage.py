"""Bands of simulated sweeps contain the true exponents about as often as they promise."""

import numpy as np
import pytest
from scipy.stats import norm

from usvit.upstream.scaling.bootstrap import band, bootstrap
from usvit.upstream.scaling.simulation import known_surface, star_points
from usvit.upstream.scaling.variable_projection import SweepFitter


def test_with_many_degrees_of_freedom_a_band_holds_the_middle_values():
    """Of B = 999 sorted draws, the 25th and the 975th are the 2.5th and the 97.5th percentile: j / (B + 1)."""
    assert band(np.arange(1, 1000.0), 10**9) == pytest.approx((25.0, 975.0))


def test_with_few_degrees_of_freedom_a_band_is_as_wide_as_students():
    draws = norm.ppf(np.arange(1, 100_000) / 100_000)
    assert band(draws, 10) == pytest.approx((-2.228, 2.228), abs=0.001)  # printed tables of t with 10 degrees


def test_more_undefined_draws_than_lie_outside_leave_no_band():
    assert band(np.array([1.0] * 95 + [np.nan] * 5), 75) is None
    assert band(np.array([1.0] * 99 + [np.nan]), 75) == (1.0, 1.0)


@pytest.mark.slow
def test_bands_of_95_percent_contain_the_true_exponents():
    """Of 40 sweeps and 3 exponents, 114 are expected; the table "shape" of benchmarks.coverage has 200 sweeps."""
    surface = known_surface()
    shapes, compute = star_points()
    fitter, clean = SweepFitter(shapes, compute), surface.loss(shapes, compute)
    inside = 0
    for seed in range(40):
        losses = clean * (1 + np.random.default_rng(seed).normal(0, 0.001, len(clean)))
        found = fitter.fit(losses, starts=4)
        drawn = np.array([one.exponents for one in bootstrap(fitter, losses, found, 100, seed)])
        for place, true in enumerate(surface.exponents):
            low, high = band(drawn[:, place], fitter.spare)
            inside += low <= true <= high
    assert 104 <= inside <= 120
