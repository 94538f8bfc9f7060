"""Random patch sizes: drawn from the run's seed, one for each step."""

from collections import Counter

import pytest
import torch
from pydantic import ValidationError

from usvit.data.transforms.views import DeviceViews
from usvit.errors import UsvitError
from usvit.models.build import build_model
from usvit.models.complexity import blank, forward_macs
from usvit.models.weights import Weights
from usvit.models.zoo import find_model
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.pretraining.supervised import drawn_patch, make
from usvit.upstream.pretraining.task import TaskContext

TINY = {"width": 16, "depth": 1, "heads": 2, "mlp": 32, "patch": 16}
PATCHES = (8, 16, 32)


def task_of(seed=0, name="deit_ti", vit=TINY, **flexi):
    settings = {"name": name, "weights": "scratch", "image_size": 32, "vit": vit}
    config = PretrainConfig.model_validate({"seed": seed, "model": settings, "flexi": {"patches": PATCHES, **flexi}})
    spec = find_model(name, vit)
    torch.manual_seed(0)
    network = build_model(spec, Weights("scratch"), n_classes=5, image_size=32)
    inputs = DeviceViews(config.views, (0.5,) * 3, (0.5,) * 3, on_device=False)
    return make(TaskContext(config, spec, 5, 100, inputs, torch.device("cpu")), network)


def batch(n=4):
    pixels = torch.randint(0, 256, (n, 32, 32, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    return {"images": pixels, "targets": torch.arange(n) % 5, "seeds": torch.arange(n)}


def sizes(task, steps=20):
    seen = []
    for step in range(steps):
        task.loss(task.module, batch(), step)
        seen.append(task.module.patch_embed.patch)
    return seen


def test_a_step_has_the_same_patch_size_in_every_process_portion_and_resumed_run():
    whole = sizes(task_of())
    assert set(whole) == set(PATCHES)
    assert sizes(task_of()) == whole  # another process, or a new one that resumes
    resumed = task_of()
    resumed.loss(resumed.module, batch(2), 13)
    assert resumed.module.patch_embed.patch == whole[13]
    assert sizes(task_of(seed=1)) != whole


def test_every_patch_size_is_as_probable():
    config = PretrainConfig.model_validate({"flexi": {"patches": PATCHES}})
    counts = Counter(drawn_patch(config, step) for step in range(3000))
    assert all(abs(counts[patch] - 1000) < 100 for patch in PATCHES)


def test_validation_has_the_model_s_own_patch_size():
    task = task_of(kernel=32, grid=2)
    seen = sizes(task, 3)
    assert set(seen) != {16}
    task.evaluate(task.module, torch.zeros(2, 3, 32, 32), torch.zeros(2, dtype=torch.int64))
    assert task.module.patch_embed.patch == 16


def test_the_loss_reaches_the_learned_kernel():
    task = task_of(kernel=32, grid=2)
    torch.nn.init.normal_(task.module.head.weight)  # which begins at zero
    task.loss(task.module, batch(), 0).backward()
    assert task.module.patch_embed.proj.weight.shape[-1] == 32
    assert task.module.patch_embed.proj.weight.grad.abs().sum() > 0


def test_the_cost_is_the_mean_over_the_patch_sizes():
    plain = [
        forward_macs(
            build_model(
                find_model("deit_ti", {**TINY, "patch": patch}), Weights("scratch"), n_classes=5, image_size=32
            ),
            blank(32),
        )
        for patch in PATCHES
    ]
    task = task_of()
    resizing = 0
    for patch in (8, 32):  # the kernel of 16 pixels on both sides, for 3 x 16 channels
        resizing += 3 * 16 * (patch * 16 * 16 + patch * 16 * patch)
    # Interpolating the table of positions costs no products.
    assert task.cost(32).trained == pytest.approx((sum(plain) + resizing) / 3, abs=1)
    assert task.module.patch_embed.patch == 16


def test_what_cannot_be_done_says_why():
    with pytest.raises(UsvitError, match=r"flexi.patches 8, 16, 32 do not fit resmlp_s12: .* need a plain ViT"):
        _of_resmlp()
    with pytest.raises(ValidationError, match=r"flexi\.kernel and flexi\.grid need flexi\.patches"):
        PretrainConfig.model_validate({"flexi": {"kernel": 32}})
    with pytest.raises(ValidationError, match="objective mae has one patch size"):
        PretrainConfig.model_validate({"objective": "mae", "flexi": {"patches": [16]}})


def _of_resmlp():
    config = PretrainConfig.model_validate({"model": {"name": "resmlp_s12"}, "flexi": {"patches": PATCHES}})
    spec = find_model("resmlp_s12")
    inputs = DeviceViews(config.views, (0.5,) * 3, (0.5,) * 3, on_device=False)
    with torch.device("meta"):
        network = build_model(spec, Weights("scratch"), n_classes=5, image_size=224)
    return make(TaskContext(config, spec, 5, 100, inputs, torch.device("cpu")), network)
