import numpy as np
import pytest
from scipy.special import expit

from usvit.evaluation.local_recalibration import SiteImages, recalibration_draws, size_problem, spread
from usvit.metrics.threshold_choice import Rule

RULE = Rule("sensitivity", 0.9)


def site(n=600, slope=0.5, shift=1.0, seed=0, per_group=1):
    """Images whose true log-odds are ``shift + slope`` times the model's."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(0, 2, n)
    label = (rng.random(n) < expit(shift + slope * odds)).astype(int)
    prob = np.stack([1 - expit(odds), expit(odds)], axis=1)
    return SiteImages(label, prob, prob[:, 1], 0.5, np.arange(n) // per_group, 1)


def by_kind(images, n_patients, draws=60, seed=0):
    return {one.fitted: one for one in recalibration_draws(images, n_patients, RULE, draws=draws, seed=seed)}


def test_platt_scaling_restores_what_is_known_to_be_wrong_and_a_temperature_only_the_slope():
    found = by_kind(site(3000), 400)
    frozen, temperature, platt = (found[name].figures for name in ("frozen", "temperature", "platt"))
    assert frozen["slope"].median == pytest.approx(0.5, abs=0.08)
    assert frozen["observed_expected"].median > 1.2
    assert platt["slope"].median == pytest.approx(1, abs=0.15)
    assert platt["observed_expected"].median == pytest.approx(1, abs=0.03)
    assert abs(temperature["slope"].median - 1) < abs(frozen["slope"].median - 1)
    assert temperature["observed_expected"].median > 1.1


def test_the_threshold_reaches_its_target_in_the_median_and_more_patients_make_it_surer():
    images = site(2000)
    few, many = by_kind(images, 20), by_kind(images, 200)
    assert many["platt"].figures["sensitivity"].median == pytest.approx(0.9, abs=0.03)
    few, many = (one["platt"].figures["sensitivity"] for one in (few, many))
    assert many.high - many.low < few.high - few.low


def test_scaling_hardly_changes_the_decisions():
    """Both scalings keep the order of the images; only the place of the threshold between two scores differs."""
    found = by_kind(site(300), 30)
    for figure in ("sensitivity", "specificity"):
        a, b = (found[name].figures[figure].median for name in ("platt", "temperature"))
        assert a == pytest.approx(b, abs=0.02)


def test_the_patients_of_the_fit_are_not_those_of_the_test():
    """The image that decides O:E is in one patient: with the draw of it, the others are judged without it."""
    n = 24
    label = (np.arange(n) < 12).astype(int)
    prob = np.where(np.arange(n) == 0, 0.999, 0.001 + 0.0001 * np.arange(n))
    images = SiteImages(label, np.stack([1 - prob, prob], axis=1), prob, 0.5, np.arange(n), 1)
    found = by_kind(images, 12, draws=200)["frozen"].figures["observed_expected"]
    # With the image among the 12 others about 6 / 1, without it about 6 / 0.02.
    assert found.low < 12 and found.high > 100


def test_draws_depend_on_the_seed_alone():
    images = site(150)
    assert by_kind(images, 20, seed=3) == by_kind(images, 20, seed=3)
    assert by_kind(images, 20, seed=3) != by_kind(images, 20, seed=4)


def test_draws_of_one_side_are_left_out_and_counted():
    images = site(120, shift=-4.5, slope=0.1)  # few positive images
    found = by_kind(images, 10, draws=50)["frozen"]
    assert 0 < found.n_one_sided < 50
    assert found.n_draws + found.n_one_sided == 50


def test_a_size_needs_patients_to_judge_on():
    assert size_problem(10, 20) is None
    assert "10 patients to recalibrate and at least 10 others" in size_problem(10, 19)


def test_a_figure_that_exists_in_no_draw_has_no_spread():
    found = spread(np.full(5, np.nan))
    assert found.median is None and found.n_draws == 0
    known = spread(np.array([1.0, 2.0, 3.0, np.nan]))
    assert (known.median, known.n_draws) == (2.0, 3)
