"""The most memory that a training has taken."""

import sys

import torch


def peak_gb(device: torch.device) -> float | None:
    """10^9 bytes: of tensors on a GPU; of the process where it computes on a CPU; None where the system tells not."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
