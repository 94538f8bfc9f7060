"""Fine-tuned weights near the initial ones: their average, and decay towards them, against closed forms."""

import numpy as np
import pytest
import timm
import torch
from pydantic import ValidationError
from torch import nn

from tests.training.small_training import Pictures, asked, training, vit
from usvit.config import OptimConfig, RunConfig
from usvit.errors import UsvitError
from usvit.training.initial_weights import backbone_parameters
from usvit.training.optimizers import check_optimizer, make_optimizer
from usvit.training.signals import Stopped
from usvit.upstream.config.pretrain import PretrainConfig

SHARE = 0.3
DECAY = {"name": "adamw", "weight_decay": 0.1, "decay_to": "initial"}
AVERAGE = {"steps": 5, "initial_share": SHARE}


class Network(nn.Module):
    """A matrix and a head in double precision, with timm's ``get_classifier``."""

    def __init__(self):
        super().__init__()
        rng = np.random.default_rng(0)
        self.body, self.head = nn.Linear(4, 3, bias=False), nn.Linear(3, 2, bias=False)
        for layer in (self.body, self.head):
            layer.weight = nn.Parameter(torch.from_numpy(rng.normal(size=layer.weight.shape)))

    def get_classifier(self):
        return self.head


def stepped(model, optim, gradients, rates):
    optimizer = make_optimizer(model, optim)
    for rate, (of_body, of_head) in zip(rates, gradients, strict=True):
        optimizer.param_groups[0]["lr"] = rate
        model.body.weight.grad, model.head.weight.grad = torch.tensor(of_body), torch.tensor(of_head)
        optimizer.step()
    return model.body.weight.detach().numpy(), model.head.weight.detach().numpy()


@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_decay_is_the_papers_penalty(name):
    """SGD: gradient + d (w - w0). AdamW: w - lr (change + d (w - w0)). The head is drawn to zero."""
    model, decay, rates = Network(), 0.3, [0.1, 0.05, 0.2]
    start = [model.body.weight.detach().numpy().copy(), model.head.weight.detach().numpy().copy()]
    rng = np.random.default_rng(1)
    gradients = [(rng.normal(size=(3, 4)), rng.normal(size=(2, 3))) for _ in rates]
    optim = OptimConfig(name=name, momentum=0, weight_decay=decay, decay_to="initial")
    found = stepped(model, optim, gradients, rates)
    for part, towards in enumerate((start[0], 0.0)):
        w, first, second = start[part].copy(), 0.0, 0.0
        for step, (rate, both) in enumerate(zip(rates, gradients, strict=True), start=1):
            g = both[part]
            if name == "sgd":
                w = w - rate * (g + decay * (w - towards))
                continue
            first, second = 0.9 * first + 0.1 * g, 0.999 * second + 0.001 * g**2
            change = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
            w = w - rate * (change + decay * (w - towards))
        np.testing.assert_allclose(found[part], w, rtol=0, atol=1e-9)


def test_the_average_is_the_kept_network_and_the_training_does_not_change(tmp_path):
    first = {name: value.clone() for name, value in vit().state_dict().items()}
    plain, _, _ = training(tmp_path / "plain")
    kept, _, _ = training(tmp_path / "kept", initial_share=SHARE)
    trained = plain.state_dict()
    for name, value in kept.state_dict().items():
        share = 0 if name.startswith("head.") else SHARE
        torch.testing.assert_close(value, (1 - share) * trained[name] + share * first[name], rtol=0, atol=1e-6)
    assert not torch.equal(kept.blocks[0].mlp.fc1.weight, plain.blocks[0].mlp.fc1.weight)
    assert torch.equal(kept.head.weight, plain.head.weight)


@pytest.mark.parametrize(
    "settings", [{"initial_share": SHARE}, {"optim": {"weight_decay": 0.5, "decay_to": "initial"}}]
)
def test_a_stopped_training_resumes_to_the_same_bytes(tmp_path, settings):
    whole, _, _ = training(tmp_path / "whole", **settings)
    with pytest.raises(Stopped):
        training(tmp_path / "cut", examples=Pictures(asked, at=5), **settings)
    cut, _, _ = training(tmp_path / "cut", **settings)
    assert all(torch.equal(value, cut.state_dict()[key]) for key, value in whole.state_dict().items())


def test_the_backbone_is_the_network_without_its_head_and_without_additions():
    model = nn.Sequential(timm.create_model("test_resnet", num_classes=2), nn.Linear(2, 2))
    names = backbone_parameters(model)
    assert "0.conv1.weight" in names or "0.conv1.0.weight" in names
    assert not any(name.startswith(("0.fc.", "1.")) for name in names)
    assert len(names) == len(list(model.parameters())) - 4


def test_statistics_of_other_weights_are_refused():
    model = timm.create_model("test_resnet", num_classes=2)
    with pytest.raises(UsvitError, match=r"train\.initial_share evaluates averaged weights"):
        check_optimizer(model, RunConfig(train={**AVERAGE, "batch_norm": "as_is"}))
    check_optimizer(model, RunConfig(train=AVERAGE))


@pytest.mark.parametrize(
    ("config", "settings", "says"),
    [
        (RunConfig, {"optim": {**DECAY, "weight_decay": 0}}, r"optim\.weight_decay is 0: choose one of these"),
        (RunConfig, {"optim": {**DECAY, "name": "muon"}}, r"optim\.name is muon"),
        (RunConfig, {"optim": DECAY, "model": {"weights": "scratch"}}, r"optim\.decay_to is about .*weights=scratch"),
        (RunConfig, {"train": AVERAGE, "model": {"weights": "scratch"}}, r"train\.initial_share is about .*scratch"),
        (RunConfig, {"train": AVERAGE, "model": {"tune": "head"}}, r"model\.tune=head"),
        (RunConfig, {"train": AVERAGE, "model": {"tune": "lora"}}, r"model\.tune=lora"),
        (RunConfig, {"train": {**AVERAGE, "ema": 0.9}}, "in another way: set train.initial_share to 0"),
        (RunConfig, {"train": {"steps": 5, "initial_share": 1}}, "less than 1"),
        (PretrainConfig, {"optim": DECAY}, r"optim\.decay_to is for 'usvit cv' and 'usvit train'"),
        (PretrainConfig, {"train": {"epochs": 1, "initial_share": SHARE}}, r"train\.initial_share is for 'usvit cv'"),
    ],
)
def test_settings_without_a_meaning_are_refused(config, settings, says):
    with pytest.raises(ValidationError, match=says):
        config.model_validate(settings)
