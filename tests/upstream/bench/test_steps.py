"""What is timed is what usvit does."""

import pytest
import torch

from usvit.config import ModelConfig
from usvit.errors import UsvitError
from usvit.training.device import Device
from usvit.upstream.bench.case import BenchmarkCase, Hardware
from usvit.upstream.bench.steps import make_steps, new_network

CPU = Device("cpu", "fp32")
TINY_VIT = {"width": 16, "depth": 2, "mlp": 32, "heads": 2}


def case(name="timm:resnet10t", mode="infer", hardware=None, branches=False, **model):
    settings = ModelConfig.model_validate({"name": name, "image_size": 32, **model}).model_dump()
    return BenchmarkCase(settings, mode, 2, hardware or Hardware(), n_classes=5, branches=branches)


@pytest.fixture(autouse=True)
def _one_seed():
    torch.manual_seed(0)


def test_a_training_step_moves_the_weights():
    one = case(mode="train")
    model = new_network(one)
    before = {name: value.clone() for name, value in model.named_parameters()}
    steps = make_steps(one, CPU, model)
    loss = steps["sequential"]()
    assert list(steps) == ["sequential"] and 1.0 < float(loss) < 3.0  # about log 5
    steps["sequential"]()
    moved = [name for name, value in model.named_parameters() if not torch.equal(value, before[name])]
    assert len(moved) > len(before) / 2


def test_the_tuned_part_alone_moves():
    one = case("vit_ti16", "train", vit=TINY_VIT, tune="head")
    model = new_network(one)
    before = {name: value.clone() for name, value in model.named_parameters()}
    make_steps(one, CPU, model)["sequential"]()
    moved = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    assert moved == {"head.weight", "head.bias"}


def test_inference_gives_logits_without_gradients():
    one = case()
    logits = make_steps(one, CPU, new_network(one))["sequential"]()
    assert logits.shape == (2, 5) and logits.is_inference()


def test_channels_last_lays_the_weights_out_and_changes_no_result():
    plain, turned = case(), case(hardware=Hardware(channels_last=True))
    networks = []
    for one in (plain, turned):
        torch.manual_seed(1)
        networks.append(new_network(one))
    first = next(weight for weight in networks[1].parameters() if weight.ndim == 4 and weight.shape[1] > 1)
    assert first.is_contiguous(memory_format=torch.channels_last) and not first.is_contiguous()
    ours, theirs = (
        make_steps(one, CPU, net)["sequential"]() for one, net in zip((plain, turned), networks, strict=True)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_branches_at_once_give_what_they_give_one_after_the_other():
    one = case("vit_s18x2", branches=True, vit=TINY_VIT | {"layer_scale": 0.5})
    model = new_network(one)
    torch.nn.init.normal_(model.get_classifier().weight)  # it starts at zero, where all outputs are equal
    steps = make_steps(one, CPU, model)
    assert list(steps) == ["sequential", "parallel"]
    sequential, parallel = (step() for step in steps.values())
    assert sequential.std() > 0.1
    torch.testing.assert_close(sequential, parallel, rtol=1e-4, atol=1e-4)


def test_a_network_without_parallel_blocks_has_one_step():
    one = case("vit_ti16", branches=True, vit=TINY_VIT)
    assert list(make_steps(one, CPU, new_network(one))) == ["sequential"]


def test_a_part_that_cannot_be_tuned_is_a_user_s_mistake():
    one = case(mode="train", tune="attn")
    with pytest.raises(UsvitError, match="attention"):
        new_network(one)
