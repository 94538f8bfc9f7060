"""Weights of a mixture, against a search over the whole simplex and the conditions of an optimum."""

import itertools

import numpy as np
import pytest

from usvit.metrics.mixture_weights import mixture_log_loss, mixture_weights


def simplex(n_models, steps):
    """All weights that are multiples of 1 / steps and sum to 1."""
    for bars in itertools.combinations(range(steps + n_models - 1), n_models - 1):
        edges = (-1, *bars, steps + n_models - 1)
        yield np.diff(edges).astype(float) - 1


def brute_force(reached, steps):
    points = np.array(list(simplex(len(reached), steps))) / steps
    losses = -np.log(points @ reached).mean(axis=1)
    return points[losses.argmin()], losses.min()


def models(seed, n_models, n=60):
    """Models of different skill whose errors differ: probabilities of the reference class."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(rng.uniform(-0.5, 2, n_models)[:, None], rng.uniform(0.5, 3, n_models)[:, None], (n_models, n))
    return 1 / (1 + np.exp(-logits))


@pytest.mark.parametrize(
    ("seed", "n_models", "steps"), [(0, 2, 400), (1, 2, 400), (2, 3, 100), (3, 3, 100), (4, 4, 30)]
)
def test_no_point_of_a_fine_grid_has_a_smaller_log_loss(seed, n_models, steps):
    reached = models(seed, n_models)
    weights = mixture_weights(reached)
    nearest, loss = brute_force(reached, steps)
    assert weights.min() >= 0 and weights.sum() == pytest.approx(1)
    assert mixture_log_loss(reached, weights) <= loss + 1e-9
    assert np.abs(weights - nearest).max() <= 2.5 / steps  # a flat optimum may lie between points


@pytest.mark.parametrize("seed", range(5))
def test_the_conditions_of_an_optimum_hold(seed):
    # Karush, Kuhn and Tucker: the mean of p_m / mixture is 1 for models with a weight, and at most 1 for the others.
    reached = models(seed, 5, n=200)
    weights = mixture_weights(reached)
    gain = (reached / (weights @ reached)).mean(axis=1)
    np.testing.assert_allclose(gain[weights > 1e-3], 1, atol=1e-3)
    assert gain.max() <= 1 + 1e-3


def test_equal_models_keep_equal_weights_and_a_hopeless_one_has_none():
    one = models(0, 1)
    np.testing.assert_allclose(mixture_weights(np.repeat(one, 3, axis=0)), 1 / 3)
    hopeless = np.concatenate([one, one * 1e-3])
    assert mixture_weights(hopeless).tolist() == [1, 0]
    assert mixture_weights(one).tolist() == [1]


def test_the_log_loss_is_that_of_scikit_learn_and_a_probability_of_0_is_bounded():
    from sklearn.metrics import log_loss

    reached, weights = models(1, 2), np.array([0.3, 0.7])
    prob = weights @ reached
    assert mixture_log_loss(reached, weights) == pytest.approx(log_loss(np.ones(60), prob, labels=[0, 1]))
    assert np.isfinite(mixture_log_loss([[0.0, 1.0]], [1.0]))
    assert mixture_weights([[0.0, 1.0], [0.5, 0.5]]).tolist() == pytest.approx([0, 1], abs=1e-3)


@pytest.mark.parametrize("wrong", [np.zeros((0, 3)), np.zeros((2, 0)), [[1.1, 0.5]], [[np.nan, 0.5]], [0.5]])
def test_what_is_no_probability_is_refused(wrong):
    with pytest.raises(ValueError, match="probabilities in"):
        mixture_weights(wrong)
