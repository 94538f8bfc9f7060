"""The surfaces of a fit that was written to ``scaling.json``."""

import numpy as np

from usvit.errors import UsvitError
from usvit.records import ScalingRecord
from usvit.scaling.surface import Surface, surface_of


def surfaces_of(record: ScalingRecord) -> tuple[Surface, list[Surface]]:
    """Return the fitted surface and those of the bootstrap.

    Raises:
        UsvitError: The numbers of parameters and dimensions do not agree: the file was changed.
    """
    wanted = 4 * len(record.dimensions) + 3
    if wrong := [one for one in (record.parameters, *record.draws) if len(one) != wanted]:
        raise UsvitError(
            f"scaling.json is damaged: it has {len(wrong[0])} parameters for {len(record.dimensions)} dimensions, "
            f"which have {wanted}. Fit the sweep again."
        )
    reference = np.array([one.reference for one in record.dimensions])
    fitted, *drawn = (
        surface_of(one, reference, record.compute_reference) for one in (record.parameters, *record.draws)
    )
    return fitted, drawn
