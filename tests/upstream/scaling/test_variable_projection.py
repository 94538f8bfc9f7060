"""The fit recovers known surfaces, resists outliers, and agrees with a search over all parameters at once."""

import numpy as np
import pytest
from scipy.optimize import least_squares

from usvit.upstream.scaling.simulation import known_surface, star_points
from usvit.upstream.scaling.surface import numbers_of, surface_of
from usvit.upstream.scaling.variable_projection import SweepFitter

SHAPES, COMPUTE = star_points()


def losses(noise=0.0, seed=0):
    errors = np.random.default_rng(seed).normal(0, noise, len(COMPUTE)) if noise else 0.0
    return known_surface().loss(SHAPES, COMPUTE) * (1 + errors)


def test_a_known_surface_is_recovered():
    found = SweepFitter(SHAPES, COMPUTE).fit(losses())
    assert found.surface.exponents == pytest.approx([0.22, 0.45, 0.60], rel=1e-4)
    assert found.surface.c == pytest.approx(0.35, rel=1e-4)
    assert found.surface.optimum(1e11) == pytest.approx(known_surface().optimum(1e11), rel=1e-4)
    assert (found.weights == 1).all()


def test_few_wrong_losses_change_little():
    clean = losses(0.001)
    wrong = clean.copy()
    wrong[[3, 40, 77]] *= [1.5, 0.7, 1.3]
    fitter = SweepFitter(SHAPES, COMPUTE)
    found = fitter.fit(wrong)
    assert found.weights[[3, 40, 77]].max() < 0.1
    assert found.surface.exponents == pytest.approx(fitter.fit(clean).surface.exponents, rel=0.1)


def test_it_finds_what_a_search_over_all_parameters_finds():
    """The oracle: scipy's least squares over the logarithms of all 15 parameters, begun at the true ones."""
    noisy, known = losses(0.001, seed=3), known_surface()
    fitter = SweepFitter(SHAPES, COMPUTE)
    found = fitter.fit(noisy)

    def residuals(logs):
        return known_like(np.exp(logs)).loss(SHAPES, COMPUTE) / noisy - 1

    def known_like(numbers):
        return surface_of(numbers, known.reference, known.compute_reference)

    weighted = least_squares(
        lambda logs: residuals(logs) * np.sqrt(found.weights), np.log(numbers_of(known)), xtol=1e-12, ftol=1e-14,
        max_nfev=2000,
    )  # fmt: skip
    ours = float((found.weights * found.residuals**2).sum())
    assert ours <= 2 * weighted.cost * (1 + 1e-6)
    assert found.surface.exponents == pytest.approx(known_like(np.exp(weighted.x)).exponents, rel=1e-3)


def test_chinchillas_form_is_a_special_case():
    """E + A / N^alpha + B / D^beta with D = C / (6 N): the best N grows as C^(beta / (alpha + beta))."""
    sizes, budgets = np.geomspace(1e7, 1e10, 12), np.geomspace(1e18, 1e21, 6)
    n, c = (one.ravel() for one in np.meshgrid(sizes, budgets))
    loss = 1.69 + 406.4 / n**0.34 + 410.7 / (c / (6 * n)) ** 0.28  # Hoffmann et al. 2022, equation 10
    surface = SweepFitter(n[:, None], c).fit(loss).surface
    assert surface.a[0] == pytest.approx(0.34, rel=0.01)
    assert (surface.b[0], surface.c) == pytest.approx((0.28, 0.28), rel=0.01)
    assert surface.exponents[0] == pytest.approx(0.28 / 0.62, rel=0.01)
    assert surface.eps == pytest.approx(1.69, rel=0.01)


def test_the_same_seed_gives_the_same_numbers():
    noisy = losses(0.01)
    one, other = (SweepFitter(SHAPES, COMPUTE).fit(noisy, seed=4) for _ in range(2))
    assert numbers_of(one.surface) == numbers_of(other.surface)
