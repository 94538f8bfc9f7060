"""Adapters: what they compute, family by family; merging; their file; networks that cannot have them."""

import copy
import re

import pytest
import timm
import torch
from pydantic import ValidationError
from torch import nn

import usvit.models.architectures  # noqa: F401 - registers ours with timm
from tests.models.test_trainable import FAMILIES
from usvit.config import LoraConfig, ModelConfig, RunConfig
from usvit.errors import UsvitError
from usvit.models.lora import LoraLinear, add_lora, load_lora, lora_state, merge_lora
from usvit.models.trainable import set_trainable

ALL = ("q", "k", "v", "proj", "fc1", "fc2")
SIZE = 32


def network(family="vit"):
    torch.manual_seed(0)
    name, options = FAMILIES[family]
    model = timm.create_model(name, num_classes=3, **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    return model


def trained(model, **settings):
    """The network with adapters that are no longer zero."""
    add_lora(model, LoraConfig(**{"rank": 2, **settings}), SIZE)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_b." in name:
                nn.init.normal_(parameter, std=0.1)
    return model


@torch.no_grad()
def logits(model):
    return model(torch.randn(2, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(1)))


def test_the_first_output_is_that_of_the_base_bit_for_bit():
    model = network()
    expected = logits(model)
    add_lora(model, LoraConfig(targets=ALL, dropout=0.5), SIZE)
    assert torch.equal(logits(model), expected)


def test_each_matrix_of_a_fused_layer_has_its_own_pair():
    """Oracle: W + alpha / r B A, row block by row block, written out with loops."""
    layer = nn.Linear(4, 6)
    torch.manual_seed(2)
    adapted = LoraLinear(layer, ("q", "k", "v"), ("q", "v"), LoraConfig(rank=3, alpha=6.0))
    for matrix in adapted.lora_b.values():
        nn.init.normal_(matrix)
    weight = layer.weight.detach().clone()
    for start, part in ((0, "q"), (4, "v")):
        a, b = adapted.lora_a[part], adapted.lora_b[part]
        for row in range(2):
            for column in range(4):
                weight[start + row, column] += 2.0 * sum(b[row, i] * a[i, column] for i in range(3))
    x = torch.randn(5, 7, 4)
    torch.testing.assert_close(adapted(x), x @ weight.T + layer.bias)
    assert torch.equal(adapted.merged().weight[2:4], layer.weight[2:4])  # the keys have no adapter


def test_dropout_is_on_the_input_of_the_adapter_alone():
    layer = LoraLinear(nn.Linear(400, 2), ("fc1",), ("fc1",), LoraConfig(rank=1, dropout=0.5, targets=("fc1",))).train()
    x = torch.ones(1, 400)
    assert torch.equal(layer(x), layer(x))  # B is zero, and the frozen matrix sees the whole input
    nn.init.ones_(layer.lora_b["fc1"])
    nn.init.ones_(layer.lora_a["fc1"])
    seen = (layer(x) - nn.functional.linear(x, layer.weight, layer.bias)) / layer.scale
    kept = seen[0, 0].item() / 2  # dropout doubles what it keeps
    assert kept == pytest.approx(round(kept), abs=1e-3) and 140 < kept < 260


MATRICES = {
    "vit": ALL,
    "vit with LayerScale": ALL,
    "distilled": ALL,
    "parallel": ALL,
    "attention pooling": ALL,
    "cait": ALL,
    "hybrid": ALL,
    "ours": ALL,
    "ours, whole": ALL,
    "axial": ALL,
}


@pytest.mark.parametrize("family", MATRICES)
def test_merged_is_unmerged_in_every_family(family):
    model = trained(network(family), targets=MATRICES[family])
    expected, before = logits(model), set(model.state_dict())
    merged = copy.deepcopy(model)
    merge_lora(merged)
    assert (logits(merged).softmax(1) - expected.softmax(1)).abs().max() < 1e-6
    assert set(merged.state_dict()) == {key for key in before if ".lora_" not in key}
    assert (expected - logits(network(family))).abs().max() > 1e-3
    # In double precision nothing but rounding is left.
    twice = copy.deepcopy(model).double()
    x = torch.randn(2, 3, SIZE, SIZE, dtype=torch.float64)
    exact = twice(x)
    merge_lora(twice)
    torch.testing.assert_close(twice(x), exact, rtol=0, atol=1e-12)


def test_a_saved_file_has_the_adapters_and_the_head_and_gives_the_same_network():
    model = trained(network())
    state = lora_state(model)
    names = [rf"blocks\.\d\.attn\.qkv\.lora_[ab]\.{part}" for part in "qv"]
    assert {key for key in state if not re.fullmatch("|".join(names), key)} == {"head.weight", "head.bias"}
    assert len(state) == 2 * 2 * 2 + 2
    again = network()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    load_lora(again, state, LoraConfig(rank=2), SIZE, "x.safetensors")
    assert torch.equal(torch.rand(1), expected)
    assert not any(isinstance(module, LoraLinear) for module in again.modules())
    assert (logits(again) - logits(model)).abs().max() < 1e-6


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.pop("blocks.0.attn.qkv.lora_a.q"),
        lambda state: state.update({"blocks.0.attn.qkv.lora_a.q": torch.zeros(3, 24)}),
        lambda state: state.update({"blocks.7.attn.qkv.lora_a.q": torch.zeros(2, 24)}),
    ],
)
def test_adapters_of_another_network_are_refused(change):
    state = lora_state(trained(network()))
    change(state)
    with pytest.raises(UsvitError, match=r"adapters x\.safetensors do not fit this network .*attn\.qkv\.lora_a\.q"):
        load_lora(network(), state, LoraConfig(rank=2), SIZE, "x.safetensors")


def test_only_adapters_and_head_train():
    model = network("vit with LayerScale")
    add_lora(model, LoraConfig(rank=2, targets=("v", "fc2")), SIZE)
    report = set_trainable(model, "lora")
    trains = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trains == set(lora_state(model))
    # 2 blocks: v 24 -> 24, fc2 96 -> 24; the head 24 -> 3
    assert report.trainable == 2 * (2 * (24 + 24) + 2 * (96 + 24)) + 24 * 3 + 3


def test_networks_without_such_matrices_are_told_what_they_have():
    with pytest.raises(UsvitError, match=r"no matrix q and no v .*model\.lora\.targets .*Choose another model\.tune"):
        add_lora(network("resnet"), LoraConfig(), SIZE)
    with pytest.raises(UsvitError, match=r"no matrix q and no v .*It supports fc1, fc2"):
        add_lora(network("resmlp"), LoraConfig(), SIZE)


def test_a_network_that_reads_the_weight_of_a_layer_without_calling_it_is_refused():
    """timm's BEiT adds its own biases of queries and values, so that qkv's forward does not run."""
    beit = timm.create_model("beit_base_patch16_224", num_classes=3, embed_dim=24, num_heads=2, depth=1, img_size=32)
    with pytest.raises(UsvitError, match=r"does not call its layer blocks\.0\.attn\.qkv"):
        add_lora(beit, LoraConfig(), SIZE)


def test_settings_that_make_no_sense_are_refused():
    with pytest.raises(ValidationError, match=r"model\.lora belongs to model\.tune=lora, not full"):
        ModelConfig(lora=LoraConfig(rank=4))
    with pytest.raises(ValidationError, match="names a matrix twice"):
        LoraConfig(targets=("q", "q"))
    with pytest.raises(ValidationError, match=r"adapts trained weights, but model\.weights is scratch"):
        RunConfig(model=ModelConfig(tune="lora", weights="scratch"))
    with pytest.raises(ValidationError, match=r"optim\.name=lamb moves a matrix"):
        RunConfig.model_validate({"model": {"tune": "lora"}, "optim": {"name": "lamb"}})
