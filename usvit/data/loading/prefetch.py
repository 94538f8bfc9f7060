"""Copies of batches to the device, one step ahead of the training."""

from collections.abc import Generator
from contextlib import closing

import torch

from usvit.data.loading.infinite_loader import Batch

KEPT = ("seeds", "targets")
"""What tasks read on the host before a step; reading it from the device would wait for the GPU."""


def copied_ahead(batches: Generator[Batch], device: torch.device) -> Generator[Batch]:
    """Iterate over batches whose tensors, except ``KEPT``, are on the device; on a CPU they are the same batches.

    The copy of the next batch begins before a batch is used, on a stream of its own, so that it runs beside the
    training step. The host waits for no copy, if the batches are in pinned memory.

    Args:
        batches: the batches on the host; it is closed with this generator.
        device: the device.
    """
    with closing(batches):
        if device.type == "cuda":
            yield from _on_stream(batches, device)
        else:
            yield from batches


def _on_stream(batches: Generator[Batch], device: torch.device) -> Generator[Batch]:
    stream = torch.cuda.Stream(device)
    ahead: tuple[Batch, torch.cuda.Event] | None = None
    for batch in batches:
        with torch.cuda.stream(stream):
            copy = {
                name: value if name in KEPT else value.to(device, non_blocking=True) for name, value in batch.items()
            }
            copied = stream.record_event()
        if ahead is not None:
            yield _arrived(*ahead, device)
        ahead = copy, copied
    if ahead is not None:
        yield _arrived(*ahead, device)


def _arrived(batch: Batch, copied: torch.cuda.Event, device: torch.device) -> Batch:
    """Let what is computed next wait for the copy; the memory is not used again before that is done."""
    current = torch.cuda.current_stream(device)
    current.wait_event(copied)
    for value in batch.values():
        if value.is_cuda:
            value.record_stream(current)
    return batch
