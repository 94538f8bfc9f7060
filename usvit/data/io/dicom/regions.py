"""Read the regions of an ultrasound image from its header (PS3.3 C.8.5.5, SequenceOfUltrasoundRegions).

Scanners draw several things into one frame: the tissue, a colour-flow box over it, a trace of motion or of a spectrum
below it, scales and words around it. The header gives the place of each and the millimetres per pixel. Headers may be
wrong; if a frame was cropped or resized later, they describe another picture. Impossible regions are therefore ignored,
together with their spacing.

Enhanced ultrasound volumes have no such sequence: their functional groups give spacing and the kind of data (C.8.24).
The sequence is therefore read from the data set alone, and holds for all frames.
"""

import math
from dataclasses import dataclass
from itertools import combinations

import pydicom

from usvit.data.io.dicom.functional_groups import functional_groups
from usvit.data.io.dicom.header import first, items, number
from usvit.data.io.types import MIN_SIDE, Box

_MOST_REGIONS = 100

# RegionSpatialFormat (C.8.5.5.1.1)
_TWO_DIMENSIONAL, _M_MODE, _SPECTRAL = 1, 2, 3
# RegionDataType (C.8.5.5.1.2)
_TISSUE = 1
_DOPPLER = frozenset(range(2, 8))
"""Colour flow (which includes power), spectra of pulsed and continuous wave, and their mean, mode and maximum
traces."""
_CENTIMETRES = 3
LARGEST_MM = 10.0
"""Upper bound of the pixel spacing; an ultrasound image has no pixels of a centimetre."""
_SAME = 0.01
"""Relative difference up to which the spacings along x and y count as equal."""
_SHARED = 0.1
"""Regions that share more than this part of the smaller one show one view, such as a zoomed part within the whole."""
_FLOW_TYPES = frozenset({"FLOW_VELOCITY", "FLOW_POWER", "FLOW_VARIANCE", "TISSUE_VELOCITY"})
"""DataType of enhanced files (C.8.24.5.3)."""


@dataclass(frozen=True)
class Regions:
    """The regions of a frame, as far as the header describes them plausibly."""

    tissue: Box | None = None
    """The 2-D tissue region as left, top, right, bottom in pixels, right and bottom exclusive: ``pixels[top:bottom,
    left:right]``. It lies inside the frame and has sides of at least 32 pixels; of several regions it is the largest.
    None if it is not described; use the whole frame then."""
    spacing_mm: tuple[float, float] | None = None
    """Millimetres per pixel of that region, along x and y."""
    flags: tuple[str, ...] = ()
    """Those of ``doppler`` (colour flow, power, pulsed or continuous wave), ``m_mode``, ``spectral`` and ``dual_view``
    (two or more separate tissue regions) that hold, in this order."""

    @property
    def even_spacing_mm(self) -> float | None:
        """The mean spacing if both directions agree within 1%, else None."""
        if self.spacing_mm is None or not math.isclose(*self.spacing_mm, rel_tol=_SAME):
            return None
        return round(sum(self.spacing_mm) / 2, 6)


def read_regions(data: pydicom.Dataset, rows: int, columns: int) -> Regions:
    """Read the regions from a header.

    Args:
        data: The header.
        rows: Height of the frames in pixels.
        columns: Width of the frames in pixels.
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
    """Return the box of a region; None if it is impossible. The standard's last column and row are inclusive."""
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
    """Return millimetres per pixel along x and y; None if they are implausible or in other units."""
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
    """Return whether the functional groups of an enhanced file hold flow data, for all frames or for some."""
    groups = functional_groups(data)
    return any(
        first(item, "DataType") in _FLOW_TYPES
        for holder in (*groups.frames, *([] if groups.shared is None else [groups.shared]))
        for item in items(holder, "ImageDataTypeSequence")
    )
