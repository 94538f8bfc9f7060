"""Schedule-free AdamW: its three sequences, what is evaluated and kept, and resumption."""

import copy

import lightning_fabric
import numpy as np
import pytest
import timm
import torch
from pydantic import ValidationError
from torch import nn

from tests.training.small_training import Pictures, asked, normalised, training
from usvit.config import EarlyStoppingConfig, OptimConfig, RunConfig
from usvit.errors import UsvitError
from usvit.training.batch_norm import recompute_statistics
from usvit.training.optimizers import check_optimizer, make_optimizer
from usvit.training.schedule_free import AveragedWeights, ScheduleFreeAdamW
from usvit.training.signals import Stopped

OPTIM = {"name": "schedule_free_adamw", "schedule": "constant", "lr": 0.01}


def by_hand(start, gradient, rates, beta_1, beta_2, eps, decay):
    """Algorithm 1 of Defazio et al. 2024 with its three sequences, in numpy."""
    x, z, second = start.copy(), start.copy(), np.zeros_like(start)
    total = largest = 0.0
    for step, lr in enumerate(rates, start=1):
        y = (1 - beta_1) * z + beta_1 * x
        g = gradient(y)
        second = beta_2 * second + (1 - beta_2) * g**2
        z = z - lr * (g / (np.sqrt(second / (1 - beta_2**step)) + eps) + decay * y)
        largest = max(largest, lr)
        total += largest**2
        x = x + largest**2 / total * (z - x)
    return x, (1 - beta_1) * z + beta_1 * x


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_the_sequences_are_the_papers(decay):
    rng = np.random.default_rng(0)
    target, start = rng.normal(size=(5, 3)), rng.normal(size=(5, 3))
    rates = [0.01, 0.02, 0.03, 0.03, 0.03, 0.03]
    module = nn.Linear(3, 5, bias=False).double()
    module.weight.data = torch.from_numpy(start.copy())
    optimizer = ScheduleFreeAdamW(module.parameters(), betas=(0.8, 0.99), eps=1e-8, weight_decay=decay)
    average = AveragedWeights(module)
    for lr in rates:
        optimizer.param_groups[0]["lr"] = lr
        module.weight.grad = 2 * (module.weight.detach() - torch.from_numpy(target))
        optimizer.step()
    average.refresh(module, optimizer)
    x, y = by_hand(start, lambda at: 2 * (at - target), rates, 0.8, 0.99, 1e-8, decay)
    np.testing.assert_allclose(module.weight.detach().numpy(), y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(average.module.weight.detach().numpy(), x, rtol=0, atol=1e-12)


def test_the_average_changes_nothing_and_copies_what_is_not_trained():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    module[0].requires_grad_(False)
    optimizer = make_optimizer(module, OptimConfig(**OPTIM))
    average = AveragedWeights(module)
    average.refresh(module, optimizer)  # before the first step
    assert all(torch.equal(one, two) for one, two in zip(average.module.parameters(), module.parameters(), strict=True))
    module(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()
    module(torch.ones(2, 3)).square().sum().backward()
    optimizer.step()
    state, held = copy.deepcopy(optimizer.state_dict()), copy.deepcopy(module.state_dict())
    average.refresh(module, optimizer)
    assert all(torch.equal(value, held[key]) for key, value in module.state_dict().items())
    assert torch.equal(state["state"][0]["z"], optimizer.state_dict()["state"][0]["z"])
    assert torch.equal(average.module[0].weight, module[0].weight)
    assert not torch.equal(average.module[1].weight, module[1].weight)


def test_weight_decay_and_layers_are_grouped_as_for_adamw():
    model = timm.create_model("vit_tiny_patch16_224", embed_dim=24, num_heads=2, depth=2, img_size=32, num_classes=3)
    names = {id(parameter): name for name, parameter in model.named_parameters()}

    def groups(**settings):
        made = make_optimizer(model, OptimConfig(weight_decay=0.1, layer_decay=0.5, **settings))
        return {
            names[id(parameter)]: (group["weight_decay"], group["lr_scale"])
            for group in made.param_groups
            for parameter in group["params"]
        }

    assert groups(**OPTIM) == groups(name="adamw")


@pytest.mark.parametrize("keep", ["last", "best"])
def test_the_averaged_weights_are_evaluated_and_kept(tmp_path, keep):
    seen = []

    def evaluate(module):
        seen.append({key: value.clone() for key, value in module.state_dict().items()})
        return {"val_loss": float(len(seen)), "val_accuracy": None, "val_auc": None}  # the first is the best

    stopping = EarlyStoppingConfig(patience=None, keep=keep)
    module, result, _ = training(tmp_path, optim=OPTIM, evaluate=evaluate, early_stopping=stopping)
    kept = seen[0 if keep == "best" else -1]
    assert len(seen) == 2 and result.best_step == (4 if keep == "best" else 8)
    state = torch.load(tmp_path / "state.pt", weights_only=True) if (tmp_path / "state.pt").exists() else None
    assert state is None or state["step"] <= 8
    for key, value in module.state_dict().items():
        assert torch.equal(value, kept.get(key, kept.get(f"_forward_module.{key}"))), key


def test_a_stopped_training_resumes_to_the_same_bytes(tmp_path):
    for folder in ("whole", "cut"):
        (tmp_path / folder).mkdir()
    optim = {**OPTIM, "weight_decay": 0.1, "warmup_steps": 3}
    whole, _, _ = training(tmp_path / "whole", optim=optim)
    with pytest.raises(Stopped):
        training(tmp_path / "cut", optim=optim, examples=Pictures(asked, at=5))
    cut, _, _ = training(tmp_path / "cut", optim=optim)
    for key, value in whole.state_dict().items():
        assert torch.equal(value, cut.state_dict()[key]), key


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"optim": {"name": "schedule_free_adamw"}}, r"optim\.schedule is cosine: set optim\.schedule=constant"),
        ({"optim": {**OPTIM, "momentum_dtype": "bfloat16"}}, "no momentum to round"),
        ({"optim": {**OPTIM, "betas": (0.0, 0.9)}}, r"first of optim\.betas"),
        ({"optim": OPTIM, "train": {"steps": 5, "ema": 0.9}}, r"already averages the weights: set train\.ema to null"),
    ],
)
def test_settings_that_contradict_it_are_refused(settings, says):
    with pytest.raises(ValidationError, match=says):
        RunConfig.model_validate(settings)


def averaged(batch_norm):
    return RunConfig(optim=OPTIM, train={"steps": 1, "batch_norm": batch_norm})


def test_trained_batch_normalisation_needs_statistics_that_belong_to_the_average():
    model = timm.create_model("test_resnet", num_classes=2)
    with pytest.raises(UsvitError, match=r"running statistics of batch normalisation .*belong to the weights before"):
        check_optimizer(model, averaged("as_is"))
    for how in ("recomputed", "frozen", "auto"):
        check_optimizer(model, averaged(how))
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.requires_grad_(False)
    check_optimizer(model, averaged("as_is"))


def test_recomputed_statistics_are_those_of_the_averaged_weights(tmp_path):
    pixels = normalised(torch.from_numpy(Pictures().pixels))
    fabric = lightning_fabric.Fabric(accelerator="cpu", devices=1, precision="32-true")
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=0.01), nn.Flatten(), nn.Linear(3600, 2))

    def recompute(wrapped):
        recompute_statistics(wrapped, fabric, lambda batch: batch, [pixels])

    training(tmp_path, module=module, optim=OPTIM, statistics=recompute)
    kept = module[0](pixels).mean((0, 2, 3))
    assert module[1].running_mean == pytest.approx(kept.detach(), abs=1e-6)
    assert module[1].num_batches_tracked == 1
