"""The few-shot probe against a dense solve of the augmented system."""

import numpy as np
import pandas as pd
import pytest

from usvit.upstream.transfer_learning.least_squares import L2, LeastSquares, choose


def dense(features, targets, n_classes, l2, queries):
    """numpy's lstsq on [X 100; sqrt(l2) I] W = [T; 0], the bias a feature like the others."""
    mean, std = features.mean(0), features.std(0) + 1e-5

    def augmented(x):
        return np.column_stack([(x - mean) / std, np.full(len(x), 100.0)])

    width = features.shape[1] + 1
    system = np.vstack([augmented(features), np.sqrt(l2) * np.eye(width)])
    goal = np.vstack([2 * np.eye(n_classes)[targets] - 1, np.zeros((width, n_classes))])
    return augmented(queries) @ np.linalg.lstsq(system, goal, rcond=None)[0]


@pytest.mark.parametrize("shape", [(12, 30), (30, 30), (200, 30)], ids=["few images", "square", "many images"])
@pytest.mark.parametrize("l2", [2.0**-10, 1.0, 2.0**9])
def test_solution_is_the_dense_one(shape, l2):
    rng = np.random.default_rng(1)
    features, queries = 3 + 2 * rng.normal(size=shape), rng.normal(size=(7, shape[1]))
    targets = np.arange(shape[0]) % 4
    found = LeastSquares.of(features.astype(np.float32), targets, 4).solve(l2)(queries)
    expected = dense(features.astype(np.float32).astype(np.float64), targets, 4, l2, queries)
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-9)


def test_classes_of_unequal_size_and_a_constant_feature_do_not_disturb_it():
    rng = np.random.default_rng(2)
    features = rng.normal(size=(40, 5))
    features[:, 2] = 7.0
    targets = np.array([0] * 30 + [1] * 8 + [2] * 2)
    found = LeastSquares.of(features, targets, 3).solve(0.5)(features)
    np.testing.assert_allclose(found, dense(features, targets, 3, 0.5, features), rtol=1e-7, atol=1e-9)


def test_separable_classes_are_told_apart():
    rng = np.random.default_rng(0)
    centre = 5 * rng.normal(size=(3, 8))
    train, test = np.repeat(np.arange(3), 5), np.repeat(np.arange(3), 20)
    probe = LeastSquares.of(centre[train] + rng.normal(size=(15, 8)), train, 3).solve(1.0)
    assert (probe(centre[test] + rng.normal(size=(60, 8))).argmax(1) == test).mean() > 0.95


def test_of_equally_good_strengths_the_strongest_is_taken():
    rows = [(0.1, 0, 0.5), (0.1, 1, 0.9), (1.0, 0, 0.7), (1.0, 1, 0.7), (9.0, 0, 0.6), (9.0, 1, 0.7)]
    assert choose(pd.DataFrame(rows, columns=["setting", "draw", "accuracy"])) == 1.0


def test_the_grid_is_that_of_the_source():
    assert (L2[0], L2[-1], len(L2)) == (1 / 1024, 512, 20)
