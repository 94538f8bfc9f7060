"""Validation of a pre-training on images that it is not trained on."""

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from usvit.config.views import ViewsConfig
from usvit.data.datasets import UpstreamDataset
from usvit.data.io import UInt8
from usvit.data.transforms import DeviceViews, test_view
from usvit.training import Figures, World
from usvit.upstream.pretraining.task import PretrainingTask
from usvit.upstream.pretraining_run.setup import PretrainingSetup

NOTHING: Figures = {"val_loss": None, "val_accuracy": None, "val_auc": None}


def validation_of(
    task: PretrainingTask, setup: PretrainingSetup, source: UpstreamDataset | None, world: World
) -> Callable[[nn.Module], Figures]:
    """Return a function that averages the figures over the validation images; all are None if there are no images.

    Each process evaluates its share of the images, and all processes get the same result.
    """
    config = setup.config
    if source is None:
        return lambda module: dict(NOTHING)
    size = config.train.micro_batch or max(1, config.train.batch_size // world.size)
    inputs = DeviceViews(ViewsConfig(), setup.inputs.mean, setup.inputs.std, on_device=False)
    # Every process runs the same number of batches, because forward passes may synchronise. A batch beyond the end of
    # the images has weight 0.
    batches = -(-len(source) // (size * world.size))

    def rows_of(number: int) -> tuple[NDArray[np.int64], bool]:
        """Return the rows of this process in a batch, and whether they count."""
        start = (number * world.size + world.rank) * size
        rows = np.arange(start, min(start + size, len(source)))
        return (rows, True) if len(rows) else (np.array([0]), False)

    def view(row: np.int64) -> UInt8:
        return test_view(source.image(int(row)), config.model.image_size, config.views.test_crop)

    def evaluate(module: nn.Module) -> Figures:
        sums: dict[str, torch.Tensor] = defaultdict(lambda: torch.zeros((), device=world.fabric.device))
        # The next batch is read while the device computes.
        with ThreadPoolExecutor(max(1, config.workers)) as pool, torch.inference_mode():
            ahead = pool.map(view, rows_of(0)[0])
            for number in range(batches):
                rows, counts = rows_of(number)
                pixels = list(ahead)
                if number + 1 < batches:
                    ahead = pool.map(view, rows_of(number + 1)[0])
                images = torch.from_numpy(np.stack(pixels)).to(world.fabric.device)
                targets = torch.from_numpy(source.targets[rows]).to(world.fabric.device)
                figures = task.evaluate(module, inputs(images, torch.zeros_like(targets)), targets)
                for key, value in figures.items():
                    sums[key] += value.float() * counts
        return {**NOTHING, **{key: float(world.sum(value)) / len(source) for key, value in sums.items()}}

    return evaluate
