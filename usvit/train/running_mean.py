"""A copy of the weights that follows them (Polyak): w <- decay w + (1 - decay) new; its buffers are the newest."""

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class RunningMean(AveragedModel):
    """PyTorch's, whose update does not wait for a GPU.

    Its own sends the count of updates, which lies on the host, to the device before every update, and an exponential
    mean never reads it; a copy from unpinned memory that is not ``non_blocking`` waits until the device has done all
    that it was given (``torch.Tensor.to``).

    Args:
        module: what is followed; on the host still, all floating point.
        decay: in [0, 1].
    """

    def __init__(self, module: nn.Module, decay: float):
        mix = get_ema_multi_avg_fn(decay)
        super().__init__(module, multi_avg_fn=mix, use_buffers=False)
        self._mix = mix

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """The first time, the weights themselves."""
        own, new = ([one.detach() for one in each.parameters()] for each in (self.module, model))
        if self.n_averaged == 0:
            for mean, one in zip(own, new, strict=True):
                mean.copy_(one)
        else:
            self._mix(own, new, self.n_averaged)
        for old, buffer in zip(self.module.buffers(), model.buffers(), strict=True):
            old.copy_(buffer)
        self.n_averaged += 1
