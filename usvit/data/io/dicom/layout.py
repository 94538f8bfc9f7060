"""Read and check the description of the pixels in a header (PS3.3 C.7.6.3)."""

from dataclasses import dataclass
from pathlib import Path

from pydicom.uid import MPEGTransferSyntaxes

from usvit.data.io.bad_image import BadImage, refuse_size, size_text
from usvit.data.io.dicom.header import Header, required_number, text

GREY = ("MONOCHROME1", "MONOCHROME2")
PALETTE = "PALETTE COLOR"
YBR = ("YBR_FULL", "YBR_FULL_422")
WAVELET = ("YBR_ICT", "YBR_RCT")
"""The colours of JPEG 2000, whose decoder returns RGB."""
SUBSAMPLED = "YBR_PARTIAL_420"
"""The colours of videos, whose decoder returns RGB."""
_RETIRED = ("HSV", "ARGB", "CMYK", "YBR_PARTIAL_422", "YBR_PARTIAL_420")


@dataclass(frozen=True)
class Layout:
    """Storage format of the pixels. It is consistent in itself, but not yet compared with the pixels."""

    rows: int
    columns: int
    frames: int
    samples: int
    """1 or 3."""
    bits_allocated: int
    """1, 8, 16 or 32."""
    bits_stored: int
    high_bit: int
    signed: bool
    colours: str
    """PhotometricInterpretation, one of the supported ones."""
    planar: int
    """PlanarConfiguration: 0 if the colours of a pixel are adjacent, 1 if planes follow each other."""

    @property
    def pixels(self) -> int:
        """Number of values in a frame."""
        return self.rows * self.columns * self.samples

    @property
    def is_grey(self) -> bool:
        return self.colours in GREY

    @property
    def stored_range(self) -> tuple[int, int]:
        """Smallest and largest value of ``bits_stored`` bits."""
        half = 2 ** (self.bits_stored - 1)
        return (-half, half - 1) if self.signed else (0, 2 * half - 1)


def layout_of(header: Header) -> Layout:
    """Read the description of the pixels.

    Raises:
        BadImage: ``no_pixels`` or ``too_large``; ``unsupported_pixels`` if it is consistent, but of a kind that is not
            supported; ``damaged`` if something is missing or contradictory.
    """
    path, pixels = header.path, header.pixels
    if pixels is None or "Rows" not in header.data or "Columns" not in header.data:
        raise BadImage(path, f"it has no pixels ({header.kind})", "no_pixels")
    if pixels.keyword != "PixelData":
        raise BadImage(path, "its pixels are floating-point numbers", "unsupported_pixels")
    rows, columns = _integer(header, "Rows"), _integer(header, "Columns")
    if not (0 < rows < 65536 and 0 < columns < 65536):
        raise BadImage(path, f"its header claims {size_text((rows, columns))} pixels")
    refuse_size(path, rows, columns)
    layout = Layout(
        rows=rows,
        columns=columns,
        frames=frames_of(header),
        samples=_integer(header, "SamplesPerPixel"),
        bits_allocated=_integer(header, "BitsAllocated"),
        bits_stored=_integer(header, "BitsStored"),
        high_bit=_integer(header, "HighBit", default=_integer(header, "BitsStored") - 1),
        signed=bool(_integer(header, "PixelRepresentation")),
        colours=text(header.data, "PhotometricInterpretation"),
        planar=_integer(header, "PlanarConfiguration", default=0),
    )
    _check(path, layout, is_video=header.syntax in MPEGTransferSyntaxes)
    return layout


def frames_of(header: Header) -> int:
    """Return NumberOfFrames, or 1 if it is absent.

    Raises:
        BadImage: It is not a positive integer.
    """
    return _integer(header, "NumberOfFrames", default=1, least=1)


def _check(path: Path, layout: Layout, is_video: bool) -> None:
    bits = f"{layout.bits_stored} of {layout.bits_allocated} bits"
    known_colours = (SUBSAMPLED, "RGB", *YBR) if is_video else (*GREY, PALETTE, "RGB", *YBR, *WAVELET)
    if layout.colours not in known_colours or (is_video and layout.bits_allocated != 8):
        named = f" '{layout.colours}'" if layout.colours in _RETIRED else ""  # any other word would quote the file
        raise BadImage(path, f"its photometric interpretation{named} is not supported", "unsupported_pixels")
    one = layout.is_grey or layout.colours == PALETTE
    if layout.samples != (1 if one else 3):
        raise BadImage(path, f"its header claims {layout.samples} values per pixel, which does not match its colours")
    if not 1 <= layout.bits_stored <= layout.bits_allocated or not 0 <= layout.high_bit < layout.bits_allocated:
        raise BadImage(path, f"its header claims {bits}")
    known = {1, 8, 16, 32} if layout.is_grey else {8, 16} if one else {8, 16, 32}
    odd = (layout.signed and not layout.is_grey) or (layout.samples == 3 and layout.bits_stored < 8)
    if layout.bits_allocated not in known or odd:
        signed = "signed " if layout.signed else ""
        raise BadImage(path, f"its pixels have {signed}values of {bits}, which is not supported", "unsupported_pixels")
    if layout.high_bit < layout.bits_stored - 1 or layout.planar not in (0, 1):
        raise BadImage(path, "its header contradicts itself")


def _integer(header: Header, keyword: str, default: int | None = None, least: int = 0) -> int:
    value = required_number(header, keyword)
    value = default if value is None else value
    if value is None or not least <= value < 2**31 or value != int(value):
        raise BadImage(header.path, f"its header has no usable {keyword}")
    return int(value)
