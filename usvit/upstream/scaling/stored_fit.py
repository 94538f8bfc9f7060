"""A fit that was written to ``scaling.json``, with the surfaces of its bootstrap."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from usvit.errors import UsvitError
from usvit.upstream.records.scaling import ScalingRecord
from usvit.upstream.scaling.bootstrap import limits
from usvit.upstream.scaling.surface import Array, Surface, surface_of


@dataclass(frozen=True)
class StoredFit:
    """The fitted surface and those of the bootstrap."""

    record: ScalingRecord
    surface: Surface
    draws: tuple[Surface, ...]

    def band(self, values: ArrayLike) -> Array:
        """Return the lower and the upper end of the 95 % band of values that have one draw in each row."""
        return limits(values, len(self.record.points) - len(self.record.parameters))


def stored_fit(record: ScalingRecord) -> StoredFit:
    """Return the surfaces of a record.

    Raises:
        UsvitError: The numbers of parameters, points and dimensions do not agree: the file was changed.
    """
    wanted = 4 * len(record.dimensions) + 3
    if wrong := [one for one in (record.parameters, *record.draws) if len(one) != wanted]:
        raise UsvitError(
            f"scaling.json is damaged: it has {len(wrong[0])} parameters for {len(record.dimensions)} dimensions, "
            f"which have {wanted}. Fit the sweep again."
        )
    if len(record.points) <= wanted or not record.draws:
        raise UsvitError(
            f"scaling.json is damaged: it has {len(record.points)} points and {len(record.draws)} draws for {wanted} "
            "parameters. Fit the sweep again."
        )
    reference = np.array([one.reference for one in record.dimensions])
    fitted, *drawn = (
        surface_of(one, reference, record.compute_reference) for one in (record.parameters, *record.draws)
    )
    return StoredFit(record, fitted, tuple(drawn))
