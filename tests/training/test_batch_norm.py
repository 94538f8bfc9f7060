"""Running statistics of batch normalisation in fine-tuning."""

import lightning_fabric
import numpy as np
import pytest
import timm
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from tests.training.test_trainer import run
from usvit.config import RunConfig
from usvit.models.trainable import checkpoint_gradients, set_trainable
from usvit.training.batch_norm import recompute_statistics
from usvit.upstream.config.pretrain import PretrainConfig

FABRIC = lightning_fabric.Fabric(accelerator="cpu", devices=1, precision="32-true")


def norms(model):
    return [part for part in model.modules() if isinstance(part, _BatchNorm)]


def small():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, momentum=0.01), nn.Dropout(0.5), nn.Flatten(), nn.Linear(144, 2)
    )


def recomputed(model, images):
    recompute_statistics(FABRIC.setup_module(model), FABRIC, lambda batch: batch, images)
    return model


def test_statistics_are_those_of_the_layer_s_input_over_all_batches():
    model, images = small().train(), torch.rand(5, 6, 3, 8, 8)
    recomputed(model, images)
    inputs = model[0](images.flatten(0, 1))
    assert model[1].running_mean == pytest.approx(inputs.mean((0, 2, 3)).detach(), abs=1e-6)
    of_batches = torch.stack([model[0](batch).var((0, 2, 3)) for batch in images]).mean(0)
    assert model[1].running_var == pytest.approx(of_batches.detach(), abs=1e-6)
    assert model[1].momentum == 0.01
    assert not any(part.training for part in model.modules())


def test_it_equals_pytorch_s_update_bn_without_dropout():
    images = torch.rand(4, 8, 3, 32, 32)
    torch.manual_seed(0)
    ours = timm.create_model("test_resnet", num_classes=2)
    theirs = timm.create_model("test_resnet", num_classes=2)
    theirs.load_state_dict(ours.state_dict())
    torch.optim.swa_utils.update_bn(images, theirs)
    recomputed(ours, images)
    for own, other in zip(norms(ours), norms(theirs), strict=True):
        assert torch.equal(own.running_var, other.running_var)


def test_frozen_parts_keep_their_statistics():
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=2)
    set_trainable(model, "head")
    before = [part.running_mean.clone() for part in norms(model)]
    recomputed(model, torch.rand(2, 4, 3, 32, 32))
    assert all(map(torch.equal, before, (part.running_mean for part in norms(model))))


def test_gradient_checkpointing_changes_nothing():
    images, found = torch.rand(3, 4, 3, 32, 32), []
    for checkpointed in (False, True):
        torch.manual_seed(0)
        model = timm.create_model("test_resnet", num_classes=2)
        if checkpointed:
            checkpoint_gradients(model)
        model.train()
        model(images[0]).sum().backward()  # the hooks of checkpointing have run
        found.append(norms(recomputed(model, images))[-1].running_mean)
    assert torch.equal(*found)


def test_frozen_statistics_stay_and_scale_and_shift_are_trained(tmp_path):
    model = small()
    with torch.no_grad():
        model[1].running_mean.fill_(0.3)
    run(tmp_path, model, batch_norm="frozen")
    assert torch.equal(model[1].running_mean, torch.full((4,), 0.3))
    assert not torch.equal(model[1].weight, torch.ones(4))
    run(tmp_path / "other", other := small(), batch_norm="as_is")
    assert not torch.equal(other[1].running_mean, torch.zeros(4))


def test_the_small_momentum_of_a_network_leaves_statistics_of_earlier_weights():
    """What the setting is for: after 20 steps at a momentum of 0.01, most of the statistics are the initial ones."""
    model, images = small().train(), torch.rand(20, 8, 3, 8, 8) + 2
    for batch in images:
        model(batch)
    wanted = model[0](images.flatten(0, 1)).mean((0, 2, 3)).detach().numpy()
    stale = model[1].running_mean.numpy().copy()
    fresh = recomputed(model, images)[1].running_mean.numpy()
    assert np.abs(stale - wanted).max() > 0.5 * np.abs(wanted).max()
    assert np.abs(fresh - wanted).max() < 1e-4


@pytest.mark.parametrize(
    ("settings", "meaning"),
    [
        ({"model": {"weights": "scratch"}}, "as_is"),
        ({"model": {"weights": "hub"}}, "as_is"),
        (
            {"model": {"name": "usvit_small", "weights": "phantom"}, "train": {"steps": 5, "initial_share": 0.5}},
            "recomputed",
        ),
        ({"model": {"weights": "hub"}, "train": {"steps": 5, "batch_norm": "frozen"}}, "frozen"),
        (
            {"model": {"weights": "scratch"}, "optim": {"name": "schedule_free_adamw", "schedule": "constant"}},
            "recomputed",
        ),
    ],
)
def test_what_auto_means(settings, meaning):
    assert RunConfig.model_validate(settings).batch_norm == meaning


def test_auto_leaves_pre_training_as_it_is():
    assert PretrainConfig().batch_norm == "as_is"


def test_a_network_without_batch_normalisation_does_not_change_and_sees_no_image():
    model = nn.Sequential(nn.Flatten(), nn.Linear(12, 2), nn.LayerNorm(2))
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def batches():
        raise AssertionError("an image was read")
        yield

    recomputed(model, batches())
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
