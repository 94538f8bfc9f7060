"""Training on units: the loss of a batch, votes, and attention on the outputs of a trained network."""

import numpy as np
import pytest
import torch
from torch import nn

from usvit.models import WithViewAttention, pooled_views
from usvit.training import (
    ClassificationTask,
    NetworkOutputs,
    ViewsTask,
    WeightedCrossEntropy,
    balanced_class_weights,
    fit_view_attention,
)


class _Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(4, 3)

    def forward(self, features):
        return self.classifier(features[:, 0])


def test_the_loss_is_that_of_the_units_with_the_weight_of_their_class():
    loss_fn = WeightedCrossEntropy(np.array([0.5, 1.0, 2.0]), 3)
    module = WithViewAttention(_Head(), 4, on_features=True)
    nn.init.normal_(module.attention.score.weight)
    task = ViewsTask(module, loss_fn, lambda features: features)
    batch = {
        "images": torch.randn(5, 1, 4),
        "targets": torch.tensor([2, 0, 2, 0, 1]),
        "units": torch.tensor([7, 3, 7, 3, 5]),
    }
    logits, scores = module.train()(batch["images"], batch["units"])
    pooled, _ = pooled_views(logits, scores, batch["units"])
    entropy = nn.functional.cross_entropy(pooled, torch.tensor([0, 1, 2]), reduction="none")
    expected = (entropy * torch.tensor([0.5, 1.0, 2.0])).sum()
    assert task.loss(module, batch, 0).item() == pytest.approx(expected.item(), rel=1e-5)
    assert task.normalizer(batch, 0).item() == 3.5


def test_votes_weigh_images_and_make_the_classes_equal():
    targets, votes = np.array([0, 0, 0, 1]), np.array([0.5, 0.5, 1.0, 2.0])
    weights = balanced_class_weights(targets, 2, votes)
    assert (np.bincount(targets, votes) * weights).tolist() == [2, 2]
    loss_fn = WeightedCrossEntropy(weights, 2)
    task = ClassificationTask(nn.Identity(), loss_fn, lambda logits: logits)
    logits = torch.randn(4, 2)
    batch = {"images": logits, "targets": torch.from_numpy(targets), "votes": torch.from_numpy(votes).float()}
    entropy = nn.functional.cross_entropy(logits, batch["targets"], reduction="none")
    expected = (entropy * batch["votes"] * torch.from_numpy(weights)[batch["targets"]]).sum()
    assert task.loss(task.module, batch, 0).item() == pytest.approx(expected.item(), rel=1e-5)
    assert task.normalizer(batch, 0).item() == pytest.approx(4)


def _units(n, seed, informative):
    """Units of 4 views: in one view of a positive unit, ``informative`` features show the class."""
    rng = np.random.default_rng(seed)
    units = np.repeat(np.arange(n), 4)
    labels = rng.integers(0, 2, n)
    features = rng.normal(size=(4 * n, 8)).astype(np.float32)
    shown = np.flatnonzero(rng.integers(0, 4, n).repeat(4) == np.tile(np.arange(4), n))
    features[shown, 0] += informative * (2 * labels[units[shown]] - 1)
    features[shown, 1] += informative
    logits = np.stack([-features[:, 0], features[:, 0]], 1)
    return NetworkOutputs(logits, features), labels[units].astype(np.int64), units


def _auc(outputs, targets, units, attention):
    scores = attention(torch.from_numpy(outputs.features), torch.from_numpy(units)).detach()
    pooled, _ = pooled_views(torch.from_numpy(outputs.logits), scores, torch.from_numpy(units))
    margin, label = (pooled[:, 1] - pooled[:, 0]).numpy(), targets[::4]
    return float((margin[label == 1][:, None] > margin[label == 0]).mean())


@pytest.mark.parametrize("layers", [0, 2])
@pytest.mark.parametrize("informative", [1.5, 0.0])
def test_attention_finds_the_view_that_shows_the_class_and_keeps_the_mean_where_none_does(informative, layers):
    train, validation, test = (_units(200, seed, informative) for seed in range(3))
    attention = fit_view_attention(*train, *validation, torch.ones(2), seed=0, layers=layers)
    mean = _auc(*test, lambda features, units: torch.zeros(len(features)))
    found = _auc(*test, attention)
    assert found > mean + 0.02 if informative else abs(found - mean) < 0.05


def test_the_same_seed_fits_the_same_attention_and_leaves_the_global_generator_alone():
    train, validation = _units(30, 0, 2.0), _units(20, 1, 2.0)
    torch.manual_seed(3)
    state = torch.random.get_rng_state()
    first = fit_view_attention(*train, *validation, torch.ones(2), seed=5).state_dict()
    assert torch.equal(torch.random.get_rng_state(), state)
    second = fit_view_attention(*train, *validation, torch.ones(2), seed=5).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
