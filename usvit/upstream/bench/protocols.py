"""Protocols with which the papers measured speed.

Always state the protocol: those of one thesis disagree by a factor of two (DeiT-S: 940 or 1891 images/s). This module
does not import torch, because the command line lists the protocols.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from usvit.errors import unknown

if TYPE_CHECKING:
    from usvit.upstream.records.bench import Mode, Search


@dataclass(frozen=True)
class Protocol:
    """A way to measure speed."""

    name: str
    says: str
    """One line for ``--help`` and the table's title."""
    source: str
    hardware: str
    """Hardware of the paper's figures."""
    search: "Search" = "none"
    """Batch sizes: the given one, the ``largest`` that fits, the ``fastest`` of doublings, or several ``batches``."""
    batch: int = 32
    """The batch size, or the first one of the search."""
    max_batch: int = 4096
    """The largest batch size of a search."""
    repeats: int = 30
    precision: str = "fp32"
    """Default of ``--precision``. The papers' "mixed precision" is float16; usvit's is bfloat16."""
    modes: "tuple[Mode, ...]" = ("infer",)
    """Default of ``--mode``. The papers timed only inference."""
    figures: str | None = None
    """Key of the paper's figures in ``PaperFigures.images_per_second``."""


PROTOCOLS: Mapping[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "fixed",
            "one batch size (32, or --batch), training and inference",
            "none",
            "",
            precision="auto",
            modes=("train", "infer"),
        ),
        Protocol(
            "deit",
            "the largest batch that fits, 30 runs",
            "DeiT: thesis, chapter 3, Table 3.5",
            "one V100 of 16 GB",
            search="largest",
            figures="v100_16gb_best",
        ),
        Protocol(
            "resmlp",
            "batch 32",
            "ResMLP: thesis, chapter 4, Table 4.1",
            "one V100 of 32 GB",
            figures="v100_32gb_batch32",
        ),
        Protocol(
            "deit3",
            "batch 256, mixed precision, with peak memory",
            "PatchConvNet and DeiT III: thesis, chapters 5 and 6, Tables 5.1, 5.2, 6.7, 6.8",
            "one V100 of 32 GB",
            batch=256,
            precision="bf16",
            figures="v100_32gb_batch256_amp",
        ),
        Protocol(
            "sweep",
            "the batch size is doubled while speed grows; the fastest is reported",
            "Steiner et al. 2022 (AugReg), Table 3",
            "one V100 of 16 GB",
            search="fastest",
            batch=1,
            figures="v100_best_batch",
        ),
        Protocol(
            "latency",
            "batch sizes 1, 2, 4 ... 64; parallel branches sequentially and at once, in turns",
            "Touvron et al. 2022 (Three things), Table 4",
            "one V100",
            search="batches",
            batch=1,
            max_batch=64,
        ),
    )
}


PRINTED_GAINS: Mapping[str, Mapping[int, str]] = {
    model: dict(zip((1, 2, 4, 8, 16, 32, 64), gains, strict=True))
    for model, gains in {
        "vit_s18x2": ("38%", "46%", "46%", "42%", "0%", "0%", "0%"),
        "vit_b18x2": ("45%", "47%", "21%", "0%", "0%", "0%", "0%"),
    }.items()
}
"""Model -> batch -> gain of the faster way over one branch after the other, as printed in Table 4 of Three things.

Its images/s are in the zoo; the gains were computed before rounding (61 over 44 would be 39%). The table's header is
shifted by one column: "size" is above the speeds of one branch after the other.
"""


def find_protocol(name: str) -> Protocol:
    """Find a protocol by its name.

    Raises:
        UsvitError: no protocol has this name.
    """
    if name not in PROTOCOLS:
        raise unknown("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]
