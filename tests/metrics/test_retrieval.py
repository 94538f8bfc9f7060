"""Nearest neighbours against loops of the thesis' equations, and scikit-learn's average precision."""

import math

import numpy as np
import pytest
from scipy.stats import bootstrap
from sklearn.metrics import average_precision_score
from sklearn.metrics.pairwise import cosine_similarity

from usvit.metrics import retrieval
from usvit.metrics.retrieval import (
    average_precision,
    average_precisions,
    choose_k,
    knn_probabilities,
    leave_one_out,
    mean_precisions,
)


@pytest.fixture
def cloud():
    """Three classes that overlap: queries, keys, and the labels of both."""
    rng = np.random.default_rng(3)
    centre = rng.normal(size=(3, 6))
    of_key, of_query = rng.integers(0, 3, 40), rng.integers(0, 3, 15)
    keys = centre[of_key] + 1.5 * rng.normal(size=(40, 6))
    queries = centre[of_query] + 1.5 * rng.normal(size=(15, 6))
    return queries, keys, of_query, of_key


def mean_average_precision(*arguments, **options):
    return mean_precisions({"map": average_precisions(*arguments, **options)}, n_resamples=2)["map"].value


def similarity(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def equation_2_6(query, keys, labels, k, sigma, n_classes):
    near = sorted(range(len(keys)), key=lambda j: -similarity(query, keys[j]))[:k]
    total = [0.0] * n_classes
    for j in near:
        total[labels[j]] += math.exp(similarity(query, keys[j]) / sigma)
    return [one / sum(total) for one in total]


@pytest.mark.parametrize(("k", "sigma"), [(1, 0.05), (7, 0.05), (7, 1.0), (40, 0.3)])
def test_probabilities_are_equation_2_6(cloud, k, sigma):
    queries, keys, _, labels = cloud
    found = knn_probabilities(queries, keys, labels, k, sigma, n_classes=4)
    expected = [equation_2_6(query, keys, labels, k, sigma, 4) for query in queries]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_array_equal(found.argmax(axis=1), np.argmax(expected, axis=1))


def test_a_small_sigma_lets_the_nearest_decide_without_overflow(cloud):
    queries, keys, _, labels = cloud
    found = knn_probabilities(queries, keys, labels, 20, 1e-5)
    np.testing.assert_array_equal(found.argmax(1), labels[cosine_similarity(queries, keys).argmax(1)])
    np.testing.assert_allclose(found.sum(1), 1)


def test_of_equally_near_keys_the_first_count():
    keys = np.array([[1.0, 0], [1.0, 0], [1.0, 0], [0, 1.0]])
    np.testing.assert_allclose(knn_probabilities([[1.0, 0]], keys, [2, 1, 0, 0], 2), [[0, 0.5, 0.5]])


def test_a_vector_of_zeros_is_near_nothing():
    assert knn_probabilities([[0.0, 0.0]], [[1.0, 2.0], [2.0, -1.0]], [0, 1], 2).tolist() == [[0.5, 0.5]]


def test_leave_one_out_is_a_loop_without_the_key_itself(cloud):
    _, keys, _, labels = cloud
    for k, accuracy in leave_one_out(keys, labels, (3, 9), 0.1).items():
        right = 0
        for i in range(len(keys)):
            others = np.delete(np.arange(len(keys)), i)
            right += int(np.argmax(equation_2_6(keys[i], keys[others], labels[others], k, 0.1, 3)) == labels[i])
        assert accuracy == right / len(keys)


def test_leave_one_out_leaves_out_a_whole_patient():
    # Each patient has two equal images; without them its images are judged by the other class alone.
    keys = np.array([[1.0, 0], [1.0, 0], [0.0, 1], [0.0, 1]])
    labels, patients = [0, 0, 1, 1], ["a", "a", "b", "b"]
    assert leave_one_out(keys, labels, (1,)) == {1: 1.0}
    assert leave_one_out(keys, labels, (1,), groups=patients) == {1: 0.0}


def test_k_is_the_best_that_there_are_neighbours_for(cloud):
    _, keys, _, labels = cloud
    accuracy = leave_one_out(keys, labels, (1, 5, 20, 39, 40))
    assert set(accuracy) == {1, 5, 20, 39}  # 39 others
    best = max(accuracy.values())
    assert choose_k(accuracy) == min(k for k, one in accuracy.items() if one == best)
    assert choose_k({20: 0.5, 10: 0.5, 5: 0.4}) == 10
    assert set(leave_one_out(keys[:4], labels[:4])) == {3}  # all of K_CHOICES are too many


def test_some_keys_can_be_judged_by_all_others(cloud):
    _, keys, _, labels = cloud
    right = [leave_one_out(keys, labels, (3,), rows=np.array([row]))[3] for row in (4, 9, 30)]
    assert set(right) <= {0.0, 1.0}
    assert leave_one_out(keys, labels, (3,), rows=np.array([4, 9, 30])) == {3: pytest.approx(np.mean(right))}
    assert leave_one_out(keys, labels, (3,), rows=np.arange(len(keys))) == leave_one_out(keys, labels, (3,))


def test_portions_change_nothing(cloud, monkeypatch):
    queries, keys, of_query, of_key = cloud

    def everything():
        return (
            knn_probabilities(queries, keys, of_key, 5).tolist(),
            leave_one_out(keys, of_key, (3, 5)),
            mean_average_precision(queries, keys, of_query, of_key),
        )

    whole = everything()
    monkeypatch.setattr(retrieval, "_CELLS", 120)  # three queries at once
    portions = everything()
    np.testing.assert_allclose(portions[0], whole[0], atol=1e-12)
    assert portions[1] == whole[1]
    assert portions[2] == pytest.approx(whole[2], abs=1e-12)


def test_mean_average_precision_is_scikit_learns(cloud):
    queries, keys, of_query, of_key = cloud
    expected = [
        average_precision_score(of_key == label, cosine_similarity([query], keys)[0])
        for query, label in zip(queries, of_query, strict=True)
    ]
    assert mean_average_precision(queries, keys, of_query, of_key) == pytest.approx(np.mean(expected), abs=1e-12)


def test_average_precision_by_hand():
    # Right ones at ranks 1, 3: (1/1 + 2/3) / 2.
    assert average_precision([[0.9, 0.8, 0.7, 0.1]], [[1, 0, 1, 0]])[0] == pytest.approx((1 + 2 / 3) / 2)


def test_ties_share_a_rank_so_that_order_does_not_matter():
    scores = np.array([[0.5, 0.5, 0.5, 0.5, 0.2]])
    for relevant in ([1, 0, 0, 0, 1], [0, 0, 0, 1, 1]):
        expected = average_precision_score(relevant, scores[0])
        assert average_precision(scores, [relevant])[0] == pytest.approx(expected)


def test_queries_without_a_right_key_do_not_count():
    queries, keys = [[1.0, 0], [0, 1.0]], [[1.0, 0.1], [0.1, 1.0]]
    assert mean_average_precision(queries, keys, [0, 2], [0, 1]) == 1.0
    assert mean_average_precision(queries, keys, [2, 2], [0, 1]) is None


@pytest.fixture
def precisions():
    return np.random.default_rng(5).beta(2, 3, 80)


def test_the_interval_of_a_mean_of_independent_queries_is_scipys_bca(precisions):
    found = mean_precisions({"map": precisions})["map"]
    assert found.value == pytest.approx(precisions.mean())
    theirs = bootstrap((precisions,), np.mean, n_resamples=5000, method="BCa", rng=0).confidence_interval
    assert found.ci95 == pytest.approx([theirs.low, theirs.high], abs=0.005)


def test_copies_of_a_query_within_its_patient_tell_nothing_new(precisions):
    alone = mean_precisions({"map": precisions})["map"]
    twice, patient = np.repeat(precisions, 2), np.repeat(np.arange(80), 2)
    found = mean_precisions({"map": twice}, patient)["map"]
    assert found.ci95 == pytest.approx(alone.ci95) and found.n_groups == alone.n_groups == 80
    low, high = mean_precisions({"map": twice})["map"].ci95  # as if they were 160 patients
    assert high - low < 0.8 * (alone.ci95[1] - alone.ci95[0])


def test_rankings_are_judged_on_the_same_draws_and_by_the_queries_that_count(precisions):
    with_others = np.concatenate([precisions, [np.nan, np.nan]])
    patient = [*range(80), 80, 0]
    found = mean_precisions({"a": with_others, "b": with_others / 2}, patient)
    assert found["a"].n_groups == 80
    assert found["a"].ci95 == pytest.approx(mean_precisions({"a": precisions})["a"].ci95)
    assert found["b"].ci95 == pytest.approx([bound / 2 for bound in found["a"].ci95])
    nothing = mean_precisions({"a": np.full(3, np.nan)})["a"]
    assert (nothing.value, nothing.ci95) == (None, None) and "no key" in nothing.reason


def test_conditional_ranking_is_equation_2_5_and_the_oracle_ranks_its_coarse_class_first(cloud):
    queries, keys, of_query, of_key = cloud
    rng = np.random.default_rng(0)
    coarse = np.minimum(of_key, 1)  # classes 1 and 2 are one
    prob = rng.dirichlet((1, 1), len(queries))
    expected = []
    for query, label, p in zip(queries, of_query, prob, strict=True):
        psi = [similarity(query, key) + math.log(p[y] / (1 - p[y])) for key, y in zip(keys, coarse, strict=True)]
        expected.append(average_precision_score(of_key == label, psi))
    found = mean_average_precision(queries, keys, of_query, of_key, coarse_prob=prob, key_coarse=coarse)
    assert found == pytest.approx(np.mean(expected), abs=1e-12)

    oracle = np.eye(2)[np.minimum(of_query, 1)]
    best = mean_average_precision(queries, keys, of_query, of_key, coarse_prob=oracle, key_coarse=coarse)
    same = [
        average_precision_score(of_key == label, 10 * (coarse == min(label, 1)) + cosine_similarity([query], keys)[0])
        for query, label in zip(queries, of_query, strict=True)
    ]
    assert best == pytest.approx(np.mean(same), abs=1e-12)
    assert best > mean_average_precision(queries, keys, of_query, of_key)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: knn_probabilities([[1.0]], [[1.0]], [0], 2), "2 neighbours of 1"),
        (lambda: knn_probabilities([[1.0]], [[1.0]], [-1], 1), "class numbers"),
        (lambda: knn_probabilities([[1.0]], [[np.nan]], [0], 1), "embedding 0 is not finite"),
        (lambda: knn_probabilities([[1.0]], [[1.0]], [0], 1, sigma=0), "sigma"),
        (lambda: leave_one_out([[1.0], [2.0]], [0, 1], groups=["a", "a"]), "keys of at least two groups"),
        (lambda: mean_average_precision([[1.0]], [[1.0]], [0], [0], key_coarse=[0]), "both coarse_prob and key_coarse"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_ranks_of_pairs_are_those_of_a_sort_and_equal_keys_come_first(monkeypatch):
    rng = np.random.default_rng(3)
    queries, keys = rng.normal(size=(2, 40, 3))
    order = np.argsort(-cosine_similarity(queries, keys), axis=1)
    expected = [1 + row.tolist().index(own) for own, row in enumerate(order)]
    assert retrieval.own_ranks(queries, keys).tolist() == expected
    monkeypatch.setattr(retrieval, "_CELLS", 120)  # blocks of three queries
    assert retrieval.own_ranks(queries, keys).tolist() == expected
    assert retrieval.own_ranks(np.ones((5, 3)), np.ones((5, 3))).tolist() == [5] * 5
    with pytest.raises(ValueError, match="no pairs"):
        retrieval.own_ranks(queries, keys[:-1])
