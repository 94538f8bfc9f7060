import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from scipy.stats import norm, rankdata
from sklearn.metrics import roc_auc_score

from tests.oracles.slow import hand_till, obuchowski, pairs_won
from usvit.metrics.bootstrap import cluster_bootstrap
from usvit.metrics.clustered import area_covariance, area_parts, clustered_auc, clustered_difference
from usvit.metrics.delong import placements
from usvit.metrics.multiclass import mean_area, multiclass_auc, multiclass_difference

PROC = json.loads((Path(__file__).parents[1] / "oracles/proc.json").read_text())
Z = norm.ppf(0.975)


def patients(seed, n_groups=60, *, size=3, by_image=False, rho=0.6, ties=True):
    """Labels, two models' scores and patients, correlated within a patient."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), rng.integers(1, size + 1, n_groups))
    n = len(group)
    positive = rng.random(n) < 0.4 if by_image else (rng.random(n_groups) < 0.4)[group]
    own = rng.normal(size=n_groups)[group]
    a, b = (1.5 * positive + rho**0.5 * own + (1 - rho) ** 0.5 * rng.normal(size=n) for _ in range(2))
    return (positive, np.round(a, 1), np.round(b, 1), group) if ties else (positive, a, b, group)


def three_classes(seed, n_groups=120, size=2):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n_groups), rng.integers(1, size + 1, n_groups))
    label = np.where(rng.random(len(group)) < 0.7, rng.integers(0, 3, n_groups)[group], 0)  # most patients: one label
    probs = []
    for _ in range(2):
        raw = rng.normal(size=(len(group), 3)) + rng.normal(size=(n_groups, 3))[group] + 1.5 * np.eye(3)[label]
        probs.append(np.exp(raw) / np.exp(raw).sum(axis=1, keepdims=True))
    return label, probs[0], probs[1], group


def by_ranks(label, prob, average):
    """Mean AUCs over three classes by Mann and Whitney's rank sums."""

    def area(up, down):
        ranks = rankdata(np.concatenate([up, down]))
        return (ranks[: len(up)].sum() - len(up) * (len(up) + 1) / 2) / (len(up) * len(down))

    if average == "hand-till":
        pairs = [(i, j) for i in range(3) for j in range(3) if i != j]
        return np.mean([area(prob[label == i, i], prob[label == j, i]) for i, j in pairs])
    areas = [area(prob[label == k, k], prob[label != k, k]) for k in range(3)]
    return np.average(areas, weights=np.bincount(label) if average == "weighted" else None)


def resampled_areas(positive, score, counts):
    """(B,) AUCs of B resamples that draw image i counts[b, i] times."""
    up, down = counts[:, positive], counts[:, ~positive]
    won = (score[positive][:, None] > score[~positive]) + 0.5 * (score[positive][:, None] == score[~positive])
    return ((up @ won) * down).sum(axis=1) / (up.sum(axis=1) * down.sum(axis=1))


# --- against R's pROC, for independent cases


@pytest.mark.parametrize("case", ["small", "large"])
def test_the_covariance_of_images_that_are_their_own_groups_is_that_of_proc(case):
    golden = PROC[case]
    positive = np.array(golden["positive"], dtype=bool)
    alone = np.arange(len(positive))
    a, b = (area_parts(positive, np.array(golden[name], dtype=float), alone, len(alone)) for name in "ab")
    np.testing.assert_allclose([a.value, b.value], [golden["auc_a"], golden["auc_b"]], rtol=1e-12)
    found = [area_covariance(a, a), area_covariance(a, b), area_covariance(b, b)]
    np.testing.assert_allclose(found, [golden["var_a"], golden["cov"], golden["var_b"]], rtol=1e-10)


@pytest.mark.parametrize("case", ["small", "large"])
def test_the_paired_test_of_images_that_are_their_own_groups_is_that_of_proc(case):
    golden = PROC[case]
    found = clustered_difference(golden["positive"], golden["a"], golden["b"], range(len(golden["a"])))
    assert found.p == pytest.approx(golden["p"], rel=1e-9)
    assert found.value == pytest.approx(golden["auc_a"] - golden["auc_b"], abs=1e-14)
    error = (golden["var_a"] + golden["var_b"] - 2 * golden["cov"]) ** 0.5
    assert found.ci95 == pytest.approx([found.value - Z * error, found.value + Z * error])


def test_procs_interval_and_ours_differ_by_the_logit_scale_alone():
    golden = PROC["large"]
    found = clustered_auc(golden["positive"], golden["a"], range(len(golden["a"])))
    half = (golden["ci_a"][2] - golden["ci_a"][0]) / 2  # pROC's is symmetric
    middle, stretch = logit(found.value), 1 / (found.value * (1 - found.value))
    assert found.ci95 == pytest.approx([expit(middle - half * stretch), expit(middle + half * stretch)], rel=1e-9)


def test_hand_till_is_that_of_proc():
    golden = PROC["multiclass"]
    prob = np.column_stack([golden["prob_a"], golden["prob_b"], golden["prob_c"]])
    found = multiclass_auc(golden["label"], prob, range(len(prob)), average="hand-till")
    assert found.value == pytest.approx(golden["hand_till"], rel=1e-12)


# --- against slow and independent code


@settings(max_examples=60)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=2, max_size=25))
def test_placements_are_shares_of_pairs(cases):
    positive = np.array([case[0] for case in cases])
    score = np.array([float(case[1]) for case in cases])
    if positive.all() or not positive.any():
        return
    v10, v01 = placements(positive, score)
    up, down = score[positive], score[~positive]
    np.testing.assert_allclose(v10, [pairs_won([x], down) for x in up], atol=1e-14)
    np.testing.assert_allclose(v01, [pairs_won(up, [y]) for y in down], atol=1e-14)


@pytest.mark.parametrize("by_image", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_clustered_covariance_is_obuchowskis_literally(seed, by_image):
    positive, a, b, group = patients(seed, 25, by_image=by_image)
    areas, expected = obuchowski(positive.tolist(), [a.tolist(), b.tolist()], group.tolist())
    one, other = (area_parts(positive, score, group, 25) for score in (a, b))
    assert [one.value, other.value] == pytest.approx(areas, abs=1e-14)
    found = [[area_covariance(one, one), area_covariance(one, other)], [None, area_covariance(other, other)]]
    assert found[0] == pytest.approx(expected[0], rel=1e-10)
    assert found[1][1] == pytest.approx(expected[1][1], rel=1e-10)
    assert area_covariance(other, one) == pytest.approx(expected[1][0], rel=1e-10)


@pytest.mark.parametrize("by_image", [False, True])
def test_the_clustered_variance_is_that_of_a_cluster_bootstrap(by_image):
    positive, a, _, group = patients(11, 300, by_image=by_image, ties=False)
    parts = area_parts(positive, a, group, 300)
    rng = np.random.default_rng(0)
    counts = np.stack([np.bincount(rng.integers(0, 300, 300), minlength=300) for _ in range(4000)]).astype(float)
    assert resampled_areas(positive, a, np.ones((1, 300))[:, group])[0] == pytest.approx(parts.value, abs=1e-12)
    spread = resampled_areas(positive, a, counts[:, group]).std(ddof=1)
    assert area_covariance(parts, parts) ** 0.5 == pytest.approx(spread, rel=0.05)  # 4,000 resamples: 1.1 % each way


@pytest.mark.slow
@pytest.mark.parametrize("average", ["macro", "weighted", "hand-till"])
def test_the_multiclass_variance_is_that_of_a_cluster_bootstrap(average):
    label, prob, _, group = three_classes(2)
    n_groups = group.max() + 1
    mean = mean_area(label, prob, group, n_groups, average, 1)
    rng = np.random.default_rng(1)
    drawn = []
    for _ in range(1000):
        groups = rng.integers(0, n_groups, n_groups)
        rows = np.repeat(np.arange(len(label)), np.bincount(groups, minlength=n_groups)[group])
        drawn.append(by_ranks(label[rows], prob[rows], average))
    assert mean.value == pytest.approx(by_ranks(label, prob, average), abs=1e-12)
    assert (mean.total @ mean.total) ** 0.5 == pytest.approx(np.std(drawn, ddof=1), rel=0.08)


@pytest.mark.parametrize(
    ("average", "asked"),
    [("macro", ("ovr", "macro")), ("weighted", ("ovr", "weighted")), ("hand-till", ("ovo", "macro"))],
)
def test_averages_over_classes_are_those_of_scikit_learn(average, asked):
    label, prob, _, group = three_classes(5)
    found = multiclass_auc(label, prob, group, average=average)
    assert found.value == pytest.approx(roc_auc_score(label, prob, multi_class=asked[0], average=asked[1]), abs=1e-12)
    assert found.ci95[0] < found.value < found.ci95[1]
    if average == "hand-till":
        assert found.value == pytest.approx(hand_till(label.tolist(), prob.tolist()), abs=1e-12)


@pytest.mark.parametrize("average", ["macro", "weighted", "hand-till"])
def test_with_two_classes_every_average_is_the_auc_itself(average):
    positive, a, b, group = patients(4)
    one, other = (np.column_stack([1 - expit(s), expit(s)]) for s in (a, b))
    found = multiclass_auc(positive.astype(int), one, group, average=average)
    binary = clustered_auc(positive, one[:, 1], group)
    assert (found.value, found.ci95) == (binary.value, binary.ci95)
    pair = multiclass_difference(positive.astype(int), one, other, group, average=average)
    assert pair.p == clustered_difference(positive, one[:, 1], other[:, 1], group).p


def test_the_macro_difference_has_the_variance_of_a_paired_cluster_bootstrap():
    label, a, b, group = three_classes(9)
    n_groups = group.max() + 1
    found = multiclass_difference(label, a, b, group)

    def difference(counts):
        means = [
            np.mean([resampled_areas(label == k, prob[:, k], counts[:, group]) for k in range(3)], axis=0)
            for prob in (a, b)
        ]
        return {"difference": means[0] - means[1]}

    low, high = cluster_bootstrap(difference, n_groups)["difference"].ci95
    assert found.ci95[1] - found.ci95[0] == pytest.approx(high - low, rel=0.1)
    assert found.value == pytest.approx(difference(np.ones((1, n_groups)))["difference"][0], abs=1e-12)


# --- what must hold whatever the data


def test_the_interval_is_as_wide_as_with_one_image_when_every_image_is_repeated_within_its_patient():
    positive, a, b, group = patients(6, 250)
    once, thrice = clustered_auc(positive, a, group), clustered_auc(*(np.repeat(x, 3) for x in (positive, a, group)))
    assert thrice.value == pytest.approx(once.value, abs=1e-14)
    assert thrice.ci95 == pytest.approx(once.ci95, rel=1e-12)
    independent = clustered_auc(np.repeat(positive, 3), np.repeat(a, 3), range(3 * len(a))).ci95
    assert independent[1] - independent[0] < 0.75 * (once.ci95[1] - once.ci95[0])
    pair = clustered_difference(*(np.repeat(x, 3) for x in (positive, a, b, group)))
    assert pair.p == pytest.approx(clustered_difference(positive, a, b, group).p)


@settings(max_examples=40)
@given(st.integers(0, 10_000), st.booleans())
def test_intervals_stay_within_zero_and_one_around_the_value(seed, by_image):
    positive, a, _, group = patients(seed, 12, by_image=by_image)
    found = clustered_auc(positive, a, group)
    if found.ci95 is not None:
        assert 0 <= found.ci95[0] <= found.value <= found.ci95[1] <= 1
    else:
        assert found.reason


def test_ranks_alone_count_and_the_mirror_image_is_mirrored():
    positive, a, _, group = patients(8)
    one = clustered_auc(positive, a, group)
    assert clustered_auc(positive, np.exp(3 * a), group).ci95 == pytest.approx(one.ci95, rel=1e-12)
    turned = clustered_auc(positive, -a, group)
    assert turned.ci95 == pytest.approx([1 - one.ci95[1], 1 - one.ci95[0]], rel=1e-9)
    assert clustered_auc(~positive, -a, group).ci95 == pytest.approx(one.ci95, rel=1e-9)


def test_names_and_order_of_rows_and_groups_do_not_matter():
    positive, a, b, group = patients(9)
    order = np.random.default_rng(0).permutation(len(a))
    names = np.array([f"patient {999 - g}" for g in group], dtype=object)
    one = clustered_difference(positive, a, b, group)
    other = clustered_difference(positive[order], a[order], b[order], names[order])
    assert other.p == pytest.approx(one.p)
    assert other.ci95 == pytest.approx(one.ci95)


def test_a_model_is_not_better_than_itself_and_a_turned_comparison_is_turned():
    positive, a, b, group = patients(10)
    same = clustered_difference(positive, a, 2 * a + 1, group)
    assert (same.value, same.p, same.ci95) == (0, 1, None)
    assert "differ in no group" in same.reason
    one, turned = clustered_difference(positive, a, b, group), clustered_difference(positive, b, a, group)
    assert turned.value == -one.value
    assert turned.p == pytest.approx(one.p)


def test_perfect_against_inverted_has_no_variance_and_so_no_p():
    positive = np.array([True, True, False, False])
    found = clustered_difference(positive, positive * 1.0, positive * -1.0, [1, 2, 3, 4])
    assert found.value == 1
    assert found.ci95 is None and found.p is None and found.reason


# --- AUC of 0 or 1, and what is too little


def test_a_perfect_auc_is_bounded_by_its_disjoint_pairs_of_patients():
    # Six patients, two images each: 3 pairs of a positive and a negative patient, each right with p = AUC at most.
    positive = np.repeat([True, True, True, False, False, False], 2)
    group = np.repeat(np.arange(6), 2)
    found = clustered_auc(positive, positive * 1.0, group)
    assert found.value == 1
    assert found.ci95 == pytest.approx([0.025 ** (1 / 3), 1])
    assert found.method == "Clopper-Pearson on 3 disjoint pairs of groups"
    assert "variance is 0" in found.reason and "3 groups with positive" in found.warning
    inverted = clustered_auc(positive, positive * -1.0, group)
    assert inverted.ci95 == pytest.approx([0, 1 - 0.025 ** (1 / 3)])


def test_patients_with_both_labels_are_used_in_one_pair_only():
    positive, group = np.array([True, False] * 4), np.repeat(np.arange(4), 2)
    assert clustered_auc(positive, positive * 1.0, group).ci95 == pytest.approx([0.025**0.5, 1])
    assert clustered_auc(positive[:2], positive[:2] * 1.0, group[:2]).ci95 is None


def test_a_perfect_macro_auc_is_bounded_by_its_rarest_class():
    label = np.repeat([0, 1, 2], [10, 5, 2])
    for average in ("macro", "weighted", "hand-till"):
        found = multiclass_auc(label, np.eye(3)[label] * 0.8 + 0.2 / 3, range(17), average=average)
        assert found.value == 1
        assert found.ci95 == pytest.approx([0.025**0.5, 1])


def test_a_class_of_one_group_leaves_the_average_without_an_interval():
    label, prob, _, group = three_classes(5)
    group = group + 1
    group[label == 2] = 0  # one patient has all images of the class
    found = multiclass_auc(label, prob, group)
    assert found.value is not None and found.ci95 is None
    assert "two groups with a positive" in found.reason


def test_the_warning_stands_below_fifty_groups_of_the_rarer_class_and_nowhere_else():
    for n_groups, up in ((60, 49), (400, 49), (99, 50)):
        group = np.arange(n_groups)
        positive = group < up
        a, b = (positive + np.random.default_rng(k).normal(size=n_groups) for k in range(2))
        said = (
            f"from {min(up, n_groups - up)} groups with {'positive' if up < n_groups - up else 'negative'} images only"
        )
        assert said in clustered_auc(positive, a, group).warning
        assert said in clustered_difference(positive, a, b, group).warning
    group = np.arange(100)
    positive = group < 50
    a, b = (positive + np.random.default_rng(k).normal(size=100) for k in range(2))
    assert clustered_auc(positive, a, group).warning is None
    assert clustered_difference(positive, a, b, group).warning is None


@settings(max_examples=40)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=20))
def test_small_and_tied_data_give_a_number_or_a_reason(rows):
    positive, score, group = (np.array(column) for column in zip(*rows, strict=True))
    for found in (
        clustered_auc(positive, score, group),
        clustered_difference(positive, score, -score, group),
    ):
        json.dumps(found.content(), allow_nan=False)
        assert found.ci95 is not None or found.reason


@pytest.mark.parametrize(("shift", "both"), [(1.5, False), (2.5, False), (2.5, True)])
def test_a_perfect_auc_is_as_rare_as_the_bound_takes_for_granted(shift, both):
    """P(every pair right) is at most AUC^pairs, also where each patient gives one image of either class."""
    rng = np.random.default_rng(0)
    own = rng.normal(size=(20_000, 6)) if both else 0.0
    up = shift + own + rng.normal(size=(20_000, 6))
    down = own + rng.normal(size=(20_000, 6))
    perfect = (up.min(axis=1) > down.max(axis=1)).mean()
    area = norm.cdf(shift / 2) if both else norm.cdf(shift / 2**0.5)  # of different patients
    group = np.tile(np.arange(6), 2) if both else np.arange(12)
    positive = np.repeat([True, False], 6)
    pairs = area_parts(positive, positive * 1.0, group, 12).disjoint_pairs
    assert pairs == (3 if both else 6)
    assert 0 < perfect < area**pairs
