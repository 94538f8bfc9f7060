"""The surfaces of a fit that was written to ``scaling.json``."""

from collections.abc import Sequence

import numpy as np

from usvit.records import ScalingRecord, ScalingValue
from usvit.scaling.surface import Surface, surface_of


def surfaces_of(record: ScalingRecord) -> tuple[Surface, list[Surface]]:
    """Return the fitted surface and those of the bootstrap."""
    reference = np.array([one.reference for one in record.dimensions])
    numbers = [
        *(getattr(one, name) for name in ("alpha", "a", "beta", "b") for one in record.dimensions),
        record.xi,
        _known(record.c, record.draws, -2),
        record.eps.value or 0.0,
    ]
    return surface_of(numbers, reference, record.compute_reference), [
        surface_of(one, reference, record.compute_reference) for one in record.draws
    ]


def _known(value: ScalingValue, draws: Sequence[Sequence[float]], place: int) -> float:
    """Return a value, or the median of its draws if its band is too wide for a value to be quoted."""
    return value.value if value.value is not None else float(np.median([one[place] for one in draws]))
