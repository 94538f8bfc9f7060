"""How the papers measured speed. Three protocols of one thesis do not agree (DeiT-S: 940 or 1891 images/s): name yours.

No torch here: the command line lists them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from usvit.errors import unknown

Search = Literal["none", "largest", "fastest", "batches"]


@dataclass(frozen=True)
class Protocol:
    """One way to measure."""

    name: str
    says: str
    """One line for ``--help`` and the table's foot."""
    source: str
    hardware: str
    """Of the paper's own figures."""
    search: Search = "none"
    """Which batch: the given one, the ``largest`` that fits, the ``fastest`` of doublings, or several ``batches``."""
    batch: int = 32
    """The batch, or where the search begins."""
    max_batch: int = 4096
    """Where a search ends."""
    repeats: int = 30
    precision: str = "fp32"
    """Unless ``--precision`` says otherwise. The papers' "mixed precision" was float16; ours is bfloat16."""
    modes: tuple[str, ...] = ("infer",)
    """Unless ``--mode`` says otherwise. The papers timed inference alone."""
    figures: str | None = None
    """Key of the paper's own figures in ``PaperFigures.images_per_second``."""


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
            "the batch doubled while that makes it faster, the fastest reported",
            "Steiner et al. 2022 (AugReg), Table 3",
            "one V100 of 16 GB",
            search="fastest",
            batch=1,
            figures="v100_best_batch",
        ),
        Protocol(
            "latency",
            "batches 1, 2, 4 ... 64; parallel branches one after the other against at once, in turns",
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
"""Model -> batch -> the better of the two ways over one branch after the other, as Table 4 of Three things prints it.

Its images/s stand in the zoo; the gains were made of figures before rounding (61 over 44 would be 39%). The table's
header is shifted by one column: "size" stands over the speeds of one branch after the other.
"""


def find_protocol(name: str) -> Protocol:
    """A protocol by its name.

    Raises:
        UsvitError: there is none of that name.
    """
    if name not in PROTOCOLS:
        raise unknown("protocol", name, PROTOCOLS)
    return PROTOCOLS[name]
