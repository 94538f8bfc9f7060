"""What an ultrasound header says of the areas of its picture (PS3.3 C.8.5.5, SequenceOfUltrasoundRegions).

Scanners draw several things into one frame: the tissue, a colour-flow box over it, a trace of motion or of a spectrum
below it, scales and words around it. The header says where, and how many millimetres a pixel is. Headers are wrong at
times: of a frame that was cropped or made smaller since, they describe another picture. So a region that cannot be is
passed over, with its spacing.

Enhanced ultrasound volumes have no such sequence: their functional groups give spacing and the kind of data (C.8.24).
"""

import math
from dataclasses import dataclass
from itertools import combinations

import pydicom

from usvit.data.dicom.header import first, items, number
from usvit.data.images import Box
from usvit.data.preprocessing import MIN_SIDE

_MOST_REGIONS = 100

# RegionSpatialFormat (C.8.5.5.1.1)
_TWO_DIMENSIONAL, _M_MODE, _SPECTRAL = 1, 2, 3
# RegionDataType (C.8.5.5.1.2)
_TISSUE = 1
_DOPPLER = frozenset(range(2, 8))
"""Colour flow (power is told as that), spectra of pulsed and continuous wave, their mean, mode and maximum traces."""
_CENTIMETRES = 3
LARGEST_MM = 10.0
"""A pixel of a centimetre is no ultrasound image."""
_SAME = 0.01
"""Spacings along x and y that differ by less are one."""
_SHARED = 0.1
"""Areas that share more than this part of the smaller one are one view, such as a zoomed part within the whole."""
_FLOW_TYPES = frozenset({"FLOW_VELOCITY", "FLOW_POWER", "FLOW_VARIANCE", "TISSUE_VELOCITY"})
"""DataType of enhanced files (C.8.24.5.3)."""


@dataclass(frozen=True)
class Regions:
    """The areas of a frame, as far as the header describes them believably."""

    tissue: Box | None = None
    """The 2-D tissue area as left, top, right, bottom in pixels, right and bottom exclusive: ``pixels[top:bottom,
    left:right]``. Inside the frame and at least 32 px a side; the largest of several. None: not described, take the
    whole frame."""
    spacing_mm: tuple[float, float] | None = None
    """Millimetres a pixel of that area, along x and along y."""
    flags: tuple[str, ...] = ()
    """Of ``doppler`` (colour flow, power, pulsed or continuous wave), ``m_mode``, ``spectral`` and ``dual_view`` (two
    or more separate tissue areas), in this order."""

    @property
    def even_spacing_mm(self) -> float | None:
        """The spacing, where both directions have the same within 1%."""
        if self.spacing_mm is None or not math.isclose(*self.spacing_mm, rel_tol=_SAME):
            return None
        return round(sum(self.spacing_mm) / 2, 6)


def read_regions(data: pydicom.Dataset, rows: int, columns: int) -> Regions:
    """The regions of a header.

    Args:
        data: the header.
        rows: height of its frames in pixels.
        columns: width.
    """
    listed = items(data, "SequenceOfUltrasoundRegions")[:_MOST_REGIONS]
    found = [(item, box) for item in listed if (box := _box(item, rows, columns))]
    tissue = [(item, box) for item, box in found if _is_tissue(item)]
    largest, box = max(tissue, key=lambda region: _area(region[1]), default=(None, None))
    formats = {number(item, "RegionSpatialFormat") for item, _ in found}
    types = {number(item, "RegionDataType") for item, _ in found}
    flags = {
        "doppler": bool(types & _DOPPLER) or _has_flow(data),
        "m_mode": _M_MODE in formats,
        "spectral": _SPECTRAL in formats,
        "dual_view": any(_are_separate(one, other) for (_, one), (_, other) in combinations(tissue, 2)),
    }
    named = tuple(name for name, there in flags.items() if there)
    return Regions(box, _spacing(largest) if largest else None, named)


def _box(item: pydicom.Dataset, rows: int, columns: int) -> Box | None:
    """Where a region lies; None where that cannot be. The standard's last column and row belong to the region."""
    edges = [number(item, f"RegionLocation{name}") for name in ("MinX0", "MinY0", "MaxX1", "MaxY1")]
    if any(edge is None or not math.isfinite(edge) for edge in edges):
        return None
    left, top, last_x, last_y = (int(edge) for edge in edges if edge is not None)
    if left < 0 or top < 0 or last_x > columns or last_y > rows:  # some scanners give the width as the last column
        return None
    right, bottom = min(last_x + 1, columns), min(last_y + 1, rows)
    return (left, top, right, bottom) if right - left >= MIN_SIDE and bottom - top >= MIN_SIDE else None


def _is_tissue(item: pydicom.Dataset) -> bool:
    return number(item, "RegionSpatialFormat") == _TWO_DIMENSIONAL and number(item, "RegionDataType") == _TISSUE


def _spacing(item: pydicom.Dataset) -> tuple[float, float] | None:
    """Millimetres a pixel along x and y; None where the region says nothing believable, or in other units."""
    found = []
    for axis in ("X", "Y"):
        delta = number(item, f"PhysicalDelta{axis}")
        if number(item, f"PhysicalUnits{axis}Direction") != _CENTIMETRES or delta is None:
            return None
        found.append(round(abs(delta) * 10, 6))
    return (found[0], found[1]) if all(0 < spacing < LARGEST_MM for spacing in found) else None


def _area(box: Box) -> int:
    return max(box[2] - box[0], 0) * max(box[3] - box[1], 0)


def _are_separate(one: Box, other: Box) -> bool:
    left, top = max(one[0], other[0]), max(one[1], other[1])
    shared = (left, top, max(left, min(one[2], other[2])), max(top, min(one[3], other[3])))
    return _area(shared) <= _SHARED * min(_area(one), _area(other))


def _has_flow(data: pydicom.Dataset) -> bool:
    """Whether an enhanced file's functional groups hold data of flow; of frames' own groups, the first counts."""
    for groups in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        for group in items(data, groups)[:1]:
            if any(first(item, "DataType") in _FLOW_TYPES for item in items(group, "ImageDataTypeSequence")):
                return True
    return False
