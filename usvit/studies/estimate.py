"""Estimate the time of a study on one H200 from the operations of its runs."""

import functools
import json
from typing import Any

from usvit.config import PretrainConfig, RunConfig, TransferConfig, merge
from usvit.errors import UsvitError
from usvit.models import count, find_model
from usvit.studies.plan import PlannedRun, StudyPlan
from usvit.studies.steps import SCHEMAS

SUSTAINED_FLOPS = 0.4 * 989e12
"""Assumed speed: 40 % of the peak of an H200 in bfloat16 without sparsity (989 TFLOP/s, NVIDIA's data sheet)."""
DATASET_IMAGES = 780
"""Assumed number of training images of a breast-ultrasound data set, if the training is given in epochs: BUSI's."""
BENCH_HOURS = 1 / 60
"""Assumed time of a measurement of speed."""
MAE_SHARE = 0.5
"""Assumed cost of an MAE step as a share of the same step on all patches: a quarter of the encoder, and its decoder."""

IMAGES = {
    "imagenet": (1_281_167, 50_000),
    "imagenet_real": (0, 46_837),
    "imagenet_v2": (0, 10_000),
    "imagenet_a": (0, 7_500),
    "imagenet_r": (0, 30_000),
    "imagenet_sketch": (0, 50_889),
    "objectnet": (0, 18_574),
    "imagenet21k": (14_197_122, 0),
    "shards": (303_000_000, 50_000),
    "cifar10": (50_000, 10_000),
    "cifar100": (50_000, 10_000),
    "flowers102": (2_040, 6_149),
    "pets": (3_680, 3_669),
    "cars": (8_144, 8_041),
    "food101": (75_750, 25_250),
    "resisc45": (31_500, 6_300),
    "inat18": (437_513, 24_426),
    "inat19": (265_213, 3_030),
    "kitti_distance": (7_481, 711),
}
"""Source -> numbers of training and test images, as ``usvit pretrain --list-sources`` and the papers of the data state
them. Shards stand for JFT-300M. Others: VTAB's 1,000 training images, and generated sources by their size."""


def hours(plan: StudyPlan) -> float | None:
    """Return the estimated hours of all runs of a study on one H200; None if a run cannot be estimated.

    Start-up, reading of images and evaluation during a training are not counted.
    """
    total = 0.0
    for run in plan.runs:
        one = _hours(run)
        if one is None:
            return None
        total += one
    return total


def _hours(run: PlannedRun) -> float | None:
    if run.kind == "bench":
        return BENCH_HOURS
    config: Any = SCHEMAS[run.kind].model_validate(run.config)
    try:
        macs = _macs(
            config.model.name, json.dumps(config.model.vit.model_dump(exclude_none=True)), config.model.image_size
        )
    except UsvitError:
        return None
    operations = _operations(config, macs)
    if run.kind == "cv" and operations is not None:
        operations *= config.split.folds * config.split.repeats
    return None if operations is None else operations / SUSTAINED_FLOPS / 3600


def _operations(config: Any, macs: float) -> float | None:
    """Return the FLOPs of a run: two per MAC, and three times those of a forward pass for a training step."""
    if isinstance(config, RunConfig):
        return _length(config, DATASET_IMAGES) * 6 * macs
    n_train, n_test = _images(config)
    if isinstance(config, TransferConfig):
        if config.how != "finetune":
            return 2 * macs * (n_train + n_test)
        lengths = [_length(_of_cell(config, cell), n_train) for cell in config.cells.values()]
        return 6 * macs * (sum(lengths) or _length(config, n_train)) + 2 * macs * n_test
    if isinstance(config, PretrainConfig):
        examples = _length(config, n_train)
        share = MAE_SHARE if config.objective == "mae" else 1.0
        views, teacher = config.views.count + _local_crops(config), 0.0
        if config.distill.kind != "none":
            size = config.distill.image_size or config.model.image_size
            teacher = _macs(config.distill.teacher, "{}", size)
        elif config.objective == "dino":
            teacher = macs * config.views.count
        return examples * (6 * macs * share * views + 2 * teacher)
    return 2 * macs * n_test


def _local_crops(config: PretrainConfig) -> float:
    """Return the cost of the local crops of an example, as a number of views of the network's own size."""
    side = config.views.local_size or config.model.image_size
    return config.views.local_count * (side / config.model.image_size) ** 2


def _of_cell(config: TransferConfig, cell: dict[str, Any]) -> TransferConfig:
    settings = merge(config.model_dump(exclude={"cells"}), cell)
    return TransferConfig.model_validate(settings)


def _length(config: Any, n_train: int) -> float:
    """Return the number of examples of a training."""
    if config.train.steps is not None:
        return float(config.train.steps * config.train.batch_size)
    return float((config.train.epochs or 0) * n_train)


def _images(config: Any) -> tuple[int, int]:
    name = config.source.name
    if name.startswith("vtab_"):
        return 1_000, 10_000
    n_train, n_test = IMAGES.get(name, (config.source.size, config.source.size))
    return min(n_train, config.source.limit or n_train), n_test


@functools.cache
def _macs(model: str, vit: str, image_size: int) -> float:
    return float(count(find_model(model, json.loads(vit)), image_size).macs)
