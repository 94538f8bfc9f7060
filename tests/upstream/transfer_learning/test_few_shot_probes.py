"""The classifiers of the few-shot probe against those of scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from usvit.config import build
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.transfer_learning.few_shot_probes import probe_of, settings_of


def config(**given):
    return build(TransferConfig, given)


def example(n=21, n_classes=3):
    rng = np.random.default_rng(3)
    targets = np.arange(n) % n_classes
    return rng.normal(size=(n, 6)) + 2 * np.eye(n_classes, 6)[targets], targets, rng.normal(size=(15, 6))


@pytest.mark.parametrize("k", [1, 4, 21])
def test_neighbours_vote_as_those_of_scikit_learn(k):
    features, targets, queries = example()
    found = probe_of(config(probe="neighbours", sigma=0.2), features, targets, 3).solve(k)(queries)
    peer = KNeighborsClassifier(k, metric="cosine", weights=lambda distance: np.exp((1 - distance) / 0.2))
    expected = peer.fit(features, targets).predict_proba(queries)
    assert np.exp(found) == pytest.approx(expected, abs=1e-9)


def test_the_regression_is_that_of_scikit_learn():
    features, targets, queries = example()
    found = probe_of(config(probe="logistic"), features, targets, 3).solve(0.1)(queries)
    std = features.std(0) + 1e-5
    peer = LogisticRegression(C=1 / (0.1 * len(features)), tol=1e-8, max_iter=5000).fit(features / std, targets)
    found = np.exp(found) / np.exp(found).sum(1, keepdims=True)
    assert found == pytest.approx(peer.predict_proba(queries / std), abs=1e-4)


def test_there_are_no_more_neighbours_than_images():
    wanted = config(probe="neighbours", k=[20, 5, 10])
    assert settings_of(wanted, 6) == ("neighbours", [5, 6])
    assert settings_of(wanted, 2) == ("neighbours", [2])
    assert settings_of(config(probe="logistic", l2=[3.0]), 2) == ("l2", (3.0,))
