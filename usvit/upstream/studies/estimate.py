"""Estimate the time of a study on one H200 from the operations of its runs."""

import functools
import json
from typing import Any

from usvit.config import RunConfig, ViTShape, merge
from usvit.errors import UsvitError
from usvit.models import count, count_plain, find_model, zoo_counts
from usvit.plain_data import Settings
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.test import TestConfig
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.studies.plan import PlannedRun, StudyPlan

SUSTAINED_FLOPS = 0.4 * 989e12
"""Assumed speed: 40 % of the peak of an H200 in bfloat16 without sparsity (989 TFLOP/s, NVIDIA's data sheet)."""
_DATASET_IMAGES = 780
"""Assumed number of training images of a breast-ultrasound data set, if the training is given in epochs: BUSI's."""
BENCH_HOURS = 1 / 60
"""Assumed time of a measurement of speed."""
_MAE_SHARE = 0.5
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
        try:
            total += BENCH_HOURS if run.kind == "bench" else operations(run, plan) / SUSTAINED_FLOPS / 3600
        except UsvitError:  # the network is not known before its weights are read
            return None
    return total


def operations(run: PlannedRun, plan: StudyPlan) -> float:
    """Return the FLOPs of a run: two per MAC, and three times those of a forward pass for a training step."""
    config: Any = run.settings
    macs = _macs(*_network(run, plan))
    if isinstance(config, RunConfig):
        folds = config.split.folds * config.split.repeats if run.kind == "cv" else 1
        return folds * _length(config, _DATASET_IMAGES) * 6 * macs
    if isinstance(config, TestConfig):
        images = sum(_images(source.partition(":")[0], config.source)[1] for source in config.sources)
        return 2 * macs * images * len(config.classifiers)
    n_train, n_test = _images(config.source.name, config.source)
    if isinstance(config, TransferConfig):
        if config.how != "finetune":
            return 2 * macs * (n_train + n_test)
        lengths = [_length(_of_cell(config, cell), n_train) for cell in config.cells.values()]
        return 6 * macs * (sum(lengths) or _length(config, n_train)) + 2 * macs * n_test
    examples = _length(config, n_train)
    share = _MAE_SHARE if config.objective == "mae" else 1.0
    views, teacher = config.views.count + _local_crops(config), 0.0
    if config.distill.kind != "none":
        size = config.distill.image_size or config.model.image_size
        teacher = _macs(config.distill.teacher, "{}", size)
    elif config.objective == "dino":
        teacher = macs * config.views.count
    return examples * (6 * macs * share * views + 2 * teacher)


def _network(run: PlannedRun, plan: StudyPlan) -> tuple[str, str, int]:
    """Return name, changed shape (JSON) and image size of a run's network, which may be that of a run it needs."""
    config: Any = run.settings
    of_run = run.kind in ("transfer", "test") and run.needs
    if of_run:
        name, vit, side = _network(plan.by_id[run.needs[0]], plan)
        size = config.model.image_size if "image_size" in config.model.model_fields_set else None
        return name, vit, size or side
    if isinstance(config, TestConfig):
        name = config.classifiers[0].partition("=")[0]
        return name, "{}", config.model.image_size or find_model(name).image_size
    return config.model.name, json.dumps(config.model.vit.model_dump(exclude_none=True)), config.model.image_size


def _local_crops(config: PretrainConfig) -> float:
    """Return the cost of the local crops of an example, as a number of views of the network's own size."""
    side = config.views.local_size or config.model.image_size
    return config.views.local_count * (side / config.model.image_size) ** 2


def _of_cell(config: TransferConfig, cell: Settings) -> TransferConfig:
    settings = merge(config.model_dump(exclude={"cells"}), cell)
    return TransferConfig.model_validate(settings)


def _length(config: Any, n_train: int) -> float:
    """Return the number of examples of a training."""
    if config.train.steps is not None:
        return float(config.train.steps * config.train.batch_size)
    return float((config.train.epochs or 0) * n_train)


def _images(name: str, source: Any) -> tuple[int, int]:
    """Return the numbers of training and test images of a source; ``source`` has its limit and, if generated, size."""
    if name.startswith("vtab_"):
        return 1_000, 10_000
    n_train, n_test = IMAGES.get(name, (source.size, source.size))
    return min(n_train, source.limit or n_train), n_test


@functools.cache
def _macs(model: str, vit: str, image_size: int) -> float:
    """Return the MACs of one image: counted for the named network, in proportion to the number of pixels."""
    if "+" in model:  # networks side by side
        return sum(_macs(one, vit, image_size) for one in model.split("+"))
    known = zoo_counts(model) if vit == "{}" else {}
    if not known:
        spec = find_model(model, json.loads(vit))
        if spec.shape is not None:
            return _macs_of_vit(spec.shape, image_size)
        known = {spec.image_size: (0, count(spec, spec.image_size).macs)}
    size = min(known, key=lambda one: abs(one - image_size))
    return known[size][1] * (image_size / size) ** 2


def _macs_of_vit(shape: ViTShape, image_size: int) -> float:
    """Return the MACs of a ViT without its head in closed form; without the formula of a part, nearly."""
    known = count_plain(shape, image_size)
    if known is not None:
        return float(known.macs)
    tokens, width = (image_size // shape.patch) ** 2 + 1, shape.width
    block = 4 * tokens * width**2 + 2 * tokens**2 * width + 2 * tokens * width * shape.mlp
    return float(shape.depth * shape.branches * block + tokens * width * 3 * shape.patch**2)
