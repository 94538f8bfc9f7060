"""Validation of a pre-training: figures of images that it does not learn from."""

from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from usvit.config import ViewsConfig
from usvit.data.images import UInt8
from usvit.data.sources.source import Source
from usvit.data.views.device import DeviceViews
from usvit.data.views.host import test_view
from usvit.pretrain.job import PretrainJob
from usvit.pretrain.plan import UpstreamObjective
from usvit.train.distributed import Team
from usvit.train.loop import Figures

NOTHING: Figures = {"val_loss": None, "val_accuracy": None, "val_auc": None}


def validation_of(
    objective: UpstreamObjective, job: PretrainJob, source: Source | None, team: Team
) -> Callable[[nn.Module], Figures]:
    """The figures of the validation images ``source``, means over them; all undefined where there are none.

    Each process takes its share of them, and all of them say the same.
    """
    config = job.config
    if source is None:
        return lambda module: dict(NOTHING)
    size = config.train.micro_batch or max(1, config.train.batch_size // team.world)
    inputs = DeviceViews(ViewsConfig(), job.inputs.mean, job.inputs.std, on_device=False)
    # As many batches in each process, since their forward passes may have to meet: one beyond the end counts nothing.
    batches = -(-len(source) // (size * team.world))

    def rows_of(number: int) -> tuple[NDArray[np.int64], bool]:
        """Of this process's share of a batch, and whether they count."""
        start = (number * team.world + team.rank) * size
        rows = np.arange(start, min(start + size, len(source)))
        return (rows, True) if len(rows) else (np.array([0]), False)

    def view(row: np.int64) -> UInt8:
        return test_view(source.image(int(row)), config.model.image_size, config.views.test_crop)

    def evaluate(module: nn.Module) -> Figures:
        sums: dict[str, torch.Tensor] = defaultdict(lambda: torch.zeros((), device=team.fabric.device))
        # Pictures are read while the device computes, a batch ahead.
        with ThreadPoolExecutor(max(1, config.workers)) as pool, torch.inference_mode():
            ahead = pool.map(view, rows_of(0)[0])
            for number in range(batches):
                rows, counts = rows_of(number)
                pixels = list(ahead)
                if number + 1 < batches:
                    ahead = pool.map(view, rows_of(number + 1)[0])
                images = torch.from_numpy(np.stack(pixels)).to(team.fabric.device)
                targets = torch.from_numpy(source.targets[rows]).to(team.fabric.device)
                figures = objective.evaluate(module, inputs(images, torch.zeros_like(targets)), targets)
                for key, value in figures.items():
                    sums[key] += value.float() * counts
        return {**NOTHING, **{key: float(team.sum(value)) / len(source) for key, value in sums.items()}}

    return evaluate
