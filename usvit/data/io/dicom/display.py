"""Convert stored values to the picture that is meant to be displayed, 8-bit RGB (PS3.3 C.11.1, C.11.2, C.7.6.3.1.2)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pydicom
from numpy.typing import NDArray

from usvit.data.io.bad_image import BadImage
from usvit.data.io.dicom.functional_groups import functional_groups
from usvit.data.io.dicom.header import Header, first, items, required_number, text
from usvit.data.io.dicom.layout import PALETTE, WAVELET, Layout
from usvit.data.io.dicom.lookup import read_lookup
from usvit.data.io.types import UInt8

_TABLE_BITS = 16
"""Grey values of up to this many bits are displayed by a table that is made once per file; wider ones one by one."""
_PALETTES = tuple(f"{colour}PaletteColorLookupTable" for colour in ("Red", "Green", "Blue"))


class Display:
    """Converts the stored values of one file to pictures.

    Grey values pass the modality transformation, then the first VOI lookup table or else the first window; the range of
    values that the header states becomes 0 to 255. Of colours, the upper eight bits are taken. An enhanced file may
    state transformation and window for each frame (PS3.3 C.7.6.16); a frame without its own ones has those of all
    frames, or else those of the data set.

    Raises:
        BadImage: A transformation in the header cannot be applied.
    """

    def __init__(self, header: Header, layout: Layout):
        self._header, self._layout = header, layout
        self._groups = functional_groups(header.data)
        self._palette = _palette(header, layout) if layout.colours == PALETTE else None
        self._kept: tuple[tuple[int, int], UInt8] | None = None
        """The last table of grey values, and the identity of the items that it was made of."""
        if layout.is_grey and not self._groups.frames:  # raises now if a transformation cannot be applied
            self._displayed(np.array(layout.stored_range), 0)

    def __call__(self, values: NDArray[Any], colours: str, number: int) -> UInt8:
        """Convert stored values to a picture.

        Args:
            values: (H, W), or (H, W, 3) as RGB or YBR_FULL.
            colours: Their colours, as returned by ``FrameDecoder.decode``.
            number: Number of the frame, from 0.

        Returns:
            (H, W, 3) uint8.

        Raises:
            BadImage: A transformation of this frame cannot be applied.
        """
        if self._layout.samples == 3:
            picture = (values >> max(self._layout.bits_stored - 8, 0)).clip(0, 255)
            picture = np.ascontiguousarray(picture.astype(np.uint8, copy=False))
            return _ybr_to_rgb(picture) if colours == "YBR_FULL" else picture
        if self._palette is not None:
            return self._palette.take(values, axis=0, mode="clip")
        if self._layout.bits_stored > _TABLE_BITS:
            return _rgb(self._displayed(values, number))
        low = self._layout.stored_range[0]
        places = values.astype(np.int32) - low if low else values
        return _rgb(self._table(number).take(places, mode="clip"))

    def states_range(self, number: int) -> bool:
        """Return whether the header says which values of a frame are black and white.

        It does by a window, a transformation, or fewer bits stored than allocated. Without any of them, values of 16 or
        32 bits may use any part of their range.
        """
        layout = self._layout
        if layout.signed or layout.bits_stored < max(layout.bits_allocated, 16):
            return True
        if not layout.is_grey:
            return layout.colours not in ("RGB", *WAVELET)
        elements = (*_MODALITY.keywords, *_VOI.keywords)
        holders = (self._holder(_MODALITY, number), self._holder(_VOI, number))
        return any(first(holder, keyword) not in (None, "") for holder in holders for keyword in elements)

    def _table(self, number: int) -> UInt8:
        """Return the grey of each value that can be stored; frames with the same items share their table."""
        key = (id(self._holder(_MODALITY, number)), id(self._holder(_VOI, number)))
        if self._kept is None or self._kept[0] != key:
            low, high = self._layout.stored_range
            self._kept = key, self._displayed(np.arange(low, high + 1), number)
        return self._kept[1]

    def _holder(self, group: "_Group", number: int) -> pydicom.Dataset:
        return self._groups.item(group.sequence, number, group.keywords) or self._header.data

    def _displayed(self, values: NDArray[Any], number: int) -> UInt8:
        header = self._header
        low, high = (float(end) for end in self._layout.stored_range)
        seen: NDArray[Any] = values.astype(np.float64)
        modality, voi = self._holder(_MODALITY, number), self._holder(_VOI, number)
        if tables := items(modality, "ModalityLUTSequence"):
            lookup = read_lookup(header, tables[0], "LUTDescriptor", "LUTData")
            seen, low, high = lookup(seen).astype(np.float64), 0, 2**lookup.bits - 1
        elif (slope := required_number(header, "RescaleSlope", modality)) is not None:
            intercept = required_number(header, "RescaleIntercept", modality) or 0.0
            if slope == 0:
                raise BadImage(header.path, "its rescale slope is 0")
            seen = seen * slope + intercept
            low, high = sorted((low * slope + intercept, high * slope + intercept))
        if tables := items(voi, "VOILUTSequence"):
            lookup = read_lookup(header, tables[0], "LUTDescriptor", "LUTData")
            part = lookup(seen) / (2**lookup.bits - 1)
        else:
            part = _windowed(header, voi, seen)
            part = (seen - low) / (high - low) if part is None else part
        shown = np.rint(part.clip(0, 1) * 255).astype(np.uint8)
        return 255 - shown if self._layout.colours == "MONOCHROME1" else shown


@dataclass(frozen=True)
class _Group:
    """A functional group that changes grey values, and the elements of which an item must hold one."""

    sequence: str
    keywords: tuple[str, ...]


_MODALITY = _Group("PixelValueTransformationSequence", ("RescaleSlope", "ModalityLUTSequence"))
_VOI = _Group("FrameVOILUTSequence", ("WindowCenter", "VOILUTSequence"))


def _ybr_to_rgb(ybr: UInt8) -> UInt8:
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
