"""What is timed: usvit's own training step, and inference."""

import copy
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

from usvit.bench.case import Case
from usvit.bench.timing import Step
from usvit.config import ModelConfig, OptimConfig, TrainConfig
from usvit.data.preprocessing import Preprocessing
from usvit.models.architectures.parallel import fuse_branches
from usvit.models.build import build_model, input_statistics
from usvit.models.spec import ModelSpec
from usvit.models.tune import checkpoint_gradients, set_trainable, train_mode
from usvit.models.weights import Weights
from usvit.models.zoo import find_model
from usvit.train.device import Device
from usvit.train.loop import training_step
from usvit.train.losses import WeightedCrossEntropy
from usvit.train.objective import Classify
from usvit.train.optim import make_optimizer

SEQUENTIAL, PARALLEL = "sequential", "parallel"


def model_of(case: Case) -> tuple[ModelSpec, ModelConfig]:
    config = ModelConfig.model_validate(case.model)
    return find_model(config.name, config.vit.model_dump(exclude_none=True)), config


def new_network(case: Case) -> nn.Module:
    """The network of a case with random weights, on the CPU, with the configuration's settings.

    Raises:
        UsvitError: it cannot be made so, or has no such part to train.
    """
    spec, config = model_of(case)
    if case.branches and spec.shape is not None and spec.shape.branches > 1:
        # Of two networks that are the same but for rounding, ours can compute its branches at once.
        spec = replace(spec, architecture="usvit_vit", options=asdict(spec.shape))
    model = build_model(
        spec,
        Weights("scratch"),
        n_classes=case.n_classes,
        image_size=config.image_size,
        drop_path=config.drop_path,
        drop_path_schedule=config.drop_path_schedule,
        dropout=config.dropout,
    )
    if case.hardware.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if case.mode == "train":
        if config.grad_checkpointing:
            checkpoint_gradients(model)
        set_trainable(model, config.tune)
    return model


def make_steps(case: Case, device: Device, model: nn.Module) -> dict[str, Step]:
    """Name -> one step over the same random batch again and again; ``model`` is moved to the device.

    ``case.branches`` gives two, ``sequential`` and ``parallel``, if the network has parallel blocks; else there is
    ``sequential`` alone.
    """
    if case.mode == "train":
        return {SEQUENTIAL: _training(case, device, model)}
    model = model.to(device.type)
    ways = {SEQUENTIAL: model}
    if case.branches:
        fused = copy.deepcopy(model)
        if fuse_branches(fused):
            ways[PARALLEL] = fused
    return {name: _inference(case, device, network) for name, network in ways.items()}


def _training(case: Case, device: Device, model: nn.Module) -> Step:
    """The update of ``usvit.train.loop``: SGD, cross-entropy, the batch from the host's memory each time."""
    spec, config = model_of(case)
    fabric = device.fabric()
    train, optim = TrainConfig(batch_size=case.batch, steps=1), OptimConfig(name="sgd")
    if case.hardware.compile:
        model.compile()
    wrapped, optimizer = fabric.setup(model, make_optimizer(model, optim))
    train_mode(wrapped)
    loss_fn = WeightedCrossEntropy(None, case.n_classes).to(fabric.device)
    objective = Classify(model, loss_fn, _preprocessing(spec, config).normalised)
    batch = {"images": _pixels(case, config), "targets": torch.arange(case.batch) % case.n_classes}
    if device.type == "cuda":
        batch = {key: value.pin_memory() for key, value in batch.items()}

    def step() -> Any:
        return training_step(wrapped, fabric, optimizer, objective, batch, 0, optim.lr, train, optim)

    return step


def _inference(case: Case, device: Device, model: nn.Module) -> Step:
    """The network alone, its input on the device, as the papers time it."""
    spec, config = model_of(case)
    model.eval()
    if case.hardware.compile:
        model.compile()
    layout = torch.channels_last if case.hardware.channels_last else torch.contiguous_format
    images = _preprocessing(spec, config).normalised(_pixels(case, config).to(device.type))
    images = images.contiguous(memory_format=layout)

    def step() -> torch.Tensor:
        with (
            torch.inference_mode(),
            torch.autocast(device.type, torch.bfloat16, enabled=device.precision == "bf16"),
        ):
            return model(images)

    return step


def _preprocessing(spec: ModelSpec, config: ModelConfig) -> Preprocessing:
    return Preprocessing(config.image_size, "pad", *input_statistics(spec))


def _pixels(case: Case, config: ModelConfig) -> torch.Tensor:
    """(B, S, S, 3) uint8. Random, not zero: some units compute faster on zeros."""
    generator = torch.Generator().manual_seed(0)
    shape = (case.batch, config.image_size, config.image_size, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
