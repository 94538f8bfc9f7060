"""Networks of ``usvit transfer`` that accompany those that score: they mark the lesion, or score concepts."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.data.splits import SeenImages
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.plugins import companion_loader

OPTIONS = ("seg_from", "concepts_from")
"""Settings that name the run of a companion."""


class Companion(Protocol):
    """Networks that a plug-in loads (``Plugin.companions``)."""

    @property
    def name(self) -> str:
        """Network and head."""
        ...

    @property
    def sha256(self) -> str:
        """Hash of all their weights."""
        ...

    @property
    def n_networks(self) -> int: ...

    @property
    def preprocessing(self) -> Preprocessing: ...

    @property
    def seen(self) -> SeenImages:
        """All images that they, or their initial weights, were trained on."""
        ...


class LesionSegmenter(Companion, Protocol):
    """What marks the lesion: ``--seg-from``."""

    def maps(self, pixels: torch.Tensor) -> NDArray[np.float32]:
        """Return the probability that a pixel belongs to the lesion, (B, S, S), for images (B, S, S, 3) uint8."""
        ...


class ConceptSource(Companion, Protocol):
    """What scores concepts: ``--concepts-from``."""

    @property
    def concepts(self) -> tuple[str, ...]:
        """The V values, such as ``margin: spiculated``."""
        ...

    def scores(self, pixels: torch.Tensor) -> NDArray[np.float64]:
        """Return the probability of each value among those of its concept, (B, V), for images (B, S, S, 3) uint8."""
        ...


def load_companion(option: str, run: Path, device: str) -> Any:
    """Load the networks that an option of ``OPTIONS`` names.

    Args:
        option: ``seg_from`` or ``concepts_from``.
        run: Folder of a transfer, or of one of its folds.
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UsvitError: The folder is not such a transfer.
    """
    loader = companion_loader(option)
    if loader is None:
        raise UsvitError(
            f"--{option.replace('_', '-')} needs usvit.upstream, which loads its networks, and it is not installed: "
            "reinstall usvit."
        )
    return loader(run, device=device)
