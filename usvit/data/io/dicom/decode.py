"""Decode the stored bytes of a frame to its stored values, (H, W) or (H, W, 3).

The decoders were chosen by trial (docs/decisions.md): pydicom for native pixels and RLE, Pillow for 8-bit JPEG,
python-gdcm for 12-bit and lossless JPEG, pyjpegls for JPEG-LS, pylibjpeg-openjpeg for JPEG 2000 and HTJ2K, and
OpenCV's FFmpeg for MPEG-2, H.264 and HEVC.
"""

import io
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from pydicom import uid
from pydicom.encaps import encapsulate
from pydicom.pixels import get_decoder

from usvit.data.io.bad_image import BadImage
from usvit.data.io.codestream import Codestream, bare_jpeg, read_codestream
from usvit.data.io.dicom.fragments import Fragment, find_frames, read_frame
from usvit.data.io.dicom.header import Header, PixelElement
from usvit.data.io.dicom.layout import WAVELET, YBR, Layout
from usvit.data.io.dicom.mpeg import open_video
from usvit.data.io.video import VideoFrames

Values = NDArray[Any]
_PROGRESSIVE = ("1.2.840.10008.1.2.4.53", "1.2.840.10008.1.2.4.55")
"""Retired transfer syntaxes: JPEG spectral selection and full progression."""
_JPEG = (uid.JPEGBaseline8Bit, uid.JPEGExtended12Bit, *_PROGRESSIVE, uid.JPEGLossless, uid.JPEGLosslessSV1)
_PLUGINS = {
    **dict.fromkeys((uid.JPEGLSLossless, uid.JPEGLSNearLossless), "pyjpegls"),
    **dict.fromkeys((uid.JPEG2000Lossless, uid.JPEG2000), "pylibjpeg"),
    **dict.fromkeys((uid.HTJ2KLossless, uid.HTJ2KLosslessRPCL, uid.HTJ2K), "pylibjpeg"),
}
"""pydicom's plugin for each transfer syntax: the fastest one that refuses damaged data."""


class FrameDecoder:
    """Decodes the frames of one file, one at a time; close it.

    Raises:
        BadImage: The structure of the file is ``unsupported_syntax``, ``truncated`` or ``damaged``.
    """

    def __init__(self, header: Header, layout: Layout):
        assert header.pixels is not None
        self._header, self._layout, self._pixels = header, layout, header.pixels
        self._syntax = _supported(header)
        self._frames: list[list[Fragment]] = []
        self._video: VideoFrames | None = None
        if self._syntax in uid.MPEGTransferSyntaxes:
            self._video = open_video(header, self._pixels, layout)
        elif self._syntax.is_encapsulated:
            self._frames = find_frames(header, self._pixels, layout.frames)
        else:
            _check_length(header, self._pixels, layout)

    def decode(self, number: int) -> tuple[Values, str]:
        """Decode one frame.

        Args:
            number: Number of the frame, from 0.

        Returns:
            Integers, (H, W) or (H, W, 3), without unused bits; and their colours: "RGB", "YBR_FULL", or those of the
            layout (grey or palette).

        Raises:
            BadImage: The frame is ``truncated`` or ``damaged``.
        """
        if self._video is not None:
            values = self._video.frame(number)
            if values.shape[:2] != (self._layout.rows, self._layout.columns):
                raise self._bad("its video has another size than its header claims")
            return values, "RGB"
        if not self._syntax.is_encapsulated:
            return self._native(number)
        data = read_frame(self._header.source, self._frames[number])
        layout = self._layout
        if len(data) > 2 * layout.pixels * max(layout.bits_allocated // 8, 1) + 65536:
            raise self._bad("a compressed frame is far larger than an uncompressed one")
        if self._syntax == uid.RLELossless:
            self._check_rle(data)
            return self._by_pydicom(data)
        stream = self._codestream(data)
        if self._syntax not in _JPEG:
            return self._by_pydicom(data)
        if stream.process in (0xC0, 0xC1, 0xC2) and stream.precision == 8:
            return self._by_pillow(data, stream)
        return self._by_gdcm(data, stream)

    def close(self) -> None:
        """End the process that decodes a video."""
        if self._video is not None:
            self._video.close()

    def _native(self, number: int) -> tuple[Values, str]:
        source, layout = self._header.source, self._layout
        source.seek(self._pixels.start)
        values = self._pydicom(source, number, pixel_vr=self._pixels.vr, number_of_frames=layout.frames)
        return values, "YBR_FULL" if layout.colours in YBR else layout.colours

    def _by_pydicom(self, data: bytes) -> tuple[Values, str]:
        source = encapsulate([data], has_bot=False)
        values = self._pydicom(source, 0, _PLUGINS.get(self._syntax, ""))
        colours = self._layout.colours
        return values, "YBR_FULL" if colours in YBR else "RGB" if colours in WAVELET else colours

    def _pydicom(self, source: Any, number: int, plugin: str = "", **options: Any) -> Values:
        layout = self._layout
        described: dict[str, Any] = {
            "rows": layout.rows,
            "columns": layout.columns,
            "number_of_frames": 1,
            "samples_per_pixel": layout.samples,
            "planar_configuration": layout.planar,
            "bits_allocated": layout.bits_allocated,
            "bits_stored": layout.bits_stored,
            "pixel_representation": int(layout.signed),
            "photometric_interpretation": layout.colours,
            "pixel_keyword": "PixelData",
        }
        shifted = layout.high_bit - layout.bits_stored + 1
        if shifted:  # early scanners stored values that do not begin at the lowest bit
            described["bits_stored"] = layout.bits_allocated
        decoder = get_decoder(self._syntax)
        if plugin not in decoder.available_plugins:
            plugin = ""
        try:
            values, _ = decoder.as_array(source, index=number, raw=True, decoding_plugin=plugin, **described | options)
        except (RuntimeError, ValueError, AttributeError, NotImplementedError, IndexError) as error:
            raise self._bad(f"its pixels cannot be decoded ({' '.join(str(error).split())})") from error
        return _lowest_bits(values, layout) if shifted else values

    def _by_pillow(self, data: bytes, stream: Codestream) -> tuple[Values, str]:
        layout = self._layout
        if layout.bits_stored > 8:
            raise self._bad("its header claims more bits than its JPEG has")
        try:
            with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:
                if layout.samples == 3 and _is_rgb(stream, layout) and image.mode == "RGB" and stream.adobe is None:
                    if not stream.names_rgb:  # Pillow would assume YCbCr and convert it
                        image.draft("YCbCr", image.size)
                    return np.asarray(image), "RGB"
                wanted = "RGB" if layout.samples == 3 else "L"
                if image.mode != wanted:
                    raise self._bad("its JPEG has other colours than its header claims")
                return np.asarray(image), "RGB" if layout.samples == 3 else layout.colours
        except (OSError, SyntaxError, ValueError) as error:
            raise self._bad("its JPEG is damaged") from error

    def _by_gdcm(self, data: bytes, stream: Codestream) -> tuple[Values, str]:
        """Decode with GDCM. pydicom refuses to use it for 12 bits; its result equals that of dcmtk to the bit."""
        import gdcm  # type: ignore[import-untyped]  # python-gdcm (Apache-2.0)

        layout = self._layout
        lossless = stream.process == 0xC3
        bare = bare_jpeg(data)
        # Damaged data would crash GDCM and this process.
        if bare is None or stream.precision not in (range(2, 17) if lossless else (12,)):
            raise self._bad("its JPEG is damaged")
        if not layout.bits_stored <= stream.precision <= layout.bits_allocated <= 16:
            raise self._bad("its header claims other bits than its JPEG has")
        fragments = gdcm.SequenceOfFragments.New()
        fragment = gdcm.Fragment()
        fragment.SetByteStringValue(bare)
        fragments.AddFragment(fragment)
        element = gdcm.DataElement(gdcm.Tag(0x7FE0, 0x0010))
        element.SetValue(fragments.__ref__())
        image = gdcm.Image()
        image.SetNumberOfDimensions(2)
        image.SetDimensions((layout.columns, layout.rows, 1))
        image.SetDataElement(element)
        kind = "RGB" if layout.samples == 3 else "MONOCHROME2"  # keeps GDCM from converting colours
        image.SetPhotometricInterpretation(
            gdcm.PhotometricInterpretation(gdcm.PhotometricInterpretation.GetPIType(kind))
        )
        if layout.samples == 3:
            image.SetPlanarConfiguration(0)
        syntax = uid.JPEGLossless if lossless else uid.JPEGExtended12Bit
        image.SetTransferSyntax(gdcm.TransferSyntax(gdcm.TransferSyntax.GetTSType(str(syntax))))
        # With 16 allocated bits, GDCM would try a 16-bit decoder first, and libjpeg would write an error to stderr.
        allocated = layout.bits_allocated if lossless else 12
        stored = stream.precision
        image.SetPixelFormat(gdcm.PixelFormat(layout.samples, allocated, stored, stored - 1, int(layout.signed)))
        decoded = image.GetBuffer()
        raw = decoded.encode("utf-8", "surrogateescape") if decoded else b""
        dtype = np.dtype(f"{'i' if layout.signed else 'u'}{layout.bits_allocated // 8}")
        if len(raw) != layout.pixels * dtype.itemsize:
            raise self._bad("its JPEG is damaged")
        shape = (layout.rows, layout.columns, 3)[: 3 if layout.samples == 3 else 2]
        values = np.frombuffer(raw, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)
        colours = layout.colours
        if layout.samples == 3:
            colours = "RGB" if _is_rgb(stream, layout) else "YBR_FULL"
        return _lowest_bits(values, layout), colours

    def _codestream(self, data: bytes) -> Codestream:
        """Read the header of a compressed frame, and check that it agrees with the DICOM header."""
        stream = read_codestream(data)
        layout = self._layout
        if stream is None:
            raise self._bad("a compressed frame is not a codestream of its transfer syntax")
        is_of_syntax = (
            stream.process in range(0xC0, 0xD0)
            if self._syntax in _JPEG
            else stream.process == (0xF7 if self._syntax in uid.JPEGLSTransferSyntaxes else 0x51)
        )
        if not is_of_syntax or stream.process not in (0xC0, 0xC1, 0xC2, 0xC3, 0xF7, 0x51):
            raise self._bad("a compressed frame does not match its transfer syntax")
        if (stream.rows, stream.columns, len(stream.component_ids)) != (layout.rows, layout.columns, layout.samples):
            raise self._bad("a compressed frame has another size than its header claims")
        if not stream.complete:
            raise BadImage(self._header.path, "a compressed frame ends before its pixels do", "truncated")
        return stream

    def _check_rle(self, data: bytes) -> None:
        """Refuse segments that would unpack to more than a plane; two bytes can become 128 (PS3.5 G)."""
        plane = self._layout.rows * self._layout.columns
        if len(data) < 64:
            raise BadImage(self._header.path, "a compressed frame ends before its pixels do", "truncated")
        table = np.frombuffer(data[:64], "<u4")
        starts = [*table[1 : 1 + min(int(table[0]), 15)].tolist(), len(data)]
        for start, end in pairwise(starts):
            if not 64 <= start <= end <= len(data) or end - start > 2 * plane + 1024:
                raise self._bad("its RLE segments contradict each other")

    def _bad(self, reason: str) -> BadImage:
        return BadImage(self._header.path, reason)


def _supported(header: Header) -> uid.UID:
    syntax = header.syntax
    if syntax is None:
        raise BadImage(header.path, "it does not name its transfer syntax", "unsupported_syntax")
    name = f" '{syntax.name}' ({syntax})" if syntax.name != syntax else ""  # an unknown name would quote the file
    if syntax in _JPEG or syntax in uid.MPEGTransferSyntaxes:
        return syntax
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError as error:
        reason = f"its transfer syntax{name} cannot be decoded; convert it to an uncompressed one"
        raise BadImage(header.path, reason, "unsupported_syntax") from error
    if not decoder.is_available:
        reason = f"its transfer syntax{name} needs a decoder: pip install python-gdcm pylibjpeg pylibjpeg-openjpeg"
        raise BadImage(header.path, reason, "unsupported_syntax")
    return syntax


def _check_length(header: Header, pixels: PixelElement, layout: Layout) -> None:
    """Refuse fewer uncompressed pixels than the header claims; pydicom would pad them or only warn."""
    bits = layout.pixels * layout.bits_allocated * layout.frames
    needed = (bits + 7) // 8
    if layout.colours == "YBR_FULL_422":
        needed = needed * 2 // 3
    if layout.colours in WAVELET:
        raise BadImage(header.path, "its colours are those of JPEG 2000, but it is not compressed")
    if pixels.length is None or pixels.length < needed:
        raise BadImage(header.path, "its header claims more pixels than it has")
    if layout.colours == "YBR_FULL_422" and pixels.length >= needed * 3 // 2:
        raise BadImage(header.path, "its colours are not subsampled as its header claims")
    if not header.source.holds(pixels.start + needed):
        raise BadImage(header.path, "it ends before its pixels do", "truncated")


def _is_rgb(stream: Codestream, layout: Layout) -> bool:
    """Return whether the three components of a JPEG are red, green and blue rather than YCbCr.

    The codestream takes precedence over the header, which often still describes the uncompressed image. Lossless JPEG
    does not state colours, so the header decides there.
    """
    if stream.process == 0xC3:
        return layout.colours == "RGB" or stream.names_rgb
    if stream.names_rgb or stream.adobe is not None:
        return stream.names_rgb or stream.adobe == 0
    return layout.colours == "RGB" and not stream.jfif


def _lowest_bits(values: Values, layout: Layout) -> Values:
    """Remove the bits that ``bits_stored`` and ``high_bit`` exclude, and extend the sign."""
    container = values.dtype.itemsize * 8
    above = container - 1 - layout.high_bit
    if above == 0 and layout.bits_stored == container:
        return values
    return cast(Values, (values << above) >> (container - layout.bits_stored))
