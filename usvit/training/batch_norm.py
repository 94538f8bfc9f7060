"""Running statistics of batch normalisation that belong to the weights which are evaluated.

During training, each step adds a little of its batch to the running statistics. After a short training, or with a small
momentum, they still belong to earlier weights, and averaged weights have none. The network in evaluation mode is then
worse than it was in training.
"""

from collections.abc import Iterable
from typing import Any

import lightning_fabric
import torch
from torch.nn.modules.batchnorm import _BatchNorm

from usvit.models import train_mode
from usvit.training.task import Prepare


@torch.no_grad()
def recompute_statistics(
    wrapped: Any, fabric: lightning_fabric.Fabric, prepare: Prepare, batches: Iterable[torch.Tensor]
) -> None:
    """Replace the running statistics by their mean over batches, and leave the network in evaluation mode.

    Parts that are frozen keep theirs. Dropout and stochastic depth are off.

    Args:
        wrapped: The network as Fabric wraps it; changed in place.
        fabric: Device and precision.
        prepare: Maps a batch, on the device, to the network's input.
        batches: Batches of two or more images each, on the host, in random order; each counts alike.

    Source: Izmailov et al. (2018), Averaging Weights Leads to Wider Optima, section 3.1; as
    ``torch.optim.swa_utils.update_bn``, which leaves dropout on.
    """
    train_mode(wrapped)
    momenta = {part: part.momentum for part in wrapped.modules() if isinstance(part, _BatchNorm) and part.training}
    wrapped.eval()
    if not momenta:
        return
    for norm in momenta:
        norm.reset_running_stats()
        norm.train()
        norm.momentum = None  # a plain mean over all batches
    try:
        with fabric.autocast():
            for batch in batches:
                wrapped(prepare(batch.to(fabric.device)))
    finally:
        for norm, momentum in momenta.items():
            norm.momentum = momentum
        wrapped.eval()
