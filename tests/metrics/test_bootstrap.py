import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics as sk

from usvit.metrics.bootstrap import (
    CHUNK,
    MAX_JACKKNIFE,
    cluster_bootstrap,
    figure_values,
)
from usvit.metrics.figures import Figures, Key
from usvit.metrics.intervals import wilson

CLASSES = ["benign", "malignant", "normal"]


def study(seed=0, n_groups=80, n_classes=3, decimals=2):
    """Labels, probabilities with ties, and patients of one to three images."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), rng.integers(1, 4, n_groups))
    label = rng.integers(0, n_classes, len(group))
    raw = rng.normal(size=(len(group), n_classes)) + rng.normal(size=(n_groups, n_classes))[group]
    prob = np.exp(raw + 1.2 * np.eye(n_classes)[label])
    prob /= prob.sum(axis=1, keepdims=True)
    return label, np.round(prob, decimals), group


def by_scikit_learn(label, prob, n_classes):
    """The same figures, from scikit-learn alone."""
    decided = prob.argmax(axis=1)
    every = range(n_classes)
    found = {
        Key("accuracy"): sk.accuracy_score(label, decided),
        Key("balanced_accuracy"): sk.balanced_accuracy_score(label, decided),
        Key("mcc"): sk.matthews_corrcoef(label, decided),
        Key("f1_macro"): sk.f1_score(label, decided, average="macro", labels=every),
        Key("log_loss"): -np.log(np.maximum(prob[np.arange(len(label)), label], np.finfo(float).eps)).mean(),
    }
    for k in every:
        of, as_ = label == k, decided == k
        found[Key("sensitivity", k)] = sk.recall_score(of, as_)
        found[Key("specificity", k)] = sk.recall_score(~of, ~as_)
        found[Key("ppv", k)] = sk.precision_score(of, as_)
        found[Key("npv", k)] = sk.precision_score(~of, ~as_)
        found[Key("f1", k)] = sk.f1_score(of, as_)
        found[Key("average_precision", k)] = sk.average_precision_score(of, prob[:, k])
        found[Key("brier_vs_rest", k)] = sk.brier_score_loss(of, prob[:, k])
    found[Key("brier")] = sum(found[Key("brier_vs_rest", k)] for k in every) / 2
    found[Key("average_precision_macro")] = np.mean([found[Key("average_precision", k)] for k in every])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3, 4])
@pytest.mark.parametrize("seed", range(3))
def test_every_figure_is_that_of_scikit_learn(seed, n_classes):
    label, prob, group = study(seed, n_classes=n_classes)
    figures = Figures(label, prob, group)
    found = figures(np.ones((1, figures.n_groups)))
    expected = by_scikit_learn(label, prob, n_classes)
    assert set(found) == set(expected)
    for key, value in expected.items():
        assert found[key][0] == pytest.approx(value, abs=1e-12), key


def test_brier_and_log_loss_of_probabilities_that_sum_to_one_are_those_of_scikit_learn():
    label, prob, group = study(decimals=15)
    found = Figures(label, prob, group)(np.ones((1, 80)))
    assert found[Key("brier")][0] == pytest.approx(sk.brier_score_loss(label, prob, scale_by_half=True))
    assert found[Key("log_loss")][0] == pytest.approx(sk.log_loss(label, prob))
    label, prob, group = study(n_classes=2, decimals=15)
    found = Figures(label, prob, group)(np.ones((1, 80)))
    assert found[Key("brier")][0] == pytest.approx(sk.brier_score_loss(label, prob[:, 1]))


@pytest.mark.slow
def test_weights_by_group_are_the_same_as_repeated_rows():
    label, prob, group = study(1)
    figures = Figures(label, prob, group)
    counts = np.random.default_rng(0).multinomial(80, [1 / 80] * 80, size=4).astype(float)
    found = figures(counts)
    for row, count in enumerate(counts.astype(int)):
        rows = np.repeat(np.arange(len(label)), count[group])
        for key, value in by_scikit_learn(label[rows], prob[rows], 3).items():
            assert found[key][row] == pytest.approx(value, abs=1e-12), key


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=15))
def test_average_precision_agrees_with_scikit_learn_whatever_the_ties(rows):
    label, score, group = (np.array(column) for column in zip(*rows, strict=True))
    prob = np.full((len(label), 3), 0.25)
    prob[:, 1] = score / 4
    figures = Figures(label, prob, group)
    once = np.ones((1, figures.n_groups))
    of = label == 1
    precision = figures(once)[Key("average_precision", 1)][0]
    if of.all() or not of.any():
        assert np.isnan(precision)
    else:
        assert precision == pytest.approx(sk.average_precision_score(of, prob[:, 1]), abs=1e-12)


# --- the bootstrap against scipy's, with patients as scipy's observations


@pytest.mark.slow
@pytest.mark.parametrize("name", ["accuracy", "brier", "average_precision"])
def test_the_bca_interval_is_scipys_to_the_last_digits(name):
    label, prob, group = study(2, n_groups=60)
    n_groups, key = 60, Key(name, 1 if name == "average_precision" else None)
    members = [np.flatnonzero(group == g) for g in range(n_groups)]

    def statistic(groups):
        rows = np.concatenate([members[int(g)] for g in groups])
        if name == "accuracy":
            return (prob[rows].argmax(axis=1) == label[rows]).mean()
        if name == "brier":
            return ((prob[rows] - np.eye(3)[label[rows]]) ** 2).sum(axis=1).mean() / 2
        return sk.average_precision_score(label[rows] == 1, prob[rows, 1])

    n = 10 * CHUNK
    ours = cluster_bootstrap(Figures(label, prob, group), n_groups, n_resamples=n, seed=7)[key]
    # The same generator draws the same groups, as long as it is asked for as many at a time.
    theirs = stats.bootstrap(
        (np.arange(n_groups),), statistic, vectorized=False, n_resamples=n, batch=CHUNK, method="BCa",
        rng=np.random.default_rng(7),
    )  # fmt: skip
    assert ours.method == "BCa"
    assert ours.ci95 == pytest.approx(theirs.confidence_interval, rel=1e-9)


@pytest.mark.slow
def test_any_function_of_labels_and_probabilities_has_an_interval():
    label, prob, group = study(3, n_groups=40)
    codes = np.unique(group, return_inverse=True)[1]

    def figures(counts):
        rows = [np.repeat(np.arange(len(label)), count[codes].astype(int)) for count in counts]
        return {"mcc": np.array([sk.matthews_corrcoef(label[one], prob[one].argmax(axis=1)) for one in rows])}

    slow = cluster_bootstrap(figures, 40, n_resamples=50)["mcc"]
    fast = cluster_bootstrap(Figures(label, prob, group), 40, n_resamples=50)[Key("mcc")]
    assert slow.ci95[0] < slow.value < slow.ci95[1]
    assert slow.ci95 == pytest.approx(fast.ci95, rel=1e-9)


def test_the_interval_does_not_shrink_when_every_image_is_repeated_within_its_patient():
    label, prob, group = study(4)
    once = figure_values(label, prob, group, classes=CLASSES).values
    thrice = figure_values(*(np.repeat(x, 3, axis=0) for x in (label, prob, group)), classes=CLASSES).values
    for name in ("brier", "average_precision_macro"):
        assert thrice[name].ci95 == pytest.approx(once[name].ci95, rel=1e-9)
    for name in ("mcc", "f1_macro", "balanced_accuracy"):
        assert thrice[name].ci95 == pytest.approx(once[name].ci95, abs=0.01)


def test_a_seed_repeats_the_interval_and_the_order_of_the_rows_does_not_change_it():
    label, prob, group = study(5)
    order = np.random.default_rng(1).permutation(len(label))
    names = np.array([f"p{g:03d}" for g in group], dtype=object)
    one = figure_values(label, prob, names, classes=CLASSES, n_resamples=300).values
    again = figure_values(label[order], prob[order], names[order], classes=CLASSES, n_resamples=300).values
    other = figure_values(label, prob, names, classes=CLASSES, n_resamples=300, seed=1).values
    for name in ("brier", "mcc", "f1_macro", "balanced_accuracy"):
        assert again[name].ci95 == pytest.approx(one[name].ci95, rel=1e-9)
    assert other["brier"].ci95 != one["brier"].ci95


def test_many_groups_are_left_out_in_blocks_and_the_interval_hardly_changes(monkeypatch):
    label, prob, group = study(6, n_groups=400)
    figures = Figures(label, prob, group)
    one_by_one = cluster_bootstrap(figures, 400)[Key("brier")].ci95
    assert MAX_JACKKNIFE > 400
    monkeypatch.setattr("usvit.metrics.bootstrap.MAX_JACKKNIFE", 100)
    blocks = cluster_bootstrap(figures, 400)[Key("brier")].ci95
    assert blocks == pytest.approx(one_by_one, abs=0.05 * (one_by_one[1] - one_by_one[0]))


def test_work_grows_with_images_times_resamples_and_not_faster():
    """Counted in rows of weights, not in seconds: each resample and each group left out is looked at once."""
    seen = []

    def figures(counts):
        seen.append(counts.shape)
        return {"sum": counts @ np.arange(90.0)}

    cluster_bootstrap(figures, 90, n_resamples=500)
    assert sum(rows for rows, _ in seen) == 1 + 500 + 90
    assert max(rows for rows, _ in seen) <= CHUNK


# --- what stands in the way


def test_percentiles_where_bca_cannot_be_had_and_the_reason():
    def distinct(counts):  # no resample has as many groups as the data
        return {"distinct": (counts > 0).sum(axis=1).astype(float)}

    found = cluster_bootstrap(distinct, 30)["distinct"]
    assert found.method == "percentile"
    assert found.reason == "no BCa: all resamples are on one side of the value"
    assert found.ci95[1] < found.value == 30

    def only_if_all_but_few(counts):  # the jackknife never changes it, resamples do
        return {"few": np.where((counts == 0).sum(axis=1) <= 1, 1.0, counts[:, 0])}

    found = cluster_bootstrap(only_if_all_but_few, 30)["few"]
    assert found.method == "percentile"
    assert found.reason.startswith("no BCa: leaving out a group makes the figure undefined, or never changes it")


def test_a_class_of_one_patient_has_a_sensitivity_with_a_reason_beside_its_interval():
    label = np.array([0] * 30 + [1] * 3)
    prob = np.tile([0.9, 0.1], (33, 1))
    prob[30:32] = [0.2, 0.8]
    group = np.array([*range(30), 30, 30, 30])
    found = figure_values(label, prob, group, classes=["benign", "malignant"]).values
    sensitivity = found["sensitivity"]["malignant"]
    assert sensitivity.value == pytest.approx(2 / 3)
    assert sensitivity.ci95 is None and sensitivity.n_groups == 1
    assert sensitivity.reason == "there is only one group"
    assert found["balanced_accuracy"].reason == "there is only one group with images of some class"


def test_a_perfect_share_of_clustered_images_is_bounded_by_its_groups():
    label = np.repeat([0, 1], 20)
    prob = np.eye(2)[label] * 0.8 + 0.1
    group = np.repeat(np.arange(10), 4)  # five groups of each class
    found = figure_values(label, prob, group, classes=["benign", "malignant"]).values
    assert found["sensitivity"]["malignant"].ci95 == pytest.approx([0.025 ** (1 / 5), 1])
    assert found["accuracy"].ci95 == pytest.approx([0.025 ** (1 / 10), 1])
    reach = (1 - 0.025 ** (1 / 5)) / np.sqrt(2)  # the mean of two independent classes
    assert found["balanced_accuracy"].ci95 == pytest.approx([1 - reach, 1])
    assert "10 groups only" in found["accuracy"].warning
    for name in ("mcc", "f1_macro"):
        low, high = found[name].ci95
        assert 0.3 < low < 0.69 and high == 1  # no error in 10 groups, at most 0.31 of them are wrong: F1 of 0.69


def test_a_proportion_of_independent_images_has_a_closed_interval_and_the_rest_a_bootstrap():
    label, prob, _ = study(7)
    alone = np.arange(len(label))
    found = figure_values(label, prob, alone, classes=CLASSES).values
    right = int((prob.argmax(axis=1) == label).sum())
    assert found["accuracy"].method == "wilson"
    assert found["accuracy"].ci95 == pytest.approx(wilson(right, len(label)))
    assert found["brier"].method == "cluster bootstrap, BCa, 2000 resamples"
    # Only the images that it looks at count: here each patient has one benign image and others.
    group = np.where(label == 0, alone, -1)
    one = figure_values(label, prob, group, classes=CLASSES).values
    assert one["sensitivity"]["benign"].method == "wilson"
    assert one["accuracy"].method == "clustered Wilson"
