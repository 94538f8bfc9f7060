"""What devices compute at most, for the share of it that a training uses (MFU)."""

import torch

BF16_TFLOPS = (
    ("gh200", 989.4),
    ("h200 nvl", 835.5),
    ("h200", 989.4),
    ("h100 nvl", 835.5),
    ("h100 pcie", 756.0),
    ("h100", 989.4),
    ("a100", 312.0),
    ("a40", 149.7),
    ("a30", 165.0),
    ("l40s", 362.05),
    ("l40", 181.05),
    ("l4", 121.0),
    ("v100 pcie", 112.0),
    ("v100", 125.0),
    ("t4", 65.0),
    ("rtx a6000", 154.8),
    ("rtx 4090", 165.2),
    ("rtx 3090", 71.0),
)
"""(part of the device's name, 10^12 operations a second of dense 16-bit matrix products); the first that fits counts.

Source: NVIDIA's data sheets and architecture white papers; where they print the figure with sparsity, half of it.
bfloat16, but for V100 and T4, which have float16 alone. Lightning's own table is not used: its H200 and H100 NVL are
figures with sparsity.
"""


def peak_tflops(device: torch.device, stated: float | None = None) -> float | None:
    """10^12 operations a second that a device computes at most; None where it is not known (CPUs).

    Args:
        device: where the training runs.
        stated: ``train.peak_tflops``, which counts if it is given.
    """
    if stated is not None or device.type != "cuda":
        return stated
    return peak_by_name(torch.cuda.get_device_name(device))


def peak_by_name(name: str) -> float | None:
    """Of ``NVIDIA A100-SXM4-80GB``: 312."""
    words = name.lower().replace("-", " ").replace("_", " ")
    padded = f" {words} "
    return next((peak for part, peak in BF16_TFLOPS if f" {part} " in padded), None)
