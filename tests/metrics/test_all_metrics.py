"""Every statistic meets the same hard cases: a number, or null with a reason; a wrong input is refused by index."""

import json

import numpy as np
import pytest

from tests.json_content import content_of
from usvit.estimate import Estimate
from usvit.metrics.bootstrap import cluster_bootstrap, figure_values
from usvit.metrics.clustered import clustered_auc, clustered_difference
from usvit.metrics.figures import Figures
from usvit.metrics.multiclass import Average, multiclass_auc, multiclass_difference
from usvit.metrics.paired_tests import mcnemar
from usvit.records import McNemar

CLASSES = ["benign", "malignant", "normal"]


def two_classes(function):
    """A statistic of one class's score, asked about class 1."""
    return lambda label, prob, group: function(np.asarray(label) == 1, np.asarray(prob)[:, 1], group)


def figures(label, prob, group):
    return figure_values(label, prob, group, classes=CLASSES, n_resamples=100).values


def decisions(label, prob, group):
    Figures(label, prob, group)  # what checks the arrays
    right = np.argmax(prob, axis=1) == label
    return {method: mcnemar(right, ~right, group, method=method) for method in ("exact", "mid-p", "chi2", "clustered")}


METRICS = {
    "clustered AUC": two_classes(clustered_auc),
    "clustered difference": two_classes(lambda y, s, g: clustered_difference(y, s, 0.3 * s**2 + 0.1, g)),
    **{
        f"{average} AUC": lambda label, prob, group, average=average: multiclass_auc(
            label, prob, group, average=average
        )
        for average in Average.__args__
    },
    "macro difference": lambda label, prob, group: multiclass_difference(label, prob, np.asarray(prob)[:, ::-1], group),
    "figures": figures,
    "McNemar": decisions,
}

LABEL = np.tile([0, 1, 2, 0, 1, 2], 4)
RIGHT = np.eye(3)[LABEL] * 0.7 + 0.1
CASES = {
    "perfect": (LABEL, RIGHT),
    "inverted": (LABEL, (1 - RIGHT) / 2),
    "constant": (LABEL, np.full((24, 3), 1 / 3)),
    "tied": (LABEL, np.round(RIGHT + np.random.default_rng(0).normal(scale=0.15, size=(24, 3)), 1).clip(0, 1)),
    "class absent": (np.where(LABEL == 2, 0, LABEL), RIGHT),
    "one class": (np.zeros(24, dtype=int), RIGHT),
    "one case": (LABEL[:1], RIGHT[:1]),
}
GROUPS = {
    "alone": np.arange,
    "pairs": lambda n: np.arange(n) // 2,
    "one patient": lambda n: np.zeros(n, dtype=int),
    "names": lambda n: np.array([f"p{k % 7}" for k in range(n)], dtype=object),
}


def leaves(found):
    """Every estimate, and McNemar's test, in a nest of them."""
    if isinstance(found, Estimate):
        return [found]
    if isinstance(found, McNemar):
        return [found]
    return [leaf for inner in found.values() for leaf in leaves(inner)]


@pytest.mark.parametrize("grouping", GROUPS)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.filterwarnings("error")
def test_hard_cases_give_numbers_or_reasons(metric, case, grouping):
    label, prob = CASES[case]
    found = METRICS[metric](label, prob, GROUPS[grouping](len(label)))
    json.dumps(content_of(found), allow_nan=False)
    for value in leaves(found):
        if isinstance(value, Estimate):
            assert (value.value is None) <= (value.ci95 is None)
            assert value.ci95 is not None or value.reason
            if value.ci95 is not None:
                assert value.ci95[0] <= value.ci95[1]
                assert (value.warning is not None) == (value.n_groups < 50)
        else:
            assert value.p is not None or value.reason
        if value.p is not None:
            assert 0 <= value.p <= 1


@pytest.mark.parametrize("metric", ["clustered AUC", "macro AUC", "weighted AUC", "hand-till AUC"])
@pytest.mark.parametrize(("case", "value"), [("perfect", 1), ("inverted", 0), ("constant", 0.5), ("one class", None)])
def test_every_auc_of_the_clear_cases(metric, case, value):
    label, prob = CASES[case]
    found = METRICS[metric](label, prob, np.arange(24))
    assert found.value == (None if value is None else pytest.approx(value, abs=1e-15))
    if value in (0, 1):
        assert found.ci95[1 - value] != value == found.ci95[value]
    if value == 0.5:
        assert found.ci95 is None and "the same placement" in found.reason


@pytest.mark.parametrize("case", ["perfect", "inverted"])
def test_every_figure_of_the_clear_cases(case):
    found = figures(*CASES[case], np.arange(24))
    best = float(case == "perfect")
    for name in ("accuracy", "balanced_accuracy", "f1_macro"):
        assert found[name].value == best
    for name in ("sensitivity", "f1"):
        assert {one.value for one in found[name].values()} == {best}
    assert (found["mcc"].value == 1) == (case == "perfect")
    assert found["average_precision_macro"].value == pytest.approx(1) if best else True


@pytest.mark.parametrize(
    ("case", "name", "of_class", "reason"),
    [
        ("class absent", "sensitivity", "normal", "no image of class 'normal'"),
        ("class absent", "f1", "normal", "no image of class 'normal'"),
        ("class absent", "average_precision", "normal", "no image of class 'normal'"),
        ("class absent", "balanced_accuracy", None, "no image of class 'normal'"),
        ("class absent", "f1_macro", None, "no image of class 'normal'"),
        ("class absent", "average_precision_macro", None, "no image of class 'normal'"),
        ("one class", "specificity", "benign", "every image is of class 'benign'"),
        ("one class", "average_precision", "benign", "every image is of class 'benign'"),
        ("one class", "mcc", None, "all images have one class, or are decided as one class"),
        ("constant", "ppv", "normal", "no image is decided as 'normal'"),
        ("constant", "npv", "benign", "every image is decided as 'benign'"),
        ("constant", "mcc", None, "all images have one class, or are decided as one class"),
    ],
)
def test_the_reason_is_the_right_one(case, name, of_class, reason):
    found = figures(*CASES[case], np.arange(24))[name]
    found = found if of_class is None else found[of_class]
    assert (found.value, found.reason) == (None, reason)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_probability_that_is_no_number_is_refused_with_its_index(metric, bad):
    prob = RIGHT.copy()
    prob[5, 1] = bad
    with pytest.raises(ValueError, match="index 5"):
        METRICS[metric](LABEL, prob, np.arange(24))


@pytest.mark.parametrize("metric", [name for name in METRICS if "clustered" not in name and "DeLong" not in name])
@pytest.mark.parametrize("bad", [-1, 3, 0.5])
def test_a_label_out_of_range_is_refused_with_its_index(metric, bad):
    label = LABEL.astype(float)
    label[7] = bad
    with pytest.raises(ValueError, match=r"label .* at index 7 is not in 0 to 2"):
        METRICS[metric](label, RIGHT, np.arange(24))


@pytest.mark.parametrize("bad", [2, -1, np.nan, 0.5])
def test_a_binary_label_out_of_range_is_refused_with_its_index(bad):
    with pytest.raises(ValueError, match=r"label .* at index 2 is neither 0 nor 1"):
        clustered_auc([0, 1, bad], [0.1, 0.2, 0.3], [1, 2, 3])


def test_label_strings_are_refused():
    with pytest.raises(ValueError, match=r"label .*'benign'.* at index 0"):
        clustered_auc(["benign", "malignant"], [0.1, 0.2], [1, 2])
    with pytest.raises(ValueError, match=r"label .*'benign'.* at index 0"):
        multiclass_auc(["benign", "malignant"], [[0.1, 0.9], [0.2, 0.8]], [1, 2])


@pytest.mark.parametrize("metric", METRICS)
def test_a_row_without_a_group_is_refused_with_its_index(metric):
    group = np.array([f"p{k}" for k in range(24)], dtype=object)
    group[3] = None
    with pytest.raises(ValueError, match="group at index 3 is missing"):
        METRICS[metric](LABEL, RIGHT, group)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"shape \(2,\), expected \(3,\)"):
        clustered_auc([0, 1, 1], [0.1, 0.2], [1, 2, 3])
    with pytest.raises(ValueError, match=r"groups have shape \(2,\)"):
        clustered_auc([0, 1, 1], [0.1, 0.2, 0.3], [1, 2])
    with pytest.raises(ValueError, match="at least one row"):
        clustered_auc([], [], [])
    with pytest.raises(ValueError, match=r"got \(3,\) and \(2, 2\)"):
        multiclass_auc([0, 1, 1], [[0.5, 0.5]] * 2, [1, 2, 3])
    with pytest.raises(ValueError, match="3 and of 2 classes"):
        multiclass_difference([0, 1], np.full((2, 3), 0.3), np.full((2, 2), 0.5), [1, 2])
    with pytest.raises(ValueError, match="average 'micro' is not one of macro, weighted, hand-till"):
        multiclass_auc(LABEL, RIGHT, np.arange(24), average="micro")
    with pytest.raises(ValueError, match="2 class names for 3 columns"):
        figure_values(LABEL, RIGHT, np.arange(24), classes=["a", "b"])
    with pytest.raises(ValueError, match="expected 0 to 1"):
        figure_values(LABEL, RIGHT * 2, np.arange(24), classes=CLASSES)


def test_one_group_has_no_bootstrap():
    found = cluster_bootstrap(Figures(LABEL, RIGHT, np.zeros(24)), 1)
    assert {one.ci95 for one in found.values()} == {None}
    assert {one.reason for one in found.values()} == {"there is only one group"}
