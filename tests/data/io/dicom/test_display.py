"""Windows, lookup tables and palettes: against the standard's formulas, and against dcmtk's dcm2pnm."""

import subprocess
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom import uid
from pydicom.data import get_testdata_file
from pydicom.pixels.processing import apply_color_lut

from tests.data.dicom_files import Kind, as_bytes, dataset, native, stored_values, with_palette
from tests.programs import tool
from usvit.data.io.bad_image import BadImage
from usvit.data.io.dicom import DicomFile

TWELVE = Kind("MONOCHROME2", 16, 12)
SIGNED = Kind("MONOCHROME2", 16, signed=True)


def shown(kind: Kind, values: np.ndarray, **tags: object) -> np.ndarray:
    """The first frame of a file with these tags, (H, W) uint8."""
    with DicomFile(native(Kind(kind.colours, kind.bits, kind.stored, kind.signed, 0, dict(tags)), values)) as file:
        picture = file.frame(0)
    assert (picture == picture[..., :1]).all()
    return picture[..., 0]


def by_dcmtk(content: bytes, folder: Path, *options: str) -> np.ndarray:
    """The first frame as dcmtk shows it, (H, W, 3)."""
    program = tool("dcm2pnm")
    (folder / "in.dcm").write_bytes(content)
    command = [program, "+on", "+F", "1", *options, folder / "in.dcm", folder / "out.png"]
    subprocess.run(command, check=True, capture_output=True)
    return np.asarray(Image.open(folder / "out.png").convert("RGB")).astype(int)


def lookup(count: int, first: int, bits: int, entries: np.ndarray, vr: str = "OW") -> pydicom.Dataset:
    item = pydicom.Dataset()
    item.add_new("LUTDescriptor", "SS" if first < 0 else "US", [count % 65536, first, bits])
    raw = entries.astype(np.uint8) if bits == 8 and vr == "OW" and len(entries) % 2 else entries.astype("<u2")
    item.add_new("LUTData", vr, raw.tobytes() if vr == "OW" else raw.tolist())
    return item


@pytest.mark.slow
@pytest.mark.parametrize("colours", ["MONOCHROME1", "MONOCHROME2"])
@pytest.mark.parametrize(
    ("tags", "options"),
    [
        ({"WindowCenter": 1500, "WindowWidth": 700}, ["+Wi", "1"]),
        ({"WindowCenter": 1500.5, "WindowWidth": 1}, ["+Wi", "1"]),
        ({"WindowCenter": [2000, 5], "WindowWidth": [1000, 5]}, ["+Wi", "1"]),
        ({"WindowCenter": 10, "WindowWidth": 4096, "RescaleSlope": 0.5, "RescaleIntercept": -100}, ["+Wi", "1"]),
        ({"WindowCenter": -4000, "WindowWidth": 3000, "RescaleSlope": -2, "RescaleIntercept": 7}, ["+Wi", "1"]),
        ({"WindowCenter": 1500, "WindowWidth": 700, "VOILUTFunction": "SIGMOID"}, ["+Wi", "1"]),
        ({"VOILUTSequence": [lookup(4096, 0, 8, np.arange(4096) // 16)]}, ["+Wl", "1"]),
        ({"VOILUTSequence": [lookup(1000, 500, 16, np.arange(1000) * 65)]}, ["+Wl", "1"]),
        ({"VOILUTSequence": [lookup(1000, 500, 12, 4095 - np.arange(1000) * 4, "US")]}, ["+Wl", "1"]),
        ({"ModalityLUTSequence": [lookup(4096, 0, 16, np.sqrt(np.arange(4096)) * 1023)]}, ["-W"]),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_grey_is_shown_as_dcmtk_shows_it(tmp_path, colours, tags, options):
    kind = Kind(colours, 16, 12, tags=tags)
    content = native(kind, stored_values(kind, 1))
    with DicomFile(content) as file:
        assert np.abs(file.frame(0) - by_dcmtk(content, tmp_path, *options)).max() <= 1


def test_a_window_of_signed_values(tmp_path):
    kind = Kind("MONOCHROME2", 16, signed=True, tags={"WindowCenter": -3000, "WindowWidth": 9000})
    content = native(kind, stored_values(kind, 1))
    with DicomFile(content) as file:
        assert np.abs(file.frame(0) - by_dcmtk(content, tmp_path, "+Wi", "1")).max() <= 1


@pytest.mark.parametrize("bits", [8, 16])
def test_a_lookup_table_of_bytes_or_words(bits):
    values = stored_values(TWELVE, 1)
    entries = np.arange(4095, -1, -1) // (16 if bits == 8 else 1)
    item = lookup(4096, 0, bits, entries * (1 if bits == 8 else 16))
    if bits == 8:
        item.LUTData = entries.astype(np.uint8).tobytes()
    picture = shown(TWELVE, values, VOILUTSequence=[item])
    assert np.abs(picture - (255 - values[0] / 4095 * 255)).max() <= 1


def test_a_lookup_table_that_begins_below_zero():
    values = stored_values(SIGNED, 1)
    picture = shown(SIGNED, values, VOILUTSequence=[lookup(2000, -1000, 16, np.arange(2000) * 32)])
    expected = (values[0].astype(int) + 1000).clip(0, 1999) * 32 / 65535 * 255
    assert np.abs(picture - expected).max() <= 0.51


def test_a_window_in_functional_groups_of_an_enhanced_file():
    window, group = pydicom.Dataset(), pydicom.Dataset()
    window.WindowCenter, window.WindowWidth = 1500, 700
    group.FrameVOILUTSequence = [window]
    values = stored_values(TWELVE, 1)
    plain = shown(TWELVE, values, WindowCenter=1500, WindowWidth=700)
    for groups in ("SharedFunctionalGroupsSequence", "PerFrameFunctionalGroupsSequence"):
        assert (shown(TWELVE, values, **{groups: [group]}) == plain).all()


@pytest.mark.parametrize("empty", ["", None])
def test_an_empty_window_is_none(empty):
    values = stored_values(TWELVE, 1)
    assert (shown(TWELVE, values, WindowCenter=empty, WindowWidth=empty) == shown(TWELVE, values)).all()


@pytest.mark.parametrize(
    "tags",
    [
        *({"WindowCenter": 100, "WindowWidth": width} for width in (0, -5, float("nan"), float("inf"))),
        {"WindowCenter": float("nan"), "WindowWidth": 100},
        {"WindowCenter": 100, "WindowWidth": 100, "VOILUTFunction": "MILLER"},
        {"RescaleSlope": 0, "RescaleIntercept": 0},
        {"RescaleSlope": float("nan"), "RescaleIntercept": 0},
        {"VOILUTSequence": [lookup(4096, 0, 16, np.arange(4000))]},
        {"VOILUTSequence": [lookup(4096, 0, 40, np.arange(4096))]},
        {"VOILUTSequence": [pydicom.Dataset()]},
        {"ModalityLUTSequence": [lookup(10, 0, 16, np.zeros(0))]},
    ],
    ids=str,
)
def test_what_cannot_be_applied_is_refused(tags):
    with pytest.raises(BadImage) as caught:
        shown(TWELVE, stored_values(TWELVE, 1), **tags)
    assert caught.value.code == "damaged"
    assert "MILLER" not in caught.value.reason


def test_values_that_do_not_begin_at_the_lowest_bit():
    kind = Kind("MONOCHROME2", 16, 12)
    values = stored_values(kind, 1)
    kind.tags["HighBit"] = 15
    assert (shown(kind, values << 4, HighBit=15) == shown(TWELVE, values)).all()


def test_what_overlays_leave_in_unused_bits_is_not_seen():
    values = stored_values(TWELVE, 1)
    assert (shown(TWELVE, values | 0xA000) == shown(TWELVE, values)).all()


def segmented(table: np.ndarray) -> np.ndarray:
    """A table whose second half is a straight line, in segments."""
    half = len(table) // 2
    return np.concatenate([[0, half], table[:half], [1, half, table[-1]]]).astype("<u2")


def test_a_palette_in_segments_is_that_of_pydicom(real_data: Path):
    path = real_data / "us_dicom" / "gdcm-US-ALOKA-16.dcm"
    data = pydicom.dcmread(path)
    with DicomFile(path) as file:
        assert (file.frame(0) == apply_color_lut(data.pixel_array, data) >> 8).all()


def test_a_palette_in_segments_is_the_palette_they_stand_for():
    values = stored_values(Kind("PALETTE COLOR"), 1)
    plain, parts = Kind("PALETTE COLOR"), Kind("PALETTE COLOR")
    for number, name in enumerate(("Red", "Green", "Blue")):
        table = np.concatenate([np.arange(128) * 300 + number, 38100 + number + np.arange(1, 129) * 200]).astype("<u2")
        for kind in (plain, parts):
            kind.tags[f"{name}PaletteColorLookupTableDescriptor"] = [256, 0, 16]
        plain.tags[f"{name}PaletteColorLookupTableData"] = table.tobytes()
        parts.tags[f"Segmented{name}PaletteColorLookupTableData"] = segmented(table).tobytes()
    with DicomFile(native(plain, values)) as one, DicomFile(native(parts, values)) as other:
        assert (one.frame() == other.frame()).all()
        assert one.frame().std() > 20


@pytest.mark.parametrize("segments", [[1, 5, 7], [2, 1, 0, 0], [0, 0], [0, 300, 1, 2], [7, 7]], ids=str)
def test_segments_that_make_no_table_are_refused(segments):
    kind = Kind("PALETTE COLOR")
    for name in ("Red", "Green", "Blue"):
        kind.tags[f"{name}PaletteColorLookupTableDescriptor"] = [256, 0, 16]
        kind.tags[f"Segmented{name}PaletteColorLookupTableData"] = np.array(segments, "<u2").tobytes()
    with pytest.raises(BadImage) as caught:
        DicomFile(native(kind, stored_values(kind, 1)))
    assert caught.value.code == "damaged"


@pytest.mark.parametrize("depth", [8, 16])
def test_a_palette_is_shown_as_dcmtk_shows_it(tmp_path, depth):
    kind = with_palette(Kind("PALETTE COLOR"), depth)
    content = native(kind, stored_values(kind, 1))
    with DicomFile(content) as file:
        assert np.abs(file.frame(0) - by_dcmtk(content, tmp_path)).max() <= 1


def test_a_palette_that_is_not_there_is_refused():
    kind = Kind("PALETTE COLOR")
    with pytest.raises(BadImage) as caught:
        DicomFile(native(kind, stored_values(kind, 1)))
    assert caught.value.code == "damaged"


@pytest.mark.parametrize(
    "name",
    ["MR_small.dcm", "CT_small.dcm", "examples_rgb_color.dcm", "SC_ybr_full_422_uncompressed.dcm", "JPEG-lossy.dcm"],
)
def test_shipped_files_are_shown_as_dcmtk_shows_them(tmp_path, name):
    path = Path(str(get_testdata_file(name, download=False)))
    windowed = pydicom.dcmread(path).get("WindowCenter") is not None
    content = path.read_bytes()
    if name.startswith("JPEG"):
        tool("dcmdjpeg")
        subprocess.run(["dcmdjpeg", path, tmp_path / "native.dcm"], check=True, capture_output=True)
        content = (tmp_path / "native.dcm").read_bytes()
    grey = pydicom.dcmread(path).SamplesPerPixel == 1
    options = ["+Wi", "1"] if windowed else ["-W"] if grey else []
    with DicomFile(path) as file:
        assert np.abs(file.frame(0) - by_dcmtk(content, tmp_path, *options)).max() <= 1


def test_pixels_of_one_bit():
    kind = Kind("MONOCHROME2")
    data = dataset(kind, 2, uid.ExplicitVRLittleEndian, 5, 7)
    data.BitsAllocated = data.BitsStored = 1
    data.HighBit = 0
    bits = np.random.default_rng(0).integers(0, 2, (2, 5, 7), dtype=np.uint8)
    data.add_new("PixelData", "OB", np.packbits(bits, bitorder="little").tobytes() + b"\0")
    with DicomFile(as_bytes(data)) as file:
        for number in range(2):
            assert (file.frame(number)[..., 0] == bits[number] * 255).all()
