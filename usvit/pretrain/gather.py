"""What buffers that follow a batch need of the other processes: its sum, or all of its rows."""

import torch
from torch import Tensor, distributed


def sum_over_processes(value: Tensor) -> Tensor:
    """The sum over all processes, the same in each; of one process alone, the value."""
    if _alone():
        return value
    value = value.clone()
    distributed.all_reduce(value)
    return value


def whole_batch(rows: Tensor) -> Tensor:
    """(B / world, ...) rows of this process -> (B, ...) rows of all, in the order of the batch, the same in each."""
    if _alone():
        return rows
    parts = [torch.empty_like(rows) for _ in range(distributed.get_world_size())]
    distributed.all_gather(parts, rows.contiguous())
    return torch.cat(parts)


def _alone() -> bool:
    return not (distributed.is_available() and distributed.is_initialized())
