"""Logistic regression as the training of a head, against scikit-learn and against another solver."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from usvit.config import EarlyStoppingConfig
from usvit.errors import UsvitError
from usvit.models.architectures.frozen_features import EqualMaps
from usvit.training.logistic_head import HeadSample, fit_logistic_head

RNG = np.random.default_rng(0)
N, D, K = 30, 50, 3
FEATURES = (RNG.normal(size=(N, 1, D)) * RNG.uniform(0.5, 3, D) + RNG.normal(size=D)).astype(np.float32)
TARGETS = np.arange(N) % K
WEIGHTS = np.array([0.5, 1.0, 2.0])[TARGETS]


def fit(part, strengths, figures=None, on_best=lambda: None, targets=TARGETS, n=N):
    """Fit to the first ``n`` images; then to all, if these are fewer."""
    losses = iter(figures or [1.0] * len(strengths))

    def evaluate():
        return {"val_loss": next(losses), "val_accuracy": None, "val_auc": None}

    train, every = (HeadSample(FEATURES[:k], targets[:k], WEIGHTS[:k]) for k in (n, N))
    refit = every if n < N else None
    return fit_logistic_head([part], train, strengths, evaluate, EarlyStoppingConfig(), on_best, refit)


def direct(l2, share=1.0):
    """The same regression in all D features, by another solver."""
    x = FEATURES[:, 0].astype(np.float64)
    x = (x - x.mean(0)) / x.std(0) * share
    model = LogisticRegression(C=1 / (l2 * WEIGHTS.sum()), solver="newton-cg", tol=1e-10, max_iter=10_000)
    return model.fit(x, TARGETS, sample_weight=WEIGHTS).decision_function(x)


@pytest.mark.parametrize("standardised", [True, False])
def test_more_features_than_images_give_the_regression_on_all_features(standardised):
    linear = nn.Linear(D, K)
    part = nn.Sequential(nn.BatchNorm1d(D, affine=False), linear).eval() if standardised else linear
    fit(part, [0.1])
    with torch.no_grad():
        logits = part(torch.from_numpy(FEATURES[:, 0])).numpy()
    assert logits == pytest.approx(direct(0.1), abs=2e-3)


def test_maps_that_count_alike_have_the_penalty_on_the_features_that_the_classifier_sees():
    norm, linear = EqualMaps([10, D - 10]), nn.Linear(D, K)
    part = nn.Sequential(norm, linear).eval()
    fit(part, [0.1])
    with torch.no_grad():
        logits = part(torch.from_numpy(FEATURES[:, 0])).numpy()
    share = np.repeat([10**-0.5, 40**-0.5], [10, 40])
    assert logits == pytest.approx(direct(0.1, share / np.sqrt((share**2).mean())), abs=2e-3)


def test_the_strength_with_the_best_figure_is_kept_and_all_are_in_the_history():
    kept, part = [], nn.Linear(D, K)
    result = fit(part, [1.0, 0.1, 0.01], figures=[0.9, 0.5, 0.7], on_best=lambda: kept.append(1))
    assert (result.steps, result.best_step, len(kept)) == (3, 2, 2)
    assert result.history["l2"].tolist() == [1.0, 0.1, 0.01]
    with torch.no_grad():
        logits = part(torch.from_numpy(FEATURES[:, 0])).numpy()
    assert logits == pytest.approx(direct(0.1), abs=2e-3)


@pytest.mark.parametrize("standardised", [True, False])
def test_the_last_fit_is_to_all_images_with_the_strength_that_the_first_was_chosen_for(standardised):
    linear = nn.Linear(D, K)
    part = nn.Sequential(nn.BatchNorm1d(D, affine=False), linear).eval() if standardised else linear
    judged = []
    result = fit(part, [1.0, 0.1, 0.01], [0.9, 0.5, 0.7], lambda: judged.append(linear.weight.clone()), n=20)
    assert (result.steps, result.best_step, len(judged)) == (3, 2, 2)
    with torch.no_grad():
        logits = part(torch.from_numpy(FEATURES[:, 0])).numpy()
    assert logits == pytest.approx(direct(0.1), abs=2e-3)
    assert not torch.allclose(judged[-1], linear.weight, atol=1e-3)


def test_without_a_figure_the_first_strength_is_kept():
    assert fit(nn.Linear(D, K), [1.0, 0.1], figures=[None, None]).best_step == 1


@pytest.mark.parametrize("part", [nn.Conv2d(D, K, 1), nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, K))])
def test_another_head_than_a_linear_one_is_refused(part):
    with pytest.raises(UsvitError, match=r"optim\.name=logistic fits one linear classifier"):
        fit(part, [1.0])


def test_a_class_without_images_is_refused():
    with pytest.raises(UsvitError, match="No training image has class 3"):
        fit(nn.Linear(D, K), [1.0], targets=np.minimum(TARGETS, 1))


def test_a_fit_that_has_not_converged_is_told(monkeypatch, caplog):
    monkeypatch.setattr("usvit.training.logistic_head._ITERATIONS", 1)
    fit(nn.Linear(D, K), [0.01])
    assert "did not converge with strength 0.01" in caplog.text
    caplog.clear()
    monkeypatch.undo()
    fit(nn.Linear(D, K), [0.01])
    assert "converge" not in caplog.text
