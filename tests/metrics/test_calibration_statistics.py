import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit, logit
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from tests.conftest import REPOSITORY
from tests.json_content import content_of
from usvit.errors import UsvitError
from usvit.estimate import Estimate
from usvit.evaluation.metrics_sections import calibration_of, calibration_section
from usvit.evaluation.prediction_arrays import rows_of
from usvit.metrics.calibration_statistics import (
    brier,
    calibration_line,
    equal_mass_bins,
    log_odds,
    reliability,
    top_label_reliability,
)
from usvit.metrics.proportions import clustered_share

GOLDEN = json.loads((REPOSITORY / "tests/oracles/golden_calibration.json").read_text())

some_images = st.lists(st.tuples(st.booleans(), st.integers(0, 12)), min_size=1, max_size=60)


def made(seed, n=1000, stretch=1.0, shift=0.0):
    """Outcomes drawn from log-odds, and the log-odds that a model with that stretch and shift would say."""
    rng = np.random.default_rng(seed)
    truth = rng.normal(-0.5, 1.5, n)
    return rng.random(n) < expit(truth), stretch * truth + shift


def test_bins_hold_equally_many_images_where_nothing_is_tied():
    prob = np.random.default_rng(0).permutation(100) / 100
    which = equal_mass_bins(prob, 10)
    assert np.bincount(which).tolist() == [10] * 10
    assert (np.diff(which[np.argsort(prob)]) >= 0).all()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(some_images, st.integers(1, 20))
def test_a_bin_never_splits_a_tie_and_bins_ascend_without_gaps(images, n_bins):
    prob = np.array([p / 12 for _, p in images])
    which = equal_mass_bins(prob, n_bins)
    for value in np.unique(prob):
        assert len(set(which[prob == value].tolist())) == 1
    assert (np.diff(which[np.argsort(prob, kind="stable")]) >= 0).all()
    assert sorted(set(which.tolist())) == list(range(which.max() + 1))
    assert which.max() < n_bins


def test_a_large_tie_goes_where_its_middle_image_would():
    # Ranks: 0.1 is image 0; 0.5 are images 1-8, whose middle lies at half of all; 0.9 is image 9.
    assert equal_mass_bins([0.1, *[0.5] * 8, 0.9], 4).tolist() == [0, *[1] * 8, 2]


def test_reliability_agrees_with_scikit_learn_on_equal_mass_bins():
    positive, odds = made(1)
    prob = expit(odds)
    ours = reliability(positive, prob, n_bins=10)
    share, mean = calibration_curve(positive, prob, n_bins=10, strategy="quantile")
    np.testing.assert_allclose([one.mean_prob for one in ours.bins], mean, rtol=1e-12)
    np.testing.assert_allclose([one.share.value for one in ours.bins], share, rtol=1e-12)
    assert ours.ece.value == pytest.approx(np.abs(share - mean).mean(), abs=1e-12)
    assert ours.ece.method == "10 equal-mass bins"


@settings(max_examples=40, deadline=None)
@given(some_images, st.integers(1, 15))
def test_ece_is_the_literal_mean_over_images(images, n_bins):
    positive, prob = [y for y, _ in images], [p / 12 for _, p in images]
    which = equal_mass_bins(prob, n_bins)
    total = 0.0
    for i in range(len(images)):
        mates = [j for j in range(len(images)) if which[j] == which[i]]
        total += abs(sum(positive[j] for j in mates) - sum(prob[j] for j in mates)) / len(mates)
    assert reliability(positive, prob, n_bins=n_bins).ece.value == pytest.approx(total / len(images), abs=1e-12)


def test_ties_leave_fewer_bins_and_the_method_says_so():
    ours = reliability([0, 1, 0, 1], [0.5, 0.5, 0.5, 0.5], ["a", "a", "b", "c"])
    (one,) = ours.bins
    assert (one.n_images, one.n_groups, one.lowest, one.highest) == (4, 3, 0.5, 0.5)
    said = "10 equal-mass bins (1 left: ties or few images)"
    assert ours.ece == Estimate(value=0.0, ci95=None, method=said, n_groups=3)


def test_a_bins_share_has_an_interval_where_asked_for():
    positive, odds = made(2, n=200)
    bins = reliability(positive, expit(odds), n_bins=4, interval=clustered_share).bins
    for one in bins:
        assert one.share.ci95[0] < one.share.value < one.share.ci95[1]
        assert one.share.method == "wilson"


def test_the_top_label_is_judged_by_its_own_confidence():
    prob = [[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.4, 0.4, 0.2], [0.1, 0.1, 0.8]]
    ours = top_label_reliability([0, 0, 1, 2], prob, n_bins=2)
    # Confidence 0.4 (wrong: the first of equals is decided) and 0.6 (right); 0.7 (wrong) and 0.8 (right).
    assert [one.mean_prob for one in ours.bins] == pytest.approx([0.5, 0.75])
    assert [one.share.value for one in ours.bins] == [0.5, 0.5]
    assert ours.ece.value == pytest.approx(0.125)


def test_the_line_is_that_of_statsmodels():
    line = calibration_line(GOLDEN["positive"], GOLDEN["odds"])
    assert line.slope.value == pytest.approx(GOLDEN["slope"], rel=1e-7)
    assert line.intercept.value == pytest.approx(GOLDEN["intercept"], rel=1e-7)
    assert line.in_the_large.value == pytest.approx(GOLDEN["in_the_large"], rel=1e-7)


@pytest.mark.parametrize("stretch", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("shift", [-400.0, 0.0, 3.0])
def test_the_line_is_the_minimum_of_the_log_loss_on_any_scale(stretch, shift):
    positive, odds = made(3, n=300, stretch=stretch, shift=shift)
    sign = np.where(positive, 1, -1)

    def loss(parameters):
        return np.logaddexp(0, -sign * (parameters[0] + parameters[1] * odds)).sum()

    line = calibration_line(positive, odds)
    found = np.array([line.intercept.value, line.slope.value])
    for step in np.eye(2) * [1e-2, 1e-2 / max(1, np.abs(odds).max())]:
        assert loss(found) < min(loss(found + step), loss(found - step))
    start = minimize(loss, found + np.array([0.1, 0.0]), method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-12})
    assert loss(found) <= start.fun + 1e-8


def test_stretched_and_shifted_log_odds_are_found_again():
    positive, odds = made(4, n=40_000, stretch=2.0, shift=1.0)
    line = calibration_line(positive, odds)
    assert line.slope.value == pytest.approx(0.5, abs=0.02)
    assert line.intercept.value == pytest.approx(-0.5, abs=0.04)
    true, right = made(4, n=40_000)
    line = calibration_line(true, right + 1.0)
    assert line.slope.value == pytest.approx(1.0, abs=0.03)
    assert line.in_the_large.value == pytest.approx(-1.0, abs=0.04)


def test_in_the_large_makes_the_mean_probability_the_share():
    positive, odds = made(5, n=77, stretch=3.0, shift=-2.0)
    shift = calibration_line(positive, odds).in_the_large.value
    assert expit(odds + shift).mean() == pytest.approx(positive.mean(), abs=1e-10)


@pytest.mark.parametrize(
    ("positive", "odds", "reason"),
    [
        ([0, 0, 1, 1], [-2.0, -1, 1, 2], "separate the classes perfectly: the slope has no upper bound"),
        ([0, 0, 1, 1], [-2.0, 1, 1, 2], "separate the classes perfectly"),  # a tie at the border does not help
        ([1, 1, 0, 0], [-2.0, -1, 1, 2], "perfectly but inversely: the slope has no lower bound"),
        ([0, 1, 1, 0], [0.7] * 4, "all predictions are equal"),
        ([0, 1, 1, 0], [0.7, 0.7, np.nextafter(0.7, 1), 0.7], "all predictions are equal"),
    ],
)
def test_a_slope_without_a_bound_says_so_and_in_the_large_stands(positive, odds, reason):
    line = calibration_line(positive, odds)
    assert line.slope.value is line.intercept.value is None
    assert reason in line.slope.reason
    assert line.intercept.reason == line.slope.reason
    assert isinstance(line.in_the_large.value, float)


def test_one_image_on_the_wrong_side_makes_the_slope_finite():
    line = calibration_line([0, 0, 1, 0, 1, 1], [-2.0, -1, 0.4, 0.5, 1, 2])
    assert 0 < line.slope.value < 50


@pytest.mark.parametrize(("positive", "missing"), [([0, 0], "positive"), ([1, 1], "negative"), ([1], "negative")])
def test_without_a_class_there_is_no_line(positive, missing):
    line = calibration_line(positive, np.linspace(0, 1, len(positive)))
    for value in (line.slope, line.intercept, line.in_the_large):
        assert value.value is None
        assert value.reason == f"no {missing} image"


def test_the_brier_score_is_that_of_scikit_learn():
    positive, odds = made(6)
    assert brier(positive, expit(odds)).score.value == pytest.approx(brier_score_loss(positive, expit(odds)))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(some_images, st.integers(1, 60))
def test_the_parts_of_the_brier_score_sum_to_it(images, n_bins):
    parts = brier([y for y, _ in images], [p / 12 for _, p in images], n_bins=n_bins)
    total = parts.reliability - parts.resolution + parts.uncertainty + parts.within_bins
    assert total == pytest.approx(parts.score.value, abs=1e-12)
    assert min(parts.reliability, parts.resolution, parts.uncertainty) >= 0


def test_murphys_decomposition_of_a_forecast_with_three_values():
    # Said 0.2 of five, one came; said 0.5 of four, three came; said 1 of one, it came.
    positive, prob = [1, 0, 0, 0, 0, 1, 1, 1, 0, 1], [0.2] * 5 + [0.5] * 4 + [1.0]
    parts = brier(positive, prob, n_bins=10)
    assert parts.reliability == pytest.approx((5 * 0 + 4 * 0.25**2 + 0) / 10)
    assert parts.resolution == pytest.approx((5 * 0.3**2 + 4 * 0.25**2 + 0.5**2) / 10)
    assert parts.uncertainty == pytest.approx(0.25)
    assert parts.within_bins == pytest.approx(0, abs=1e-15)
    assert parts.skill.value == pytest.approx(1 - parts.score.value / 0.25)


def test_to_say_the_share_of_everyone_has_no_skill():
    assert brier([1, 0, 0, 0], [0.25] * 4).skill.value == pytest.approx(0)
    assert brier([0, 0], [0.2, 0.3]).skill.reason == "no positive image"


def test_log_odds_do_not_saturate():
    odds = log_odds(np.array([[60.0, 0.0, 0.0], [0.0, 0.0, 0.0]]), 0)
    np.testing.assert_allclose(odds, [60 - np.log(2), -np.log(2)])


@pytest.mark.slow
def test_a_run_has_every_class_pooled_and_by_fold(study):
    found = calibration_section(study, "malignant")
    json.dumps(content_of(found), allow_nan=False)
    assert [one.fold for one in found.folds] == [0, 1, 2, 3, 4]
    assert found.pooled.n_images == 200
    rows = rows_of(study, "test")
    hit = np.eye(3)[rows.label]
    assert found.pooled.brier.value == pytest.approx(((rows.prob - hit) ** 2).sum() / 400)
    malignant = found.pooled.classes["malignant"]
    prob = study["prob_malignant"].to_numpy()
    line = calibration_line(study["label"] == "malignant", logit(prob))
    assert malignant.slope.value == pytest.approx(line.slope.value, rel=1e-6)
    assert malignant.slope.n_groups == found.pooled.n_groups == 100
    assert malignant.brier.score.value == pytest.approx(brier_score_loss(study["label"] == "malignant", prob))


def test_a_table_without_logits_gives_the_same(study):
    bare = calibration_of(rows_of(study.drop(columns=list(study.filter(like="logit_"))), "test"))
    full = calibration_of(rows_of(study, "test"))
    for name in bare.classes:
        ours, theirs = bare.classes[name], full.classes[name]
        assert ours.slope.value == pytest.approx(theirs.slope.value, rel=1e-9)
        assert ours.reliability == theirs.reliability


def test_the_two_classes_of_a_binary_table_mirror_each_other(make_table):
    rng = np.random.default_rng(8)
    p = rng.random(60)
    labels = ["b" if rng.random() < one else "a" for one in p]
    found = calibration_of(rows_of(make_table(labels, np.column_stack([1 - p, p]), ["a", "b"]), "test")).classes
    assert found["a"].slope.value == pytest.approx(found["b"].slope.value, rel=1e-6)
    assert found["a"].in_the_large.value == pytest.approx(-found["b"].in_the_large.value, rel=1e-6)
    assert found["a"].brier.score.value == pytest.approx(found["b"].brier.score.value)


def test_probabilities_of_zero_and_one_stay_finite(make_table):
    prob = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.3, 0.7], [0.0, 1.0]]
    found = calibration_of(rows_of(make_table(["a", "a", "b", "b", "b", "a"], prob, ["a", "b"]), "test"))
    json.dumps(content_of(found), allow_nan=False)
    assert found.classes["b"].slope.value > 0


def test_bins_below_one_and_tables_without_test_rows_are_refused(study):
    with pytest.raises(ValueError, match="n_bins must be at least 1"):
        equal_mass_bins([0.5], 0)
    with pytest.raises(UsvitError, match="no row of part test"):
        calibration_section(study.assign(part="val"), "malignant")
