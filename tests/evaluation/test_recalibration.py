import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, log_softmax, softmax
from sklearn.metrics import log_loss

from tests.evaluation.conftest import CLASSES, make_study
from tests.metrics.test_calibration_statistics import GOLDEN
from usvit.errors import LeakageError, UsvitError
from usvit.evaluation.metrics_sections import calibration_of
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.predictions import check_predictions
from usvit.evaluation.recalibration import NoFit, Platt, Temperature, fit_platt, fit_temperature, recalibrate


def drawn(seed, n=400, k=3, temperature=1.0):
    """Logits whose softmax, at ``temperature``, the labels were drawn from."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(0, 3, (n, k))
    prob = softmax(scores / temperature, axis=1)
    return (rng.random((n, 1)) > prob.cumsum(axis=1)).sum(axis=1), scores


def loss(label, scores, temperature):
    return -log_softmax(scores / temperature, axis=1)[np.arange(len(label)), label].mean()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [2, 3, 7])
def test_the_temperature_is_the_minimum_of_the_log_loss(seed, k):
    label, scores = drawn(seed, k=k, temperature=1 + seed)
    found = fit_temperature(label, scores).value
    slow = minimize_scalar(lambda t: loss(label, scores, np.exp(t)), bounds=(-5, 5), options={"xatol": 1e-10})
    assert found == pytest.approx(np.exp(slow.x), rel=1e-5)
    assert loss(label, scores, found) <= slow.fun + 1e-12


def test_the_temperature_that_made_the_labels_is_found_again():
    label, scores = drawn(1, n=40_000, temperature=2.5)
    assert fit_temperature(label, scores).value == pytest.approx(2.5, rel=0.03)


def test_scaled_logits_have_a_scaled_temperature_and_shifted_ones_the_same():
    label, scores = drawn(2)
    once = fit_temperature(label, scores).value
    assert fit_temperature(label, 1e6 * scores).value == pytest.approx(1e6 * once, rel=1e-9)
    assert fit_temperature(label, scores + 5 * np.arange(400)[:, None]).value == pytest.approx(once, rel=1e-9)
    assert fit_temperature(label, log_softmax(scores, axis=1)).value == pytest.approx(once, rel=1e-9)


@pytest.mark.parametrize(
    ("label", "scores", "reason"),
    [
        ([0, 1, 2], np.eye(3), "every decision is right"),
        ([0, 1, 0], [[1.0, 1.0], [0.0, 3.0], [2.0, 0.0]], "every decision is right"),  # one of them by a tie
        ([0, 1], [[0.0, 1.0], [1.0, 0.0]], "no temperature above 0 is best"),
        ([0, 1, 1], [[2.0, 2.0]] * 3, "all predictions are equal"),
        ([0, 1], [[0.0, 1.0]] * 2, "no temperature above 0 is best"),
        ([1, 1], [[0.0, 1.0], [1.0, 0.0]], "all images are of one class"),
        ([1], [[0.0, 1.0]], "all images are of one class"),
    ],
)
def test_a_temperature_that_does_not_exist_says_why(label, scores, reason):
    found = fit_temperature(label, scores)
    assert isinstance(found, NoFit)
    assert reason in found.reason


def test_a_nearly_perfect_network_has_a_small_temperature():
    label = np.array([0, 1, 0, 1, 1])
    scores = np.array([[9.0, 0], [0, 9], [9, 0], [0, 9], [1e-6, 0]])
    # The one wrong image costs 1e-6 / 2 as 1 / T grows, the four right ones gain 4 * 9 * exp(-9 / T).
    assert fit_temperature(label, scores).value == pytest.approx(9 / np.log(4 * 9 / 0.5e-6), rel=1e-6)


def test_platt_is_that_of_statsmodels():
    odds = np.array(GOLDEN["odds"])
    found = fit_platt(GOLDEN["positive"], np.column_stack([np.zeros_like(odds), odds]), 1)
    assert found.slope == pytest.approx(GOLDEN["platt"]["slope"], rel=1e-6)
    assert found.intercept == pytest.approx(GOLDEN["platt"]["intercept"], rel=1e-6)


def test_platt_stays_finite_where_the_classes_are_separated():
    scores = np.column_stack([np.zeros(6), [-3.0, -2, -1, 1, 2, 3]])
    found = fit_platt([0, 0, 0, 1, 1, 1], scores, 1)
    assert 0 < found.slope < 10
    # Platt's targets for three of each, 1/5 and 4/5, are met in the mean, and in the mean times the log-odds.
    prob = np.exp(found.log_prob(scores))[:, 1]
    assert prob.mean() == pytest.approx(0.5, abs=1e-6)
    assert prob @ scores[:, 1] == pytest.approx(np.repeat([0.2, 0.8], 3) @ scores[:, 1], abs=1e-5)


@pytest.mark.parametrize(
    ("label", "odds", "reason"),
    [
        ([0, 0], [1.0, 2.0], "no positive image"),
        ([1, 1], [1.0, 2.0], "no negative image"),
        ([1], [1.0], "no negative image"),
        ([0, 1], [1.0, 1.0], "all predictions are equal"),
        ([1, 1, 0, 0], [-2.0, -1, 1, 2], "would reverse the ranking"),
    ],
)
def test_a_platt_scaling_that_does_not_exist_says_why(label, odds, reason):
    found = fit_platt(label, np.column_stack([np.zeros(len(odds)), odds]), 1)
    assert isinstance(found, NoFit)
    assert reason in found.reason


def test_scaling_keeps_what_it_must_keep():
    _, scores = drawn(3)
    before = softmax(scores, axis=1)
    cooled = np.exp(Temperature(2.0).log_prob(scores))
    assert (cooled.argmax(axis=1) == before.argmax(axis=1)).all()
    np.testing.assert_allclose(cooled.sum(axis=1), 1)
    np.testing.assert_allclose(np.exp(Temperature(1.0).log_prob(scores)), before)
    scaled = np.exp(Platt(1, 0.5, -1.0).log_prob(scores))
    np.testing.assert_allclose(scaled.sum(axis=1), 1)
    np.testing.assert_allclose(scaled[:, 0] / scaled[:, 2], before[:, 0] / before[:, 2])
    odds = np.log(before[:, 1] / (1 - before[:, 1]))
    np.testing.assert_allclose(scaled[:, 1], expit(-1 + 0.5 * odds), rtol=1e-9)
    np.testing.assert_allclose(np.exp(Platt(1, 1.0, 0.0).log_prob(scores)), before, rtol=1e-9)


def over_confident(seed=0):
    """A study whose logits are three times too large, with inner validation images of the same kind."""
    test, val = make_study(seed, n=600), make_study(seed + 1, n=600).assign(part="val")
    val = val.assign(image_id="v" + val["image_id"], group_id="v" + val["group_id"])
    table = pd.concat([test, val], ignore_index=True)
    logits = 3 * table[[f"logit_{c}" for c in CLASSES]].to_numpy()
    table[[f"logit_{c}" for c in CLASSES]] = logits
    table[[f"prob_{c}" for c in CLASSES]] = softmax(logits, axis=1)
    return table


@pytest.mark.slow
@pytest.mark.parametrize("method", ["temperature", "platt"])
def test_an_over_confident_run_is_mended_on_images_that_had_no_part_in_it(method):
    table = over_confident()
    found = recalibrate(table, positive="malignant", method=method)
    check_predictions(found.table, "scaled")
    assert found.reason is None
    assert len(found.table) == 600
    test = table[table["part"] == "test"]
    assert (found.table[["image_id", "label", "fold"]] == test[["image_id", "label", "fold"]]).all(axis=None)
    before, after = (calibration_of(rows_of(one, "test")).classes["malignant"] for one in (table, found.table))
    assert before.slope.value < 0.6
    assert after.slope.value == pytest.approx(1, abs=0.2)
    assert after.reliability.ece.value < before.reliability.ece.value
    assert after.brier.score.value < before.brier.score.value
    malignant = test["label"] == "malignant"
    assert log_loss(malignant, found.table["prob_malignant"]) < log_loss(malignant, test["prob_malignant"])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["temperature", "platt"])
def test_test_labels_have_no_part_in_the_fit(method):
    table = over_confident()
    changed = table.copy()
    changed.loc[changed["part"] == "test", "label"] = "normal"
    one, two = (recalibrate(t, positive="malignant", method=method) for t in (table, changed))
    assert one.folds == two.folds
    columns = [f"prob_{c}" for c in CLASSES]
    np.testing.assert_array_equal(one.table[columns], two.table[columns])


def test_each_fold_has_its_own_fit_from_its_own_validation_images():
    table = over_confident()
    found = recalibrate(table, positive="malignant")
    for fit in found.folds:
        val = table[(table["part"] == "val") & (table["fold"] == fit.fold)]
        label = np.array([CLASSES.index(name) for name in val["label"]])
        scores = val[[f"logit_{c}" for c in CLASSES]].to_numpy()
        assert fit.scaling.value == fit_temperature(label, scores).value
        assert (fit.n_images, fit.n_groups) == (120, 60)
        assert fit.class_counts == {name: int((label == k).sum()) for k, name in enumerate(CLASSES)}


def test_a_table_without_logits_is_scaled_by_its_log_probabilities():
    table = over_confident()
    bare = table.drop(columns=list(table.filter(like="logit_")))
    columns = [f"prob_{c}" for c in CLASSES]
    np.testing.assert_allclose(
        recalibrate(bare, positive="malignant").table[columns],
        recalibrate(table, positive="malignant").table[columns],
        rtol=1e-6,
    )


def test_a_fold_without_validation_images_leaves_the_run_unscaled(study):
    found = recalibrate(study, positive="malignant")
    assert found.table is None
    assert "fold 0: no inner validation images" in found.reason
    table = over_confident()
    found = recalibrate(table[(table["part"] == "test") | (table["fold"] != 2)], positive="malignant")
    assert found.table is None
    assert found.reason == "no temperature fit in fold 2: no inner validation images"
    assert [fit.scaling is None for fit in found.folds] == [False, False, True, False, False]


def test_a_network_without_any_doubt_stays_in_the_table():
    table = over_confident()
    logits = [f"logit_{c}" for c in CLASSES]
    sure = table["part"] == "test"
    table.loc[sure, logits] *= 1000
    table.loc[sure, [f"prob_{c}" for c in CLASSES]] = softmax(table.loc[sure, logits].to_numpy(), axis=1)
    check_predictions(recalibrate(table, positive="malignant").table, "scaled")


def test_a_leak_an_unknown_class_and_an_unknown_method_are_refused():
    table = over_confident()
    leaky = table.copy()
    leaky.loc[leaky["group_id"] == "vp0", "group_id"] = "p0"
    with pytest.raises(LeakageError, match="Fold 0: group 'p0' is in the splits val and test"):
        recalibrate(leaky, positive="malignant")
    with pytest.raises(UsvitError, match=r"Unknown class 'bengin'.*benign"):
        recalibrate(table, positive="bengin")
    with pytest.raises(ValueError, match="temperature or platt"):
        recalibrate(table, positive="benign", method="isotonic")
