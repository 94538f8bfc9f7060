"""The steps that are timed: usvit's training step, and inference."""

import copy
from dataclasses import asdict, replace
from typing import Any

import torch
from torch import nn

from usvit.config import ModelConfig, OptimConfig, TrainConfig
from usvit.data.transforms import Preprocessing
from usvit.models import (
    ModelSpec,
    Weights,
    add_lora,
    build_model,
    checkpoint_gradients,
    find_model,
    fuse_branches,
    input_statistics,
    set_trainable,
    train_mode,
)
from usvit.training import ClassificationTask, Device, WeightedCrossEntropy, make_optimizer, training_step
from usvit.upstream.bench.case import BenchmarkCase
from usvit.upstream.bench.timing import Step

SEQUENTIAL, PARALLEL = "sequential", "parallel"


def model_of(case: BenchmarkCase) -> tuple[ModelSpec, ModelConfig]:
    config = ModelConfig.model_validate(case.model)
    return find_model(config.name, config.vit.model_dump(exclude_none=True)), config


def new_network(case: BenchmarkCase) -> nn.Module:
    """Build the network of a case with random weights and the configuration's settings, on the CPU.

    Raises:
        UsvitError: the network does not support the settings, or lacks the part to train.
    """
    spec, config = model_of(case)
    if case.branches and spec.shape is not None and spec.shape.branches > 1:
        # usvit's own ViT equals this network up to rounding, and can compute its branches at once.
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
        if config.tune == "lora":
            add_lora(model, config.lora, config.image_size)
        set_trainable(model, config.tune)
    return model


def make_steps(case: BenchmarkCase, device: Device, model: nn.Module) -> dict[str, Step]:
    """Make functions that run one step on a fixed random batch. ``model`` is moved to the device.

    Returns:
        Name -> step: ``sequential``, and also ``parallel`` if ``case.branches`` is set and the network has parallel
        blocks.
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


def _training(case: BenchmarkCase, device: Device, model: nn.Module) -> Step:
    """Make the training step of ``usvit.training.trainer``: SGD, cross-entropy, the batch copied from the host."""
    spec, config = model_of(case)
    fabric = device.fabric()
    train, optim = TrainConfig(batch_size=case.batch, steps=1), OptimConfig(name="sgd")
    if case.hardware.compile:
        model.compile()
    wrapped, optimizer = fabric.setup(model, make_optimizer(model, optim))
    train_mode(wrapped)
    loss_fn = WeightedCrossEntropy(None, case.n_classes).to(fabric.device)
    task = ClassificationTask(model, loss_fn, _preprocessing(spec, config).normalised)
    batch = {"images": _pixels(case, config), "targets": torch.arange(case.batch) % case.n_classes}
    if device.type == "cuda":
        batch = {key: value.pin_memory() for key, value in batch.items()}

    def step() -> Any:
        return training_step(wrapped, fabric, optimizer, task, batch, 0, optim.lr, train, optim)

    return step


def _inference(case: BenchmarkCase, device: Device, model: nn.Module) -> Step:
    """Make an inference step with the input on the device, as the papers time it."""
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


def _pixels(case: BenchmarkCase, config: ModelConfig) -> torch.Tensor:
    """Make (B, S, S, 3) uint8 random pixels; some hardware computes faster with zeros."""
    generator = torch.Generator().manual_seed(0)
    shape = (case.batch, config.image_size, config.image_size, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)
