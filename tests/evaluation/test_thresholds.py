import json
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm
from sklearn.metrics import recall_score, roc_curve

from tests.evaluation.conftest import CLASSES, make_study
from tests.json_content import content_of
from usvit.errors import LeakageError, UsvitError
from usvit.estimate import Estimate
from usvit.evaluation.thresholds import operating_points
from usvit.metrics.intervals import undefined
from usvit.metrics.proportions import clustered_share
from usvit.metrics.threshold_choice import RULES, Rule, choose_threshold, outcome

TWO = ["benign", "malignant"]


def expected_misses(own, other, cut):
    """Of n + 1 images of a class, those below a cut, one of which is new, from the scores of both classes."""
    below, above = own[own < cut], own[own >= cut]
    between = other[(other > below.max()) if len(below) else (other > other.min())]
    between = between[between < above.min()]
    return len(below) + (np.sum(between < cut) + 0.5) / (len(between) + 1)


def slow_choice(positive, score, rule):
    """(best in the rule's own sense, partner) over every cut between two scores, by counting; None where infeasible."""
    levels = sorted(set(score.tolist()))
    found = []
    for low, high in pairwise(levels):
        cut = low + (high - low) / 2
        sensitivity = np.mean(score[positive] >= cut)
        specificity = np.mean(score[~positive] < cut)
        if rule.kind == "youden":
            if sensitivity + specificity - 1 > 1e-12:
                found.append((round(sensitivity + specificity - 1, 12), sensitivity))
            continue
        if rule.kind == "sensitivity":
            own, other, here, there = score[positive], score[~positive], cut, (specificity, sensitivity)
        else:
            own, other, here, there = -score[~positive], -score[positive], -cut, (sensitivity, specificity)
        if there[1] >= rule.target and there[0] > 0:
            distance = abs(expected_misses(own, other, here) - max((1 - rule.target) * (len(own) + 1), 1))
            found.append((-round(distance, 9), *there))
    return max(found)[-2:] if found else None


def got(positive, score, rule):
    choice = choose_threshold(positive, score, rule)
    if choice.threshold is None:
        assert choice.reason
        return None
    sensitivity = np.mean(score[positive] >= choice.threshold)
    specificity = np.mean(score[~positive] < choice.threshold)
    if rule.kind == "youden":
        return round(sensitivity + specificity - 1, 12), sensitivity
    return (specificity, sensitivity) if rule.kind == "sensitivity" else (sensitivity, specificity)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9)), min_size=2, max_size=40),
    st.sampled_from([*RULES[:5], Rule("sensitivity", 1.0), Rule("specificity", 1.0), Rule("sensitivity", 0.5)]),
)
def test_the_choice_is_the_best_of_all_cuts(images, rule):
    positive, score = np.array([p for p, _ in images]), np.array([s / 10 for _, s in images])
    if positive.all() or not positive.any():
        assert got(positive, score, rule) is None
    else:
        assert got(positive, score, rule) == slow_choice(positive, score, rule)


def test_youden_agrees_with_the_roc_curve_of_scikit_learn():
    rng = np.random.default_rng(3)
    positive = rng.random(500) < 0.3
    score = rng.normal(size=500) + positive
    false_positive, true_positive, _ = roc_curve(positive, score, drop_intermediate=False)
    index, _ = got(positive, score, Rule("youden"))
    assert index == pytest.approx((true_positive - false_positive).max(), abs=1e-12)


def test_a_hand_worked_choice():
    positive = np.array([0, 0, 1, 0, 1, 1, 0, 1, 1, 1], dtype=bool)
    score = np.array([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9])
    # Of six positives, 5/6 >= 0.8 allows the 0.3 to be missed, and of new ones a place of 1.4 of 7: between 0.3 and
    # 0.4 it is 1.25, between 0.4 and 0.5 it is 1.75.
    assert choose_threshold(positive, score, Rule("sensitivity", 0.8)).threshold == pytest.approx(0.35)
    assert choose_threshold(positive, score, Rule("sensitivity", 0.75)).threshold == pytest.approx(0.45)
    # With four negatives, nine of ten right needs a threshold above 0.7, and the lowest one.
    assert choose_threshold(positive, score, Rule("specificity", 0.9)).threshold == pytest.approx(0.75)
    # From above, the 0.7 is missed. 0.65, 0.55 and 0.45 have places of 1.17, 1.5 and 1.83 of 5.
    assert choose_threshold(positive, score, Rule("specificity", 0.75)).threshold == pytest.approx(0.65)
    assert choose_threshold(positive, score, Rule("specificity", 0.68)).threshold == pytest.approx(0.55)
    assert choose_threshold(positive, score, Rule("specificity", 0.65)).threshold == pytest.approx(0.45)


def test_nine_of_ten_is_ninety_percent():
    positive = np.repeat([True, False], [10, 20])
    score = np.append(np.linspace(0.1, 1, 10), np.linspace(0.11, 0.19, 20))
    choice = choose_threshold(positive, score, Rule("sensitivity", 0.9))
    assert choice.threshold == pytest.approx((score[11] + score[12]) / 2)  # 1 + 2.5 / 21 is nearest to 1.1 of 11


@pytest.mark.parametrize("n", [9, 13, 20])
@pytest.mark.parametrize("rule", [Rule("sensitivity", 0.9), Rule("specificity", 0.9)])
def test_a_target_is_attained_on_new_images(n, rule):
    """Mean over draws of n images of the class; a target that is reached on them only attains 0.86 to 0.9."""
    rng = np.random.default_rng(n)
    sign = 1 if rule.kind == "sensitivity" else -1
    positive = np.repeat([True, False], [n, 4 * n]) == (sign > 0)
    attained = []
    for _ in range(1000):
        score = sign * np.append(rng.normal(1.5, 1, n), rng.normal(0, 1, 4 * n))
        threshold = choose_threshold(positive, score, rule).threshold
        if threshold is not None:
            attained.append(norm.sf(sign * threshold - 1.5))
    assert len(attained) > 950
    assert np.mean(attained) == pytest.approx(0.91, abs=0.012)


def test_neighbouring_floats_are_divided_on_the_right_side():
    low = 0.5
    high = np.nextafter(low, 1)
    choice = choose_threshold(np.array([False, True]), np.array([low, high]), Rule("youden"))
    assert low < choice.threshold <= high


@pytest.mark.parametrize(
    ("positive", "score", "rule", "reason"),
    [
        ([1, 1], [0.2, 0.8], Rule("youden"), "no negative image"),
        ([0, 0], [0.2, 0.8], Rule("sensitivity", 0.9), "no positive image"),
        ([0, 1, 1], [0.5, 0.5, 0.5], Rule("sensitivity", 0.9), "sensitivity 0.9 is reached only at specificity 0"),
        ([0, 1, 1], [0.5, 0.5, 0.5], Rule("specificity", 0.9), "specificity 0.9 is reached only at sensitivity 0"),
        ([1, 0], [0.2, 0.8], Rule("youden"), "no threshold separates the classes better than chance"),
        ([1, 0], [0.2, 0.8], Rule("specificity", 0.9), "only at sensitivity 0"),
        ([1, *[0] * 10], np.arange(11) / 10, Rule("specificity", 0.9), "only at sensitivity 0"),
        ([*[1] * 10, 0], np.arange(11) / 10, Rule("sensitivity", 0.9), "only at specificity 0"),
        ([1], [0.2], Rule("youden"), "no negative image"),
    ],
)
def test_what_cannot_be_chosen_says_why(positive, score, rule, reason):
    choice = choose_threshold(positive, score, rule)
    assert choice.threshold is None
    assert reason in choice.reason


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        *[("sensitivity", None), ("sensitivity", 0.0), ("specificity", 90), ("specificity", np.nan)],
        *[("youden", 0.5), ("fixed", None), ("fixed", np.inf), ("f1", 0.5)],
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(kind, target):
    with pytest.raises(ValueError):
        Rule(kind, target)


def test_an_outcome_counts_images_and_the_groups_that_a_proportion_rests_on():
    found = outcome([1, 1, 1, 0, 0], [1, 1, 0, 1, 0], ["a", "a", "b", "b", "c"])
    assert (found.true_positive, found.false_negative, found.false_positive, found.true_negative) == (2, 1, 1, 1)
    assert (found.n_images, found.n_groups) == (5, 3)
    assert found.sensitivity == Estimate(value=2 / 3, ci95=None, method="point estimate", n_groups=2)
    assert (found.specificity.value, found.specificity.n_groups) == (0.5, 2)
    assert (found.ppv.value, found.ppv.n_groups) == (2 / 3, 2)
    assert (found.npv.value, found.npv.n_groups) == (0.5, 2)


def test_an_outcome_without_a_denominator_says_why():
    found = outcome([1, 1], [0, 0], ["a", "b"])
    assert found.sensitivity.value == 0
    assert found.specificity == undefined("there are no negative images", 0)
    assert found.ppv.reason == "there are no images called positive"


def with_val(table, seed=7):
    """The study with inner validation images of other patients, in each fold."""
    val = make_study(seed).assign(part="val")
    return pd.concat([table, val.assign(image_id="v" + val["image_id"], group_id="v" + val["group_id"])])


@pytest.mark.slow
def test_inner_validation_images_choose_where_every_fold_has_them(study):
    table = with_val(study)
    for point, rule in zip(operating_points(table, positive="malignant"), RULES, strict=True):
        for fold in point.folds:
            val = table[(table["part"] == "val") & (table["fold"] == fold.fold)]
            test = table[(table["part"] == "test") & (table["fold"] == fold.fold)]
            wanted = choose_threshold(val["label"] == "malignant", val["prob_malignant"], rule).threshold
            assert fold.threshold == wanted
            called = test["prob_malignant"] >= wanted
            assert fold.on_test.sensitivity.value == recall_score(test["label"] == "malignant", called)
        assert point.source == (
            "none: fixed beforehand" if rule.kind == "fixed" else "inner validation images of the same fold"
        )


def test_the_other_folds_choose_where_one_lacks_validation_images(study):
    table = with_val(study)
    table = table[(table["part"] == "test") | (table["fold"] != 2)]
    (point,) = operating_points(table, positive="malignant", rules=[Rule("youden")])
    assert point.source == "test images of the other folds"
    others = study[study["fold"] != 4]
    assert (
        point.folds[4].threshold
        == choose_threshold(others["label"] == "malignant", others["prob_malignant"], Rule("youden")).threshold
    )
    assert point.folds[4].chosen_on.n_images == 160


@pytest.mark.slow
@pytest.mark.parametrize("inner", [False, True])
def test_labels_and_scores_of_a_fold_cannot_move_its_own_threshold(study, inner):
    table = with_val(study) if inner else study
    changed, at = table.copy(), (table["fold"] == 1) & (table["part"] == "test")
    changed.loc[at, "label"] = "malignant"
    changed.loc[at, ["prob_benign", "prob_malignant", "prob_normal"]] = [0.2, 0.3, 0.5]
    before, after = (operating_points(one, positive="malignant") for one in (table, changed))
    assert [p.folds[1].threshold for p in before] == [p.folds[1].threshold for p in after]
    if not inner:
        assert [p.folds[0].threshold for p in before[:5]] != [p.folds[0].threshold for p in after[:5]]


def test_pooled_counts_are_the_sums_of_the_folds(study):
    for point in operating_points(study, positive="malignant"):
        for count in ("true_positive", "false_positive", "true_negative", "false_negative", "n_images"):
            assert getattr(point.pooled, count) == sum(getattr(fold.on_test, count) for fold in point.folds)


def test_folds_that_miss_the_target_are_counted(study):
    points = operating_points(study, positive="malignant")
    for point, rule in zip(points[:4], RULES[:4], strict=True):
        values = [getattr(fold.on_test, rule.kind).value for fold in point.folds]
        assert point.n_below_target == sum(value < rule.target for value in values)
        assert [fold.target_reached for fold in point.folds] == [value >= rule.target for value in values]
    assert points[4].n_below_target is points[5].n_below_target is None
    assert any(point.n_below_target for point in points[:4])


def test_a_fold_without_the_class_neither_reaches_nor_misses_the_target(make_table):
    labels = ["benign", "malignant", "benign", "malignant", "benign"]
    table = make_table(labels, [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.6, 0.4], [0.8, 0.2]], TWO, folds=[0, 0, 1, 1, 2])
    (point,) = operating_points(table, positive="malignant", rules=[Rule("sensitivity", 0.9)])
    assert [fold.target_reached for fold in point.folds] == [True, False, None]
    assert point.n_below_target == 1
    assert point.folds[2].on_test.sensitivity.reason == "there are no positive images"


def test_a_fold_without_a_threshold_leaves_nothing_to_pool(make_table):
    labels = ["benign", "malignant"] * 2 + ["benign"] * 2
    prob = [[0.9, 0.1], [0.2, 0.8]] * 2 + [[0.7, 0.3], [0.6, 0.4]]
    test = make_table(labels, prob, TWO, folds=[0, 0, 1, 1, 2, 2])
    val = make_table(["benign", "malignant"] * 2 + ["benign"] * 2, prob, TWO, folds=[0, 0, 1, 1, 2, 2], part="val")
    table = pd.concat([test, val.assign(group_id="v" + val["group_id"])])
    (point,) = operating_points(table, positive="malignant", rules=[Rule("youden")])
    assert point.pooled is None
    assert point.reason == "no threshold in fold 2: no positive image to choose a threshold on"
    assert [fold.threshold is None for fold in point.folds] == [False, False, True]
    assert point.folds[0].on_test.sensitivity.value == 1


def test_a_hold_out_without_validation_images_has_only_the_fixed_threshold(study):
    points = operating_points(study[study["fold"] == 0], positive="malignant")
    assert all("it has no inner validation images" in point.reason for point in points[:5])
    assert points[5].pooled.n_images == 40


def test_a_fixed_threshold_of_one_half_decides_like_the_probability():
    table = make_study(0)
    (point,) = operating_points(table, positive="malignant", rules=[Rule("fixed", 0.5)])
    called = table["prob_malignant"] >= 0.5
    assert point.pooled.true_positive == (called & (table["label"] == "malignant")).sum()
    assert point.folds[0].chosen_on is None


@pytest.mark.parametrize("inner", [False, True])
def test_a_group_on_both_sides_is_a_leak(study, inner):
    table = with_val(study) if inner else study.copy()
    fold = (table["fold"] == 3) & (table["part"] == "test")
    table.loc[fold & (table["group_id"] == "p3"), "group_id"] = "vp8" if inner else "p0"
    with pytest.raises(LeakageError, match=r"Fold \d: group '\w+' is among both"):
        operating_points(table, positive="malignant")


def test_an_unknown_positive_class_is_met_with_the_nearest(study):
    with pytest.raises(UsvitError, match=r"Unknown class 'malignent'.*malignant"):
        operating_points(study, positive="malignent")


@pytest.mark.slow
def test_json_can_hold_it_and_intervals_come_where_asked_for(study):
    points = operating_points(study, positive="malignant", interval=clustered_share)
    json.dumps(content_of(list(points)), allow_nan=False)
    assert points[0].pooled.sensitivity.ci95[0] < points[0].pooled.sensitivity.value
    bare = operating_points(study, positive="malignant")[0].pooled
    assert bare.sensitivity.value == points[0].pooled.sensitivity.value


def test_the_order_of_rows_and_classes_changes_nothing(study):
    shuffled = study.sample(frac=1, random_state=0)
    columns = [c for c in study if not c.startswith(("prob_", "logit_"))]
    reordered = shuffled[
        [*columns, *(f"logit_{c}" for c in reversed(CLASSES)), *(f"prob_{c}" for c in reversed(CLASSES))]
    ]
    assert operating_points(study, positive="malignant") == operating_points(reordered, positive="malignant")
