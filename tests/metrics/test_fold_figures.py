"""Contributions of the groups to a figure that is a function of weights, against those written out for a mean."""

import numpy as np
import pytest

from usvit.metrics.fold_figures import function_figure, mean_figure


def accuracy(label, prob, weight):
    return weight @ (prob.argmax(axis=1) == label) / weight.sum(axis=1)


def sensitivities(label, prob, weight):
    with np.errstate(invalid="ignore"):
        own = [label == k for k in range(prob.shape[1])]
        right = prob.argmax(axis=1) == label
        return np.stack([weight[:, one] @ right[one] / weight[:, one].sum(axis=1) for one in own], axis=1)


@pytest.fixture
def fold():
    rng = np.random.default_rng(2)
    return rng.integers(0, 3, 200), rng.dirichlet([1, 1, 1], 200), rng.integers(0, 60, 200)


def test_the_contributions_to_a_mean_are_those_written_out(fold):
    label, prob, code = fold
    right = (prob.argmax(axis=1) == label).astype(float)
    found = function_figure(accuracy, (label, prob), code, 70)
    usual = mean_figure(right, np.ones(200, bool), code, 70)
    assert found.value == pytest.approx(usual.value)
    np.testing.assert_allclose(found.strata["images"].adds, usual.strata["images"].adds, atol=1e-9)
    assert found.independent == usual.independent == len(np.unique(code))
    of_class = function_figure(sensitivities, (label, prob), code, 70, of_class=1)
    np.testing.assert_allclose(
        of_class.strata["images"].adds, mean_figure(right, label == 1, code, 70).strata["images"].adds, atol=1e-9
    )


def test_an_undefined_figure_is_none(fold):
    label, prob, code = fold
    assert function_figure(sensitivities, (np.where(label == 1, 0, label), prob), code, 70, of_class=1) is None
    assert function_figure(accuracy, (label[:0], prob[:0]), code[:0], 70) is None
