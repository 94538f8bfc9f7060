import pickle
from pathlib import Path

import pytest
import torch

from usvit.config import RunConfig
from usvit.experiments.base import adapt
from usvit.experiments.cross_validation_setup import default_out, prepare
from usvit.models.build import build_model
from usvit.models.weights import Weights
from usvit.models.zoo import find_model
from usvit.progress import NO_PROGRESS
from usvit.training.optimizers import make_optimizer
from usvit.upstream.config.pretrain import PretrainConfig


def network(name="vit_ti16"):
    return build_model(find_model(name), Weights("scratch"), n_classes=50, image_size=32)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_a_head_starts_at_zero(optimizer):
    model = network()
    adapt(model, PretrainConfig.model_validate({"optim": {"name": optimizer}}))
    assert not model.head.weight.any()
    assert not model.head.bias.any()


@pytest.mark.parametrize("name", ["vit_ti16", "deit_ti_distilled"])
def test_lamb_can_move_the_head_it_is_given(name):
    """By a share of its norm: from zero, a hundred steps of 3e-4 leave it where it was."""
    model = network(name)
    config = PretrainConfig.model_validate({"optim": {"name": "lamb", "lr": 3e-4, "weight_decay": 0.02}})
    adapt(model, config)
    for head in (head for head in (model.head, getattr(model, "head_dist", None)) if head is not None):
        assert head.weight.std().item() == pytest.approx(0.02, rel=0.1)
        assert not head.bias.any()
        optimizer, before = make_optimizer(head, config.optim), head.weight.detach().clone()
        for _ in range(100):
            head.weight.grad, head.bias.grad = torch.ones_like(head.weight), torch.ones_like(head.bias)
            optimizer.step()
        assert (head.weight - before).norm() > 0.02 * before.norm()  # a hundred times 3e-4, but for the first steps


def test_a_head_that_was_loaded_stays():
    model = network()
    torch.nn.init.constant_(model.head.weight, 0.5)
    adapt(model, PretrainConfig.model_validate({"optim": {"name": "lamb"}}))
    assert (model.head.weight == 0.5).all()


@pytest.mark.parametrize(
    ("kind", "settings", "name"),
    [
        ("cv", {"data": {"dataset": "busi+b"}, "model": {"name": "vit_b32"}, "seed": 3}, "busi+b-vit_b32-none-seed3"),
        (
            "train",
            {
                "data": {"dataset": "my/sets/one.yaml"},
                "model": {"name": "timm:resnet50"},
                "recipe": "demo",
                "split": {"unit": "image"},
            },
            "one-timm-resnet50-demo-seed0-train-by-image",
        ),
        ("cv", {"split": {"scheme": "by_device"}}, "phantom-vit_b32-none-seed0-by_device"),
    ],
)
def test_a_run_is_named_after_what_was_asked(kind, settings, name):
    config = RunConfig.model_validate({"data": {"dataset": "phantom"}, "model": {"name": "vit_b32"}, **settings})
    assert default_out(kind, config) == Path("runs") / name


@pytest.mark.slow
def test_the_network_that_was_checked_first_is_the_one_that_is_trained(small_phantom):
    settings = {
        "data": {"dataset": "phantom"},
        "model": {"name": "vit_ti16", "weights": "scratch", "image_size": 32},
        "device": "cpu",
    }
    setup = prepare("cv", RunConfig.model_validate(settings), {"": small_phantom}, NO_PROGRESS)
    (checked,) = setup.built.values()
    assert setup.network(0) is checked
    torch.rand(3)  # what a training draws
    states = [one.network(0).state_dict() for one in (setup, pickle.loads(pickle.dumps(setup)))]
    assert not setup.built, "a network is handed out once"
    for state in states:
        assert all(torch.equal(state[name], value) for name, value in checked.state_dict().items())
    assert not all(torch.equal(states[0][name], value) for name, value in setup.network(1).state_dict().items())
