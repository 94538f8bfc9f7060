"""Convert stored values to the picture that is meant to be displayed, 8-bit RGB (PS3.3 C.11.1, C.11.2, C.7.6.3.1.2)."""

from typing import Any

import numpy as np
import pydicom
from numpy.typing import NDArray

from usvit.data.io.bad_image import BadImage
from usvit.data.io.dicom.header import Header, items, required_number, text
from usvit.data.io.dicom.layout import PALETTE, Layout
from usvit.data.io.dicom.lookup import read_lookup
from usvit.data.io.types import UInt8

_TABLE_BITS = 16
"""Grey values of up to this many bits are displayed by a table that is made once per file; wider ones one by one."""
_PALETTES = tuple(f"{colour}PaletteColorLookupTable" for colour in ("Red", "Green", "Blue"))


class Display:
    """Converts the stored values of one file to pictures.

    Grey values pass the modality transformation, then the first VOI lookup table or else the first window; the range of
    values that the header states becomes 0 to 255. Of colours, the upper eight bits are taken.

    Raises:
        BadImage: A transformation in the header cannot be applied.
    """

    def __init__(self, header: Header, layout: Layout):
        self._header, self._layout = header, layout
        self._table: UInt8 | None = None
        if layout.colours == PALETTE:
            self._table = _palette(header, layout)
        elif layout.is_grey and layout.bits_stored <= _TABLE_BITS:
            low, high = layout.stored_range
            self._table = self._displayed(np.arange(low, high + 1))
        elif layout.is_grey:
            self._displayed(np.array(layout.stored_range))  # raises now if a transformation cannot be applied

    def __call__(self, values: NDArray[Any], colours: str) -> UInt8:
        """Convert stored values to a picture.

        Args:
            values: (H, W), or (H, W, 3) as RGB or YBR_FULL.
            colours: Their colours, as returned by ``FrameDecoder.decode``.

        Returns:
            (H, W, 3) uint8.
        """
        if self._layout.samples == 3:
            picture = (values >> max(self._layout.bits_stored - 8, 0)).clip(0, 255)
            picture = np.ascontiguousarray(picture.astype(np.uint8, copy=False))
            return ybr_to_rgb(picture) if colours == "YBR_FULL" else picture
        if self._table is None:
            return _rgb(self._displayed(values))
        low = self._layout.stored_range[0]
        places = values.astype(np.int32) - low if low else values
        shown = self._table.take(places, axis=0, mode="clip")
        return shown if self._table.ndim == 2 else _rgb(shown)

    def _displayed(self, values: NDArray[Any]) -> UInt8:
        header, data = self._header, self._header.data
        low, high = (float(end) for end in self._layout.stored_range)
        seen: NDArray[Any] = values.astype(np.float64)
        modality = _functional_group(data, "PixelValueTransformationSequence")
        if tables := items(data, "ModalityLUTSequence"):
            lookup = read_lookup(header, tables[0], "LUTDescriptor", "LUTData")
            seen, low, high = lookup(seen).astype(np.float64), 0, 2**lookup.bits - 1
        elif (slope := required_number(header, "RescaleSlope", modality)) is not None:
            intercept = required_number(header, "RescaleIntercept", modality) or 0.0
            if slope == 0:
                raise BadImage(header.path, "its rescale slope is 0")
            seen = seen * slope + intercept
            low, high = sorted((low * slope + intercept, high * slope + intercept))
        voi = _functional_group(data, "FrameVOILUTSequence")
        if tables := items(data, "VOILUTSequence"):
            lookup = read_lookup(header, tables[0], "LUTDescriptor", "LUTData")
            part = lookup(seen) / (2**lookup.bits - 1)
        else:
            part = _windowed(header, voi, seen)
            part = (seen - low) / (high - low) if part is None else part
        shown = np.rint(part.clip(0, 1) * 255).astype(np.uint8)
        return 255 - shown if self._layout.colours == "MONOCHROME1" else shown


def ybr_to_rgb(ybr: UInt8) -> UInt8:
    """Convert YBR_FULL to RGB (PS3.3 C.7.6.3.1.2, ITU-T T.871), rounded to the nearest integer.

    Args:
        ybr: (H, W, 3) uint8.
    """
    luma = ybr[..., 0].astype(np.int16)
    blue, red = ybr[..., 1], ybr[..., 2]
    green = _GREEN.take(blue.astype(np.int32) * 256 + red)
    channels = (luma + _RED.take(red), luma + green, luma + _BLUE.take(blue))
    return np.stack([channel.clip(0, 255).astype(np.uint8) for channel in channels], axis=2)


_CHROMA = np.arange(256) - 128
_RED = np.floor(1.402 * _CHROMA + 0.5).astype(np.int16)
_BLUE = np.floor(1.772 * _CHROMA + 0.5).astype(np.int16)
_GREEN = (
    np.floor((-0.114 * 1.772 * _CHROMA[:, None] - 0.299 * 1.402 * _CHROMA) / 0.587 + 0.5).astype(np.int16).reshape(-1)
)
"""Terms that are added to luma for each chroma. Luma is an integer, so rounding the terms rounds the sum."""


def _windowed(header: Header, voi: pydicom.Dataset, values: NDArray[Any]) -> NDArray[Any] | None:
    """Apply the first window (PS3.3 C.11.2.1.2 and C.11.2.1.3), which maps to [0, 1]; return None without a window."""
    center = required_number(header, "WindowCenter", voi)
    width = required_number(header, "WindowWidth", voi)
    if center is None or width is None:
        return None
    function = text(voi, "VOILUTFunction").upper() or "LINEAR"
    if function not in ("LINEAR", "LINEAR_EXACT", "SIGMOID"):
        raise BadImage(header.path, "its window has a function that the standard does not define")
    if width < 1 if function == "LINEAR" else width <= 0:
        raise BadImage(header.path, f"the width of its window is {width:g}")
    if function == "SIGMOID":
        return 1 / (1 + np.exp(np.clip(-4 * (values - center) / width, -50, 50)))
    if function == "LINEAR":
        center, width = center - 0.5, width - 1
    if width == 0:
        return (values > center).astype(np.float64)
    return (values - center) / width + 0.5


def _functional_group(data: pydicom.Dataset, keyword: str) -> pydicom.Dataset:
    """Return an item of the shared functional groups, else of those of the first frame, else ``data``."""
    for groups in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        for group in items(data, groups)[:1]:
            for item in items(group, keyword)[:1]:
                return item
    return data


def _palette(header: Header, layout: Layout) -> UInt8:
    """Return the colour of each value that can be stored, (values, 3)."""
    tables = [
        read_lookup(header, header.data, f"{name}Descriptor", f"{name}Data", f"Segmented{name}Data")
        for name in _PALETTES
    ]
    values = np.arange(2**layout.bits_stored)
    colours: NDArray[Any] = np.stack([table(values) for table in tables], axis=1)
    # For 8 bits in 16-bit words, some writers fill the upper byte and some the lower one, whatever the descriptor says.
    if max(int(table.entries.max()) for table in tables) > 255:
        colours = colours >> 8
    return colours.astype(np.uint8)


def _rgb(grey: UInt8) -> UInt8:
    return np.repeat(grey[:, :, None], 3, axis=2)
