"""The form and its minimum, against a numeric minimiser and the paper's formulas for one dimension."""

import numpy as np
import pytest
from scipy.optimize import minimize

from usvit.upstream.scaling.simulation import PAPER_EXPONENTS, known_surface
from usvit.upstream.scaling.surface import numbers_of, surface_of


@pytest.mark.parametrize("compute", [1e10, 1e11, 1e13])
def test_the_optimum_is_that_of_a_numeric_minimiser(compute):
    surface = known_surface()
    found = minimize(
        lambda logs: float(surface.loss(np.exp(logs), compute)), np.log(surface.reference), method="Nelder-Mead",
        options={"xatol": 1e-9, "fatol": 1e-15, "maxiter": 10_000, "maxfev": 10_000},
    )  # fmt: skip
    assert surface.optimum(compute) == pytest.approx(np.exp(found.x), rel=1e-4)


def test_the_optimum_grows_with_compute_to_the_power_of_the_exponents():
    surface = known_surface()
    small, large = surface.optimum(np.array([1e10, 1e13]))
    assert np.log(large / small) / np.log(1e3) == pytest.approx(list(PAPER_EXPONENTS.values()))
    assert surface.exponents == pytest.approx(list(PAPER_EXPONENTS.values()))


def test_along_one_dimension_it_is_the_papers_form():
    """f_k(x, t) = alpha x^-a + (beta x^b + xi_k) t^-c + eps_k, where the other dimensions give xi_k and eps_k."""
    s, compute = known_surface(), 3e11
    x, t = np.array([[100.0, 20, 900], [1000, 20, 900]]), (compute / s.compute_reference) ** -s.c
    scaled = x / s.reference
    xi = s.xi + (s.beta[1:] * scaled[0, 1:] ** s.b[1:]).sum()
    eps = s.eps + (s.alpha[1:] * scaled[0, 1:] ** -s.a[1:]).sum()
    own = scaled[:, 0]
    expected = s.alpha[0] * own ** -s.a[0] + (s.beta[0] * own ** s.b[0] + xi) * t + eps
    assert s.loss(x, compute) == pytest.approx(expected)


def test_the_loss_falls_before_the_optimum_and_rises_after_it():
    surface = known_surface()
    best = surface.optimum(1e11)
    for place in range(3):
        line = np.tile(best, (200, 1))
        line[:, place] = np.geomspace(best[place] / 30, best[place] * 30, 200)
        steps = np.diff(surface.loss(line, 1e11))
        turn = int(np.argmax(steps > 0))
        assert (steps[:turn] < 0).all() and (steps[turn:] > 0).all()


def test_a_dimension_without_gain_or_cost_has_no_optimum():
    numbers = numbers_of(known_surface())
    numbers[0] = 0.0  # alpha of the width
    numbers[7] = 0.0  # beta of the depth
    surface = surface_of(numbers, known_surface().reference, 1e11)
    assert np.isnan(surface.optimum(1e11)).tolist() == [True, True, False]
    assert np.isnan(surface.exponents).tolist() == [True, True, False]


def test_the_numbers_give_the_surface_back():
    known = known_surface()
    again = surface_of(numbers_of(known), known.reference, known.compute_reference)
    assert again.loss([300, 7, 900], 5e10) == known.loss([300, 7, 900], 5e10)
