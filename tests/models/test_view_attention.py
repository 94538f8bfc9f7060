"""Attention over views, held against a loop over units and the classifier of the weighted features."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from usvit.config.sections import LossConfig
from usvit.errors import UsvitError
from usvit.experiments.training_units import write_attention
from usvit.files import sha256_of_file
from usvit.models import ViewAttention, WithViewAttention, pooled_views, read_attention


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


@pytest.mark.parametrize("layers", [0, 2])
def test_before_training_all_views_weigh_the_same(layers):
    scores = ViewAttention(6, layers=layers)(torch.randn(4, 6), torch.tensor([1, 0, 1, 1]))
    assert scores.tolist() == [0, 0, 0, 0]


def test_the_scores_are_those_of_the_published_formula():
    attention = ViewAttention(6, hidden=3)
    nn.init.normal_(attention.score.weight)
    features = torch.randn(4, 6)
    at = (features - features.mean(1, keepdim=True)) / (features.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    value = at @ attention.value.weight.T + attention.value.bias
    gate = at @ attention.gate.weight.T + attention.gate.bias
    expected = (value.tanh() * gate.sigmoid()) @ attention.score.weight[0]
    assert torch.allclose(attention(features, torch.zeros(4)), expected, atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_a_transformer_compares_the_views_of_a_unit_in_any_order_and_no_others(training):
    attention = ViewAttention(6, hidden=8, layers=2).train(training)
    nn.init.normal_(attention.score.weight)
    features, units = torch.randn(9, 6), torch.tensor([5, 2, 5, 5, 2, 7, 5, 2, 5])
    with torch.no_grad():
        found = attention(features, units)
        for unit in (2, 5, 7):  # alone, without padding
            own = units == unit
            assert torch.allclose(attention(features[own], units[own]), found[own], atol=1e-5)
        order = torch.randperm(9)
        assert torch.allclose(attention(features[order], units[order]), found[order], atol=1e-5)
        changed = features.clone()
        changed[3] = torch.randn(6)
        moved = (attention(changed, units) - found).abs() > 1e-5
    assert moved.tolist() == (units == 5).tolist()
    assert torch.equal(attention.scores(attention.described(features), units), attention(features, units)) or training


@pytest.mark.parametrize("layers", [0, 2])
def test_what_was_written_is_read_and_another_file_is_refused(tmp_path, layers):
    attention = ViewAttention(6, hidden=8, layers=layers)
    loss = LossConfig(vote="lesion", attention="fitted", attention_layers=layers)
    record = write_attention(tmp_path, attention, loss)
    assert record.content().get("layers", 0) == layers
    read = read_attention(tmp_path, SimpleNamespace(attention=record))
    features, units = torch.randn(5, 6), torch.tensor([0, 0, 1, 0, 1])
    with torch.no_grad():
        assert torch.equal(read(features, units), attention.eval()(features, units))
    save_file({"embed.weight": torch.zeros(8, 6), "encoder.layers.0.x": torch.zeros(1)}, tmp_path / record.file)
    damaged = record.model_copy(update={"sha256": sha256_of_file(tmp_path / record.file)})
    with pytest.raises(UsvitError, match="is damaged"):
        read_attention(tmp_path, SimpleNamespace(attention=damaged))


def test_a_network_with_attention_gives_logits_and_scores_in_training_and_logits_in_evaluation():
    head = nn.Linear(6, 2)

    class Mean(nn.Module):
        def forward(self, features):
            return head(features[:, 0])

    module = WithViewAttention(Mean(), 6, on_features=True)
    features = torch.randn(3, 1, 6)
    logits, scores = module.train()(features, torch.zeros(3))
    assert logits.shape == (3, 2)
    assert scores.shape == (3,)
    assert torch.equal(module.eval()(features), logits)
