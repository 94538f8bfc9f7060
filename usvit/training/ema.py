"""Exponential moving average of the weights: w <- decay w + (1 - decay) new. Buffers are copied."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Ema(AveragedModel):
    """``torch.optim.swa_utils.AveragedModel`` whose update does not wait for a GPU.

    PyTorch's update copies the number of updates from the host to the device each time, although an exponential
    average never reads it; such a copy from unpinned memory blocks until the device has finished its queue
    (``torch.Tensor.to``).

    Args:
        module: the module to average, on the host, all floating point.
        decay: in [0, 1].
    """

    def __init__(self, module: nn.Module, decay: float):
        average = get_ema_multi_avg_fn(decay)
        super().__init__(module, multi_avg_fn=average, use_buffers=False)
        self._average = average

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Update the average with the weights of ``model``; the first call copies them."""
        own, new = ([one.detach() for one in each.parameters()] for each in (self.module, model))
        if self.n_averaged == 0:
            for mean, one in zip(own, new, strict=True):
                mean.copy_(one)
        else:
            self._average(own, new, self.n_averaged)
        for old, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
            old.copy_(buffer)
        self.n_averaged += 1
