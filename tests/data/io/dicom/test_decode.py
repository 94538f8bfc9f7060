import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.data import get_testdata_file
from pydicom.sequence import Sequence
from pydicom.uid import JPEG2000Lossless, RLELossless

from tests.data.conftest import speckle, write_dicom
from usvit.data.io.bad_image import MAX_PIXELS, BadImage
from usvit.data.io.decoding import read_image
from usvit.data.io.dicom import read_dicom_frame, read_facts
from usvit.scoring.items import FAILURES

GREY = speckle(1)
RAMP16 = np.arange(0, 65536, 16, dtype=np.uint16).reshape(64, 64)


def shipped(name: str) -> Path:
    """A file inside the pydicom package; nothing is downloaded."""
    path = get_testdata_file(name, download=False)
    assert path is not None, name
    return Path(path)


def whole(path: Path) -> np.ndarray:
    """pydicom's decoding of all frames at once: the oracle for one frame read from the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dataset = pydicom.dcmread(path)
        return dataset.pixel_array


def refused(path: Path, frame: int = 0) -> str:
    return refusal(path, frame).reason


def refusal(path: Path, frame: int = 0) -> BadImage:
    with pytest.raises(BadImage) as caught:
        read_image(path, frame)
    assert caught.value.path == path
    assert caught.value.code in FAILURES
    return caught.value


def test_eight_bit_grey_comes_out_as_it_went_in(tmp_path):
    assert (read_image(write_dicom(tmp_path / "a.dcm", GREY)) == GREY[:, :, None]).all()


def test_a_file_without_a_suffix_is_known_by_its_letters(tmp_path):
    assert (read_image(write_dicom(tmp_path / "IM0001", GREY)) == GREY[:, :, None]).all()


def test_monochrome1_is_inverted(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", GREY, PhotometricInterpretation="MONOCHROME1")
    assert (read_image(path) == 255 - GREY[:, :, None]).all()


def test_sixteen_bits_are_scaled_by_the_range_that_the_header_states(tmp_path):
    full = read_image(write_dicom(tmp_path / "a.dcm", RAMP16))[:, :, 0]
    assert np.abs(full - RAMP16 / 257).max() <= 0.5
    twelve = write_dicom(tmp_path / "b.dcm", (RAMP16 >> 4), BitsStored=12, HighBit=11)
    assert np.abs(read_image(twelve)[:, :, 0] - (RAMP16 >> 4) / 4095 * 255).max() <= 0.5
    signed = write_dicom(tmp_path / "c.dcm", (RAMP16.astype(np.int32) - 32768).astype(np.int16))
    assert np.abs(read_image(signed)[:, :, 0] - RAMP16 / 257).max() <= 0.5


@pytest.mark.parametrize("function", ["LINEAR", "LINEAR_EXACT"])
def test_a_window_is_applied_by_the_standard_s_formula(tmp_path, function):
    center, width = 30000.0, 20000.0
    path = write_dicom(tmp_path / "a.dcm", RAMP16, WindowCenter=center, WindowWidth=width, VOILUTFunction=function)
    x = RAMP16.astype(float)
    if function == "LINEAR":  # PS3.3 C.11.2.1.2.1
        expected = ((x - (center - 0.5)) / (width - 1) + 0.5).clip(0, 1) * 255
    else:
        expected = ((x - center) / width + 0.5).clip(0, 1) * 255
    assert np.abs(read_image(path)[:, :, 0] - expected).max() <= 0.51


def test_of_several_windows_the_first_is_used_and_rescaling_comes_before_it(tmp_path):
    tags = {"RescaleSlope": 2.0, "RescaleIntercept": -1000.0, "VOILUTFunction": "LINEAR_EXACT"}
    path = write_dicom(tmp_path / "a.dcm", RAMP16, WindowCenter=[50000, 1], WindowWidth=[40000, 1], **tags)
    expected = ((RAMP16 * 2.0 - 1000 - 50000) / 40000 + 0.5).clip(0, 1) * 255
    assert np.abs(read_image(path)[:, :, 0] - expected).max() <= 0.51


def test_rescaling_alone_changes_nothing_that_is_seen(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", GREY, RescaleSlope=3.0, RescaleIntercept=-5.0)
    assert (read_image(path) == GREY[:, :, None]).all()
    falling = write_dicom(tmp_path / "b.dcm", GREY, RescaleSlope=-1.0, RescaleIntercept=0.0)
    assert (read_image(falling) == 255 - GREY[:, :, None]).all()


def test_a_lookup_table_goes_before_a_window(tmp_path):
    item = pydicom.Dataset()
    item.LUTDescriptor = [256, 0, 16]
    item.add_new("LUTData", "OW", ((255 - np.arange(256)) * 257).astype("<u2").tobytes())
    path = write_dicom(tmp_path / "a.dcm", GREY, WindowCenter=10, WindowWidth=2, VOILUTSequence=Sequence([item]))
    assert (read_image(path) == 255 - GREY[:, :, None]).all()


def test_colour_is_kept_and_a_cine_loop_gives_the_frame_that_was_asked_for(tmp_path):
    colour = np.stack([speckle(1), speckle(2), speckle(3)], axis=2)
    assert (read_image(write_dicom(tmp_path / "rgb.dcm", colour)) == colour).all()
    loop = np.stack([speckle(seed) for seed in range(5)])
    path = write_dicom(tmp_path / "loop.dcm", loop)
    assert read_facts(path).frames == 5
    for frame in range(5):
        assert (read_image(path, frame) == loop[frame][:, :, None]).all()
    assert refused(path, 5) == "it has no frame 5: it holds 5, counted from 0"
    assert "no frame -1" in refused(path, -1)


def test_one_frame_of_a_long_loop_takes_the_memory_of_one_frame(tmp_path):
    path = write_dicom(tmp_path / "loop.dcm", np.zeros((200, 256, 256), np.uint8))
    read_image(path, 0)
    tracemalloc.start()
    read_image(path, 150)
    assert tracemalloc.get_traced_memory()[1] < 3_000_000  # the file has 13 MB
    tracemalloc.stop()


@pytest.mark.parametrize("syntax", [RLELossless, JPEG2000Lossless])
def test_lossless_compression_gives_the_same_pixels(tmp_path, syntax):
    path = write_dicom(tmp_path / "a.dcm", GREY)
    dataset = pydicom.dcmread(path)
    dataset.compress(syntax, generate_instance_uid=False)
    dataset.save_as(tmp_path / "b.dcm")
    assert (read_image(tmp_path / "b.dcm") == GREY[:, :, None]).all()


@pytest.mark.parametrize("kind", ["RLE", "jp2klossless", "jpeg_ls_lossless", "bigendian", "implicit"])
def test_one_image_in_several_transfer_syntaxes_is_one_image(kind):
    assert (read_image(shipped(f"MR_small_{kind}.dcm")) == read_image(shipped("MR_small.dcm"))).all()


@pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
@pytest.mark.parametrize(
    "name",
    [
        *("examples_rgb_color.dcm", "examples_ybr_color.dcm", "SC_rgb_rle_2frame.dcm", "SC_rgb_jpeg_dcmtk.dcm"),
        *("examples_jpeg2k.dcm", "SC_ybr_full_422_uncompressed.dcm", "image_dfl.dcm", "SC_rgb_jpeg.dcm"),
    ],
)
def test_shipped_colour_and_deflated_files_are_as_pydicom_decodes_them(name):
    path = shipped(name)
    expected = whole(path)
    several = read_facts(path).frames > 1
    for frame in range(min(read_facts(path).frames, 3)):
        pixels = read_image(path, frame)
        one = expected[frame] if several else expected
        assert (pixels == (one if one.ndim == 3 else one[:, :, None])).all()


def test_baseline_jpeg_is_as_pillow_decodes_it(tmp_path):
    path = shipped("examples_ybr_color.dcm")
    stream = pydicom.encaps.get_frame(pydicom.dcmread(path).PixelData, 7, number_of_frames=30)
    (tmp_path / "frame.jpg").write_bytes(stream)
    independent = np.asarray(Image.open(tmp_path / "frame.jpg").convert("RGB")).astype(int)
    assert np.abs(read_image(path, 7).astype(int) - independent).max() <= 3  # two decoders round the colours apart


def test_sixteen_and_thirty_two_bit_colours_are_those_of_eight_bits():
    eight = read_image(shipped("SC_rgb_rle.dcm"))
    assert (read_image(shipped("SC_rgb_rle_16bit.dcm")) == eight).all()
    assert (read_image(shipped("SC_rgb_rle_32bit.dcm")) == eight).all()


def test_a_palette_of_sixteen_bits_gives_its_upper_eight():
    path = shipped("examples_palette.dcm")
    dataset = pydicom.dcmread(path)
    tables = [
        np.frombuffer(dataset[f"{name}PaletteColorLookupTableData"].value, "<u2") for name in ("Red", "Green", "Blue")
    ]
    expected = np.stack([table[dataset.pixel_array] >> 8 for table in tables], axis=2)
    pixels = read_image(path)
    assert (pixels == expected).all()
    assert (pixels[..., 0] != pixels[..., 2]).any()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [("reportsi.dcm", "Basic Text SR"), ("rtplan.dcm", "RT Plan"), ("waveform_ecg.dcm", "ECG")],
)
def test_what_has_no_pixels_is_refused_by_its_kind(name, kind):
    assert refused(shipped(name)).startswith("it has no pixels")
    assert kind in refused(shipped(name))
    assert not read_facts(shipped(name)).has_pixels


def test_a_header_of_an_image_without_its_pixels_is_refused(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", GREY)
    dataset = pydicom.dcmread(path)
    del dataset.PixelData
    dataset.save_as(path)
    assert refused(path) == "it has no pixels (Ultrasound Image Storage)"


def test_damaged_empty_and_missing_files_are_refused(tmp_path):
    assert refusal(shipped("MR_truncated.dcm")).code == "truncated"
    path = write_dicom(tmp_path / "cut.dcm", GREY)
    path.write_bytes(path.read_bytes()[:-500])
    assert refusal(path).code == "truncated"
    (tmp_path / "empty.dcm").write_bytes(b"")
    assert refusal(tmp_path / "empty.dcm").code == "empty"
    (tmp_path / "text.dcm").write_text("no image at all " * 20)
    assert "not a DICOM file" in refused(tmp_path / "text.dcm")
    assert refusal(tmp_path / "text.dcm").code == "not_an_image"
    assert refused(tmp_path / "gone.dcm") == "there is no such file"
    assert refusal(tmp_path / "gone.dcm").code == "not_found"
    assert refused(tmp_path / "gone") == "there is no such file"


SMPTE = "1.2.840.10008.1.2.7.1"


@pytest.mark.filterwarnings("ignore::UserWarning:pydicom")
def test_a_transfer_syntax_that_nothing_decodes_is_named(tmp_path):
    path = write_dicom(tmp_path / "stream.dcm", GREY)
    dataset = pydicom.dcmread(path)
    dataset.file_meta.TransferSyntaxUID = SMPTE
    dataset.PixelData = pydicom.encaps.encapsulate([b"\0\0\0\1video"])
    dataset["PixelData"].is_undefined_length = True
    dataset.save_as(path)
    assert "SMPTE" in refused(path)
    assert SMPTE in refused(path)
    assert "convert" in refused(path)
    assert refusal(path).code == "unsupported_syntax"
    dataset.file_meta.TransferSyntaxUID = "1.2.3.MILLER.4711"
    dataset.save_as(path, enforce_file_format=False)
    assert refusal(path).code == "unsupported_syntax"
    assert "4711" not in refused(path)  # it may be anything


def test_a_missing_decoder_says_what_to_install(tmp_path, monkeypatch):
    from pydicom.pixels.decoders import JPEG2000LosslessDecoder

    monkeypatch.setattr(JPEG2000LosslessDecoder, "_available", {})
    assert "pip install python-gdcm" in refused(shipped("examples_jpeg2k.dcm"))


def test_colours_of_no_known_kind_are_refused(tmp_path):
    assert "'HSV' is not supported" in refused(write_dicom(tmp_path / "a.dcm", GREY, PhotometricInterpretation="HSV"))
    other = write_dicom(tmp_path / "b.dcm", GREY, PhotometricInterpretation="MILLER ANNA")
    assert refusal(other).code == "unsupported_pixels"
    assert "MILLER" not in refused(other)


def test_a_claim_of_too_many_pixels_is_refused_before_they_take_memory(tmp_path):
    path = write_dicom(tmp_path / "bomb.dcm", GREY, Rows=60000, Columns=60000)
    tracemalloc.start()
    assert MAX_PIXELS < 60000**2
    assert "60000 x 60000 pixels" in refused(path)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_whatever_bytes_are_damaged_the_answer_is_an_image_or_a_bad_image(tmp_path):
    data = shipped("SC_rgb_jpeg_dcmtk.dcm").read_bytes()
    random = np.random.default_rng(0)
    path = tmp_path / "damaged.dcm"
    for _ in range(150):
        damaged = bytearray(data)
        for place in random.integers(132, len(data), size=random.integers(1, 9)):
            damaged[place] = random.integers(256)
        path.write_bytes(damaged)
        try:
            assert read_image(path).ndim == 3
        except BadImage as bad:
            assert bad.path == path


@pytest.mark.slow
def test_decoding_in_threads_gives_what_one_thread_gives():
    paths = [shipped(name) for name in ("examples_jpeg2k.dcm", "examples_palette.dcm", "SC_rgb_rle.dcm")] * 8
    alone = {path: read_image(path) for path in set(paths)}
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(read_image, paths))
    assert all((pixels == alone[path]).all() for path, pixels in zip(paths, together, strict=True))


def test_the_patient_s_id_is_not_shown(tmp_path):
    facts = read_facts(write_dicom(tmp_path / "a.dcm", GREY, PatientID=" MRN-4711 "))
    assert facts.patient_id == "MRN-4711"
    assert "4711" not in repr(facts)
    assert facts.device == "LOGIQ E9"
    assert read_facts(write_dicom(tmp_path / "b.dcm", GREY, PatientID="")).patient_id == ""


def test_a_directory_file_is_known_as_one():
    assert read_facts(shipped("DICOMDIR")).is_directory


@pytest.mark.parametrize(
    ("name", "shape", "frames", "spacing"),
    [
        ("US1_UNCR", (480, 640, 3), 1, None),
        ("US1_J2KR", (480, 640, 3), 1, None),
        # Cropped or made smaller since: their regions lie outside the frame, so what these say is not believed.
        ("examples_ybr_color", (240, 320, 3), 30, None),
        ("examples_palette", (350, 800, 3), 1, None),
        ("gdcm-US-ALOKA-16", (480, 640, 3), 1, 0.382653),
    ],
)
def test_real_ultrasound_files(real_data, name, shape, frames, spacing):
    path = real_data / "us_dicom" / f"{name}.dcm"
    facts = read_facts(path)
    assert (facts.frames, facts.pixel_spacing_mm) == (frames, spacing)
    pixels = read_dicom_frame(path, frames - 1)
    assert pixels.shape == shape
    assert 5 < pixels.mean() < 60  # an ultrasound image is mostly dark
    assert pixels.max() > 200


def test_lossless_compression_of_a_real_image_is_its_original(real_data):
    folder = real_data / "us_dicom"
    assert (read_image(folder / "US1_J2KR.dcm") == read_image(folder / "US1_UNCR.dcm")).all()
    assert (read_image(folder / "US1_UNCR.dcm") == pydicom.dcmread(folder / "US1_UNCR.dcm").pixel_array).all()
