"""Files that claim what is not so: refused with the right code, cheaply, and with no other exception."""

import struct
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom import uid
from pydicom.data import get_testdata_file
from pydicom.encaps import encapsulate
from pydicom.pixels import get_encoder

from tests.data.dicom_files import HEIGHT, WIDTH, Kind, as_bytes, compressed, dataset, jpeg, native, stored_values
from usvit.data.io.bad_image import BadImage
from usvit.data.io.dicom import DicomFile, byte_stream, read_dicom_frame, read_facts
from usvit.scoring.items import FAILURES

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pydicom")  # pytest undoes the package's own filter

GREY = Kind("MONOCHROME2")
VALUES = stored_values(GREY, 3)


def code(content: bytes | Path, frame: int = 0, **limits: int) -> str:
    """The code that a file is refused with; "" where it is read."""
    try:
        with DicomFile(content, **limits) as file:
            assert file.frame(frame).shape[2] == 3
    except BadImage as bad:
        assert bad.code in FAILURES
        return bad.code
    return ""


def with_tags(**tags: object) -> bytes:
    """Three frames of grey with some elements replaced; None deletes one."""
    data = dataset(GREY, 3, uid.ExplicitVRLittleEndian)
    data.add_new("PixelData", "OB", VALUES.tobytes())
    for name, value in tags.items():
        if value is None:
            delattr(data, name)
        else:
            setattr(data, name, value)
    return as_bytes(data)


def raw_element(group: int, number: int, vr: bytes, length: int, value: bytes = b"") -> bytes:
    """An explicit little-endian element with any length."""
    head = struct.pack("<HH2s", group, number, vr)
    long = vr in (b"OB", b"OW", b"SQ", b"UN", b"UT")
    return head + (struct.pack("<HI", 0, length) if long else struct.pack("<H", length)) + value


def file_of(*elements: bytes, syntax: str = uid.ExplicitVRLittleEndian) -> bytes:
    """A file of these elements behind a meta header."""
    name = syntax.encode() + b"\0" * (len(syntax) % 2)
    return b"\0" * 128 + b"DICM" + raw_element(2, 0x10, b"UI", len(name), name) + b"".join(elements)


def deflated(inner: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return file_of(packer.compress(inner) + packer.flush(), syntax=uid.DeflatedExplicitVRLittleEndian)


def body(content: bytes) -> bytes:
    """A file's elements after its meta header."""
    start = content.index(b"\x08\x00\x16\x00UI")
    return content[start:]


@contextmanager
def memory_below(most: int) -> Iterator[None]:
    tracemalloc.start()
    yield
    taken = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert taken < most


def test_the_file_that_the_others_are_made_of_is_read():
    assert code(with_tags()) == ""
    assert code(deflated(body(with_tags()))) == ""


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({"Rows": 0}, "damaged"),
        ({"Rows": 60000, "Columns": 60000}, "too_large"),
        ({"Rows": 500}, "damaged"),
        ({"NumberOfFrames": 4}, "damaged"),
        ({"NumberOfFrames": 2_000_000_000}, "damaged"),
        ({"NumberOfFrames": -1}, "damaged"),
        ({"NumberOfFrames": 0}, "damaged"),
        ({"BitsAllocated": None}, "damaged"),
        ({"BitsAllocated": 0}, "damaged"),
        ({"BitsAllocated": 12}, "unsupported_pixels"),
        ({"BitsAllocated": 64}, "unsupported_pixels"),
        ({"BitsStored": None}, "damaged"),
        ({"BitsStored": 0}, "damaged"),
        ({"BitsStored": 16}, "damaged"),
        ({"HighBit": 40}, "damaged"),
        ({"SamplesPerPixel": None}, "damaged"),
        ({"SamplesPerPixel": 3}, "damaged"),
        ({"SamplesPerPixel": 60000}, "damaged"),
        ({"PixelRepresentation": None}, "damaged"),
        ({"PhotometricInterpretation": None}, "unsupported_pixels"),
        ({"PhotometricInterpretation": "RGB"}, "damaged"),
        ({"PhotometricInterpretation": "YBR_RCT", "SamplesPerPixel": 3}, "damaged"),
        ({"PhotometricInterpretation": "CMYK"}, "unsupported_pixels"),
        ({"Rows": None}, "no_pixels"),
        ({"PixelData": None}, "no_pixels"),
        ({"PixelData": b""}, "damaged"),
        ({"PixelData": VALUES.tobytes()[:-2]}, "damaged"),
    ],
    ids=str,
)
def test_a_header_that_contradicts_itself_or_its_pixels(tags, expected):
    assert code(with_tags(**tags)) == expected


def test_floating_point_pixels_are_not_supported():
    data = dataset(GREY, 1, uid.ExplicitVRLittleEndian)
    data.BitsAllocated = 32
    data.FloatPixelData = b"\0" * 4 * HEIGHT * WIDTH
    assert code(as_bytes(data)) == "unsupported_pixels"


def test_uncompressed_pixels_cut_anywhere_are_truncated_never_half_black():
    content = with_tags()
    pixels = content.index(b"\xe0\x7f\x10\x00")
    for end in (*range(pixels + 12, len(content), 401), len(content) - 1):
        assert code(content[:end]) == "truncated"
        assert code(deflated(body(content[:end]))) == "truncated"


def test_a_header_cut_anywhere_is_refused():
    content = with_tags()
    pixels = content.index(b"\xe0\x7f\x10\x00")
    found = {code(content[:end]) for end in range(pixels + 12)}
    assert found <= {"empty", "not_an_image", "truncated", "no_pixels", "damaged"}
    assert "" not in found
    packed = deflated(body(content))
    assert {code(packed[:end]) for end in range(180, len(packed), 13)} <= {"truncated", "no_pixels"}


@pytest.mark.parametrize("kind", ["jpeg", "rle", "j2k", "jls"])
def test_compressed_pixels_cut_anywhere_are_refused(kind):
    frames = VALUES
    described = {
        "rows": HEIGHT,
        "columns": WIDTH,
        "number_of_frames": 1,
        "samples_per_pixel": 1,
        "bits_allocated": 8,
        "bits_stored": 8,
        "pixel_representation": 0,
        "photometric_interpretation": "MONOCHROME2",
    }
    syntax = {"rle": uid.RLELossless, "j2k": uid.JPEG2000Lossless, "jls": uid.JPEGLSLossless}.get(kind)
    if syntax:
        streams = [get_encoder(syntax).encode(frame.tobytes(), **described) for frame in frames]
    else:
        syntax, streams = uid.JPEGBaseline8Bit, [jpeg(frame, "L") for frame in frames]
    content = compressed(GREY, streams, syntax)
    assert code(content) == ""
    start = content.index(b"\xe0\x7f\x10\x00")
    for end in range(start + 12, len(content) - 12, 97):
        assert code(content[:end], 2) == "truncated"
    assert code(content[:-8], 2) == ""  # only the delimiter is missing: every frame is whole
    # The same within a fragment whose own length is right: the codestream ends too early.
    for part in (0.1, 0.5, 0.9):
        cut = compressed(GREY, [stream[: int(len(stream) * part) // 2 * 2] for stream in streams], syntax)
        assert code(cut) in ("truncated", "damaged")


def test_a_codestream_of_another_size_than_the_header_s_is_refused_before_it_takes_memory():
    stream = bytearray(jpeg(VALUES[0], "L"))
    place = stream.index(b"\xff\xc0") + 5
    stream[place : place + 4] = struct.pack(">HH", 65000, 65000)
    assert code(compressed(GREY, [bytes(stream)], uid.JPEGBaseline8Bit)) == "damaged"
    assert code(compressed(GREY, [jpeg(VALUES[0], "L")], uid.JPEGBaseline8Bit, height=20)) == "damaged"
    assert code(compressed(Kind("RGB"), [jpeg(VALUES[0], "L")], uid.JPEGBaseline8Bit)) == "damaged"
    wide = bytes.fromhex(
        "ff4fff51002900000000fffffff00000fff00000000000000000000000200000002000000000000000000001070101ffd9"
    )
    assert code(compressed(GREY, [wide], uid.JPEG2000)) == "damaged"


@pytest.mark.parametrize(
    "stream",
    [
        b"\0\0",
        b"\xff\xd8",
        b"\xff\xd8\xff\xd9",
        b"\xff\xd8" + b"\xff" * 500,
        b"\xff\xd8\xff\xe0\0\0\xff\xd9",
        b"JUNK" * 50,
    ],
    ids=lambda stream: stream[:8].hex(),
)
@pytest.mark.parametrize("syntax", [uid.JPEGBaseline8Bit, uid.JPEG2000, uid.JPEGLSLossless, uid.RLELossless, uid.HTJ2K])
def test_fragments_of_nonsense(stream, syntax):
    assert code(compressed(GREY, [stream], syntax)) in ("damaged", "truncated")


def test_an_rle_segment_that_would_unpack_to_gigabytes():
    segment = b"\x81\0" * 20_000  # 64 times as much
    bomb = struct.pack("<16I", 1, 64, *[0] * 14) + segment
    assert code(compressed(GREY, [bomb], uid.RLELossless)) == "damaged"


def test_a_frame_that_is_far_larger_than_it_can_be():
    assert code(compressed(GREY, [jpeg(VALUES[0], "L") + b"\0" * 200_000], uid.JPEGBaseline8Bit)) == "damaged"


def test_fewer_fragments_than_frames_and_a_table_that_points_nowhere():
    streams = [jpeg(frame, "L") for frame in VALUES]
    data = pydicom.dcmread(pydicom.filebase.DicomBytesIO(compressed(GREY, streams, uid.JPEGBaseline8Bit)))
    data.NumberOfFrames = 4
    assert code(as_bytes(data)) == "damaged"
    wrong = struct.pack("<HHI4I", 0xFFFE, 0xE000, 16, 0, 7, 4_000_000_000, 3)
    items = b"".join(
        struct.pack("<HHI", 0xFFFE, 0xE000, len(part)) + part for stream in streams for part in halves(stream)
    )
    data.NumberOfFrames = 3
    data.PixelData = wrong + items + struct.pack("<HHI", 0xFFFE, 0xE0DD, 0)
    data["PixelData"].is_undefined_length = True
    content = as_bytes(data)
    for number, stream in enumerate(streams):  # found by their end markers
        alone = compressed(GREY, [stream], uid.JPEGBaseline8Bit)
        assert (read_dicom_frame(content, number) == read_dicom_frame(alone)).all()


def halves(stream: bytes) -> tuple[bytes, bytes]:
    middle = len(stream) // 4 * 2
    return stream[:middle], stream[middle:] + b"\0" * (len(stream) % 2)


def test_a_native_syntax_with_fragments_and_the_reverse():
    data = dataset(GREY, 1, uid.ExplicitVRLittleEndian)
    data.add_new("PixelData", "OB", encapsulate([VALUES[0].tobytes()]))
    data["PixelData"].is_undefined_length = True
    content = as_bytes(pydicom.dcmread(pydicom.filebase.DicomBytesIO(native(GREY, VALUES[:1]))))
    swapped = content.replace(uid.ExplicitVRLittleEndian.encode() + b"\0", uid.JPEGBaseline8Bit.encode())
    assert code(content) == ""
    assert code(swapped) in ("damaged", "truncated")


def test_deflate_bombs_are_refused_after_some_megabytes(monkeypatch):
    monkeypatch.setattr(byte_stream, "MAX_HEADER", 8 << 20)
    zeros = b"\0" * (1 << 20)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    head = body(with_tags(PixelData=None, Rows=5000, Columns=5000, NumberOfFrames=100))
    large = raw_element(0x7FE0, 0x10, b"OB", 2_500_000_000)
    packed = packer.compress(head + large) + b"".join(packer.compress(zeros) for _ in range(20)) + packer.flush()
    bomb = file_of(packed, syntax=uid.DeflatedExplicitVRLittleEndian)
    assert len(bomb) < 100_000
    with memory_below(30_000_000):
        assert code(bomb, max_bytes=12_000_000) == "too_large"
    # A header that is one: an element of 20 MB before the pixels.
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    wide = raw_element(0x0009, 0x1010, b"OB", 20 << 20)
    packed = packer.compress(wide) + b"".join(packer.compress(zeros) for _ in range(20)) + packer.flush()
    with memory_below(40_000_000):
        assert code(file_of(packed, syntax=uid.DeflatedExplicitVRLittleEndian)) == "too_large"
    assert code(deflated(b"")[:-1] + b"\x77\x99") in ("damaged", "truncated", "no_pixels")


def test_a_file_larger_than_the_limit_is_not_read():
    content = with_tags()
    assert code(content, max_bytes=len(content)) == ""
    assert code(content, max_bytes=len(content) - 1) == "too_large"


@pytest.mark.parametrize("length", [5_000, 0xFFFFFFFE, 0xFFFFFFFF])
@pytest.mark.parametrize("vr", [b"SQ", b"UN", b"OB"])
def test_elements_that_claim_more_than_there_is(vr, length):
    content = file_of(raw_element(0x0009, 0x1010, vr, length, b"\0" * 40), body(with_tags()))
    assert code(content) in ("truncated", "damaged", "no_pixels")


@pytest.mark.slow
def test_sequences_without_an_end_or_of_a_million_items(monkeypatch):
    monkeypatch.setattr(byte_stream, "_MAX_READS", 20_000)  # reading so many takes a second, not ten
    item = struct.pack("<HHI", 0xFFFE, 0xE000, 0)
    opened = raw_element(0x0008, 0x1140, b"SQ", 0xFFFFFFFF)
    assert code(file_of(opened, item * 10)) == "truncated"
    assert code(file_of(opened, item * 15_000)) == "too_large"
    nested = (opened + struct.pack("<HHI", 0xFFFE, 0xE000, 0xFFFFFFFF)) * 5000
    assert code(file_of(nested)) in ("damaged", "truncated")


def test_a_large_private_element_before_the_pixels_is_passed_over(tmp_path):
    private = raw_element(0x0009, 0x1010, b"OB", 3_000_000_000)
    with (tmp_path / "a.dcm").open("wb") as file:  # sparse: it takes no room on the disk
        file.write(file_of(private))
        file.seek(3_000_000_000, 1)
        file.write(body(with_tags()))
    with memory_below(5_000_000):
        assert code(tmp_path / "a.dcm") == ""


def test_values_of_the_wrong_kind_are_refused_and_not_quoted():
    inner = body(with_tags())
    place = inner.index(b"\x28\x00\x10\x00US")
    text = raw_element(0x0028, 0x0010, b"LO", 12, b"MILLER^ANNA ")
    content = file_of(inner[:place], text, inner[place + 10 :])
    with pytest.raises(BadImage) as caught:
        DicomFile(content)
    assert caught.value.code == "damaged"
    assert "MILLER" not in str(caught.value)


@pytest.mark.parametrize("keyword", ["PatientID", "PixelSpacing", "StudyInstanceUID", "ManufacturerModelName"])
def test_facts_survive_nonsense_in_what_is_only_told(keyword):
    inner = body(with_tags())
    tag = pydicom.datadict.tag_for_keyword(keyword)
    element = raw_element(tag >> 16, tag & 0xFFFF, b"UN", 5, b"\xff\xfe\x00\x01\x80")
    assert code(file_of(element, inner)) in ("", "damaged")


@pytest.mark.slow
def test_random_damage_gives_a_picture_or_a_code():
    random = np.random.default_rng(0)
    originals = [
        with_tags(),
        deflated(body(with_tags())),
        compressed(Kind("RGB"), [jpeg(stored_values(Kind("RGB"), 1)[0], "RGB", keep_rgb=True)], uid.JPEGBaseline8Bit),
        native(Kind("YBR_FULL_422"), stored_values(Kind("YBR_FULL_422"), 1), uid.ImplicitVRLittleEndian),
    ]
    codes = set()
    for number in range(240):
        damaged = bytearray(originals[number % 4])
        for place in random.integers(128, min(len(damaged), 1200), size=random.integers(1, 6)):
            damaged[place] = random.integers(256)
        codes.add(code(bytes(damaged)))
    assert codes > {"", "damaged"}


def test_facts_of_a_report_or_a_plan_have_no_pixels_and_cost_nothing():
    facts = read_facts(with_tags(Rows=None))
    assert not facts.has_pixels
    assert facts.frames == 1


def test_what_makes_gdcm_end_the_process_is_kept_from_it():
    shipped = {
        name: Path(str(get_testdata_file(name, download=False))) for name in ("JPGExtended.dcm", "SC_rgb_jpeg_gdcm.dcm")
    }
    twelve = shipped["JPGExtended.dcm"].read_bytes()
    place = twelve.index(b"\xff\xc1") + 4
    assert twelve[place] == 12
    assert code(twelve[:place] + b"\xc0" + twelve[place + 1 :]) == "damaged"
    data = pydicom.dcmread(shipped["SC_rgb_jpeg_gdcm.dcm"])
    stream = pydicom.encaps.get_frame(data.PixelData, 0)
    adobe = b"\xff\xee\0\x0eAdobe\0\x64\0\0\0\0\x86"  # an unknown transform
    marked = compressed(Kind("RGB"), [stream[:2] + adobe + stream[2:]], uid.JPEGLosslessSV1, height=100, width=100)
    assert (read_dicom_frame(marked) == data.pixel_array).all()
