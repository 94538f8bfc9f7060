"""Attention over views, held against a loop over units and the classifier of the weighted features."""

import pytest
import torch
from torch import nn

from usvit.models import ViewAttention, WithViewAttention, pooled_views


def test_pooled_logits_are_those_of_the_classifier_on_the_weighted_features():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(7, 5, generator=generator)
    scores, classifier = torch.randn(7, generator=generator), nn.Linear(5, 3)
    units = torch.tensor([4, 0, 4, 4, 9, 0, 4])
    pooled, weights = pooled_views(classifier(features), scores, units)
    for row, unit in enumerate((0, 4, 9)):
        own = units == unit
        expected = scores[own].softmax(0)
        assert weights[own].tolist() == pytest.approx(expected.tolist(), rel=1e-5)
        mean = (expected[:, None] * features[own]).sum(0)
        assert pooled[row].tolist() == pytest.approx(classifier(mean).tolist(), rel=1e-4, abs=1e-6)


def test_a_unit_of_one_view_has_exactly_its_logits():
    logits, scores = torch.randn(3, 4), torch.tensor([100.0, -1e6, 3.0])
    pooled, weights = pooled_views(logits, scores, torch.tensor([2, 0, 1]))
    assert torch.equal(pooled, logits[[1, 2, 0]])
    assert weights.tolist() == [1, 1, 1]


def test_before_training_all_views_weigh_the_same():
    scores = ViewAttention(6)(torch.randn(4, 6))
    assert scores.tolist() == [0, 0, 0, 0]


def test_the_scores_are_those_of_the_published_formula():
    attention = ViewAttention(6, hidden=3)
    nn.init.normal_(attention.score.weight)
    features = torch.randn(4, 6)
    at = (features - features.mean(1, keepdim=True)) / (features.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    value = at @ attention.value.weight.T + attention.value.bias
    gate = at @ attention.gate.weight.T + attention.gate.bias
    expected = (value.tanh() * gate.sigmoid()) @ attention.score.weight[0]
    assert torch.allclose(attention(features), expected, atol=1e-5)


def test_a_network_with_attention_gives_logits_and_scores_in_training_and_logits_in_evaluation():
    head = nn.Linear(6, 2)

    class Mean(nn.Module):
        def forward(self, features):
            return head(features[:, 0])

    module = WithViewAttention(Mean(), 6, on_features=True)
    features = torch.randn(3, 1, 6)
    logits, scores = module.train()(features)
    assert logits.shape == (3, 2)
    assert scores.shape == (3,)
    assert torch.equal(module.eval()(features), logits)
