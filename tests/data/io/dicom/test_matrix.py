"""Every transfer syntax, with every kind of pixels that it can hold: decoded, and compared with what was stored."""

import subprocess

import numpy as np
import pytest
from pydicom import uid
from pydicom.pixels import get_encoder

from tests.data.dicom_files import (
    HEIGHT,
    WIDTH,
    Kind,
    compressed,
    converted,
    expected,
    jpeg,
    native,
    stored_values,
    with_palette,
)
from tests.programs import tool
from usvit.data.io.dicom import DicomFile

GREY = [
    Kind("MONOCHROME2"),
    Kind("MONOCHROME1"),
    Kind("MONOCHROME2", 16),
    Kind("MONOCHROME1", 16, 12),
    Kind("MONOCHROME2", 16, 10),
    Kind("MONOCHROME2", 16, signed=True),
    Kind("MONOCHROME2", 16, 12, signed=True),
    Kind("MONOCHROME2", 8, signed=True),
]
PALETTES = [
    with_palette(Kind("PALETTE COLOR"), 8),
    with_palette(Kind("PALETTE COLOR"), 16),
    with_palette(Kind("PALETTE COLOR", 16), 16),
    with_palette(Kind("PALETTE COLOR", 16, 10), 16),
]
PALETTES_BIG = [
    with_palette(Kind("PALETTE COLOR"), 8, big_endian=True),
    with_palette(Kind("PALETTE COLOR", 16), 16, big_endian=True),
]
RGB = [Kind("RGB"), Kind("RGB", 16), Kind("RGB", 16, 12)]
YBR = [Kind("YBR_FULL"), Kind("YBR_FULL", 16)]
PLANES = [Kind("RGB", planar=1), Kind("RGB", 16, planar=1), Kind("YBR_FULL", planar=1)]
NATIVE = [*GREY, *RGB, *PLANES, *YBR, Kind("YBR_FULL_422")]
LITTLE = [uid.ImplicitVRLittleEndian, uid.ExplicitVRLittleEndian, uid.DeflatedExplicitVRLittleEndian]


def decoded(content: bytes) -> np.ndarray:
    """(frames, H, W, 3); the last frame first, as each is found without those before it."""
    with DicomFile(content) as file:
        frames = [file.frame(number) for number in reversed(range(file.facts.frames))]
    assert all(frame.dtype == np.uint8 and frame.flags["C_CONTIGUOUS"] for frame in frames)
    return np.stack(frames[::-1])


def errors(content: bytes, kind: Kind, values: np.ndarray) -> np.ndarray:
    return np.abs(decoded(content).astype(int) - expected(kind, values))


def psnr(content: bytes, kind: Kind, values: np.ndarray) -> float:
    """Of all frames, in dB."""
    return float(10 * np.log10(255**2 / max(np.square(errors(content, kind, values)).mean(), 1e-9)))


def is_exact(content: bytes, kind: Kind, values: np.ndarray) -> bool:
    return not errors(content, kind, values).any()


def encoded(kind: Kind, values: np.ndarray, syntax: uid.UID, colours: str | None = None, **options: object) -> bytes:
    """Compressed by pydicom's own encoders."""
    described = {
        "rows": HEIGHT,
        "columns": WIDTH,
        "number_of_frames": 1,
        "samples_per_pixel": kind.samples,
        "bits_allocated": kind.bits,
        "bits_stored": kind.stored or kind.bits,
        "pixel_representation": int(kind.signed),
        "photometric_interpretation": colours or kind.colours,
        "planar_configuration": 0,
    }
    frames = [get_encoder(syntax).encode(frame.tobytes(), **described, **options) for frame in values]
    named = Kind(colours or kind.colours, kind.bits, kind.stored, kind.signed, 0, kind.tags)
    return compressed(named, frames, syntax)


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("kind", [*NATIVE, *PALETTES], ids=str)
@pytest.mark.parametrize("syntax", LITTLE, ids=lambda syntax: syntax.keyword)
def test_native(syntax, kind, frames):
    values = stored_values(kind, frames)
    assert is_exact(native(kind, values, syntax), kind, values)


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("kind", [*NATIVE, *PALETTES_BIG], ids=str)
def test_native_big_endian(kind, frames):
    values = stored_values(kind, frames)
    assert is_exact(native(kind, values, uid.ExplicitVRBigEndian), kind, values)


@pytest.mark.parametrize("vr", ["OB", "OW"])
def test_frames_of_an_odd_number_of_bytes(vr):
    kind = Kind("MONOCHROME2")
    values = stored_values(kind, 3)[:, :21, :33]
    for syntax in (uid.ExplicitVRLittleEndian, uid.ExplicitVRBigEndian):
        assert is_exact(native(kind, values, syntax, vr), kind, values)


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("kind", [*GREY, *PALETTES, *RGB, Kind("YBR_FULL")], ids=str)
def test_rle(kind, frames):
    values = stored_values(kind, frames)
    assert is_exact(encoded(kind, values, uid.RLELossless), kind, values)


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("kind", [*GREY, *PALETTES, *RGB, Kind("YBR_FULL")], ids=str)
def test_jpeg_ls(kind, frames):
    values = stored_values(kind, frames)
    assert is_exact(encoded(kind, values, uid.JPEGLSLossless), kind, values)


@pytest.mark.parametrize("bits", range(2, 17))
def test_jpeg_ls_of_any_depth(bits):
    kind = Kind("MONOCHROME2", 8 if bits <= 8 else 16, bits)
    values = stored_values(kind, 1)
    assert is_exact(encoded(kind, values, uid.JPEGLSLossless), kind, values)


@pytest.mark.parametrize(
    "kind", [Kind("MONOCHROME2"), Kind("MONOCHROME1"), Kind("MONOCHROME2", 16, 12), Kind("RGB")], ids=str
)
def test_near_lossless_jpeg_ls_errs_by_no_more_than_it_says(kind):
    values = stored_values(kind, 2)
    content = encoded(kind, values, uid.JPEGLSNearLossless, jls_error=2)
    assert 0 < errors(content, kind, values).max() <= 2


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("kind", [*GREY, *PALETTES, *RGB, Kind("YBR_FULL")], ids=str)
def test_jpeg_2000(kind, frames):
    values = stored_values(kind, frames)
    assert is_exact(encoded(kind, values, uid.JPEG2000Lossless), kind, values)


def test_the_colours_of_jpeg_2000():
    kind = Kind("RGB")
    values = stored_values(kind, 2)
    reversible = encoded(kind, values, uid.JPEG2000Lossless, "YBR_RCT")
    assert is_exact(reversible, kind, values)
    assert 42 < psnr(encoded(kind, values, uid.JPEG2000, "YBR_ICT", j2k_psnr=[50]), kind, values) < 60


@pytest.mark.parametrize("kind", [Kind("MONOCHROME2"), Kind("MONOCHROME1", 16, 12), Kind("MONOCHROME2", 16)], ids=str)
def test_lossy_jpeg_2000(kind):
    values = stored_values(kind, 2)
    assert psnr(encoded(kind, values, uid.JPEG2000, j2k_psnr=[50]), kind, values) > 48


@pytest.mark.parametrize("has_table", [True, False])
@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize(
    ("kind", "mode", "options", "bound"),
    [
        (Kind("MONOCHROME2"), "L", {}, 45),
        (Kind("MONOCHROME1"), "L", {"progressive": True}, 45),
        (Kind("YBR_FULL"), "YCbCr", {"subsampling": 0}, 40),
        (Kind("YBR_FULL_422"), "YCbCr", {"subsampling": 1}, 32),
        (Kind("YBR_FULL_422"), "YCbCr", {"subsampling": 0, "restart_marker_rows": 1}, 40),
        (Kind("RGB"), "RGB", {"keep_rgb": True, "subsampling": 0}, 40),
    ],
    ids=str,
)
def test_baseline_jpeg(kind, mode, options, bound, frames, has_table):
    values = stored_values(kind, frames)
    content = compressed(kind, [jpeg(frame, mode, **options) for frame in values], uid.JPEGBaseline8Bit, has_table)
    assert psnr(content, kind, values) > bound


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "syntax"),
    [
        ("+eb", uid.JPEGBaseline8Bit),
        ("+ee", uid.JPEGExtended12Bit),
        ("+es", "1.2.840.10008.1.2.4.53"),
        ("+ep", "1.2.840.10008.1.2.4.55"),
    ],
)
@pytest.mark.parametrize("kind", [Kind("MONOCHROME2"), Kind("MONOCHROME2", 16, 12), Kind("RGB")], ids=str)
def test_dcmtk_s_lossy_jpeg(tmp_path, kind, option, syntax):
    if option == "+eb" and kind.bits == 16:
        return  # baseline JPEG has 8 bits
    values = stored_values(kind, 2)
    content = converted("dcmcjpeg", native(kind, values), tmp_path, option, "+q", "97")
    assert str(syntax).encode() in content
    assert psnr(content, kind, values) > (36 if kind.samples == 3 else 48)  # colours at half width
    theirs = decoded(converted("dcmdjpeg", content, tmp_path, "+cl")).astype(int)
    assert np.abs(decoded(content) - theirs).max() <= (3 if kind.samples == 3 else 0)  # colours are rounded apart


@pytest.mark.slow
@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("bits", [9, 12])
def test_twelve_bit_jpeg_is_decoded_as_dcmtk_decodes_it(tmp_path, bits, frames):
    kind = Kind("MONOCHROME2", 16, bits)
    content = converted("dcmcjpeg", native(kind, stored_values(kind, frames)), tmp_path, "+ee", "+q", "70")
    assert (decoded(content) == decoded(converted("dcmdjpeg", content, tmp_path))).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "syntax"),
    [
        (["+e1"], uid.JPEGLosslessSV1),
        *((["+el", "+sv", str(predictor)], uid.JPEGLossless) for predictor in range(1, 8)),
    ],
    ids=str,
)
@pytest.mark.parametrize(
    "kind", [Kind("MONOCHROME2"), Kind("MONOCHROME1", 16, 12), Kind("MONOCHROME2", 16), Kind("RGB")], ids=str
)
def test_lossless_jpeg(tmp_path, kind, options, syntax):
    values = stored_values(kind, 2)
    content = converted("dcmcjpeg", native(kind, values), tmp_path, "+tl", *options)
    assert str(syntax).encode() in content
    assert is_exact(content, kind, values)


@pytest.mark.slow
@pytest.mark.parametrize("program", ["dcmcjpls", "dcmcrle"])
@pytest.mark.parametrize("kind", [*GREY[:5], *PALETTES[:1], Kind("RGB"), Kind("RGB", planar=1)], ids=str)
def test_dcmtk_s_jpeg_ls_and_rle(tmp_path, kind, program):
    values = stored_values(kind, 2)
    assert is_exact(converted(program, native(kind, values), tmp_path), kind, values)


HTJ2K = [uid.HTJ2KLossless, uid.HTJ2KLosslessRPCL, uid.HTJ2K]
# Of OpenJPH 0.9.0: ojph_compress -reversible true -num_decomps 1, of the pictures in the test below.
HEADS = "ff4fff5100{}40000000000c0000000800000000000000000000000c000000080000000000000000"
HTJ2K_STREAMS = {
    "MONOCHROME2-8": HEADS.format("29")
    + "0001070101ff500008000200000003ff52000c00020001000104044001ff5c00072050505058ff90000a0000000000450001ff93c016"
    "f8ff5ff3b3f369bb793e8281ff6d7c75fe6c27cf4390f000034206000031b900c01340154000d829e27500dedddde00cf7c9ecb700ffd9",
    "MONOCHROME2-12": HEADS.format("29")
    + "00010b0101ff500008000200000007ff52000c00020001000104044001ff5c00072070707078ff90000a0000000000590001ff93c0017540"
    "ff3fc16f7ea86fdee36967ff4debf6bf822f48dea773f4d054fc8d1cefd1d9820d328a4c008402a9b900c0015300057046a3d1f8da710275"
    "00f2e5e5e5e5e5e018f63181ecb800ffd9",
    "YBR_RCT-8": HEADS.format("2f")
    + "0003070101070101070101ff500008000200000004ff52000c00020001010104044001ff5c00072058585860ff90000a0000000000c20001"
    "ff93c00b6c75725cd559d6f362a14a629462e8075b7127f300423884726a9800c00ba08f27d6de8f96474eff03d7ede5c29cc553b7f21e04"
    "1ed5208d08550840d73900c00ba18f4fbf7ebcbcff7f7d3e32d987e3efcbd7b3bf9be721c3fa008a442a842001b900c009a0055c005400f0"
    "6a7b9e650000b66868433df27bcc670000806b59e699d600c009e005600000d8a7c275003ce79cf3e000f60001ecb800c009e005506666d8"
    "a7c27500dedddde00cf7c9ecb700ffd9",
}


@pytest.mark.parametrize("syntax", HTJ2K, ids=lambda syntax: syntax.keyword)
@pytest.mark.parametrize("kind", [Kind("MONOCHROME2"), Kind("MONOCHROME2", 16, 12), Kind("YBR_RCT")], ids=str)
def test_high_throughput_jpeg_2000_of_kept_streams(kind, syntax):
    y, x = np.mgrid[:8, :12]
    picture = {
        "MONOCHROME2-8": 16 * y + 3 * x,
        "MONOCHROME2-12": 250 * y + 100 * x,
        "YBR_RCT-8": np.stack([16 * y + 3 * x, 200 - 9 * x, 31 * y], axis=2),
    }[str(kind)]
    content = compressed(kind, [bytes.fromhex(HTJ2K_STREAMS[str(kind)])] * 2, syntax, height=8, width=12)
    shown = Kind("RGB") if kind.samples == 3 else kind
    assert is_exact(content, shown, np.stack([picture.astype(kind.dtype)] * 2))


@pytest.mark.parametrize("frames", [1, 3])
@pytest.mark.parametrize("kind", [Kind("MONOCHROME2"), Kind("MONOCHROME1", 16), Kind("RGB")], ids=str)
def test_high_throughput_jpeg_2000_of_openjph(tmp_path, kind, frames):
    program = tool("ojph_compress")
    values = stored_values(kind, frames)
    streams = []
    for frame in values:
        source = tmp_path / ("in.ppm" if kind.samples == 3 else "in.pgm")
        head = f"P{6 if kind.samples == 3 else 5}\n{WIDTH} {HEIGHT}\n{2**kind.bits - 1}\n"
        source.write_bytes(head.encode() + frame.astype(kind.dtype.newbyteorder(">")).tobytes())
        command = [program, "-i", source, "-o", tmp_path / "out.j2c", "-reversible", "true"]
        subprocess.run(command, check=True, capture_output=True)
        streams.append((tmp_path / "out.j2c").read_bytes())
    stored = Kind("YBR_RCT") if kind.samples == 3 else kind
    assert is_exact(compressed(stored, streams, uid.HTJ2KLossless), kind, values)
