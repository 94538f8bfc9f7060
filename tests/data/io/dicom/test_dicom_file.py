"""One file, opened once: from a path or from memory, with or without a preamble, frame by frame."""

import tracemalloc

import numpy as np
import pydicom
import pytest
from pydicom import uid

from tests.data.dicom_files import Kind, as_bytes, compressed, dataset, jpeg, native, stored_values
from usvit.data.io.bad_image import BadImage
from usvit.data.io.dicom import DicomFile, dicom_file, read_dicom_frame, read_facts

GREY, RGB = Kind("MONOCHROME2"), Kind("RGB")
LOOP = stored_values(GREY, 5)


def test_bytes_in_memory_are_read_as_a_file_is(tmp_path):
    content = native(GREY, LOOP)
    (tmp_path / "a.dcm").write_bytes(content)
    assert read_facts(content) == read_facts(tmp_path / "a.dcm")
    with DicomFile(content) as one, DicomFile(tmp_path / "a.dcm") as other:
        assert one.facts == other.facts == read_facts(content)
        assert (one.frame(3) == other.frame(3)).all()
        assert (one.frame(3) == LOOP[3][..., None]).all()


def test_the_header_of_a_loop_is_parsed_once(monkeypatch):
    calls = []
    read_header = dicom_file.read_header
    monkeypatch.setattr(dicom_file, "read_header", lambda *given: calls.append(1) or read_header(*given))
    with DicomFile(native(GREY, LOOP)) as loop:
        for number in range(5):
            loop.frame(number)
    assert len(calls) == 1


def test_frames_that_are_not_asked_for_are_not_decoded():
    streams = [jpeg(frame, "L") for frame in LOOP]
    streams[2] = streams[2][:40] + b"\0" * 200 + b"\xff\xd9"
    with DicomFile(compressed(GREY, streams, uid.JPEGBaseline8Bit)) as loop:
        for number in (0, 1, 3, 4):
            assert np.abs(loop.frame(number)[..., 0].astype(int) - LOOP[number]).max() < 12
        with pytest.raises(BadImage) as caught:
            loop.frame(2)
        assert caught.value.code == "damaged"
        assert loop.frame(4).shape == (*LOOP.shape[1:], 3)


@pytest.mark.parametrize("number", [-1, 5, 10**9])
def test_a_frame_that_is_not_there(number):
    with DicomFile(native(GREY, LOOP)) as loop, pytest.raises(BadImage) as caught:
        loop.frame(number)
    assert caught.value.code == "no_such_frame"


def test_one_frame_of_a_compressed_loop_takes_the_memory_of_one_frame(tmp_path):
    noise = np.random.default_rng(0).integers(0, 256, (256, 256), dtype=np.uint8)
    data = dataset(GREY, 200, uid.JPEGBaseline8Bit, 256, 256)
    data.PixelData = pydicom.encaps.encapsulate([jpeg(noise, "L")] * 200)
    data["PixelData"].is_undefined_length = True
    (tmp_path / "loop.dcm").write_bytes(as_bytes(data))
    assert (tmp_path / "loop.dcm").stat().st_size > 10_000_000
    read_dicom_frame(tmp_path / "loop.dcm")
    tracemalloc.start()
    read_dicom_frame(tmp_path / "loop.dcm", 150)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    "syntax", [uid.ImplicitVRLittleEndian, uid.ExplicitVRLittleEndian, uid.ExplicitVRBigEndian], ids=lambda s: s.keyword
)
@pytest.mark.parametrize("kind", [GREY, RGB, Kind("MONOCHROME2", 16)], ids=str)
def test_a_bare_data_set_without_preamble_and_meta_header(syntax, kind):
    values = stored_values(kind, 2)
    content = native(kind, values, syntax)
    start = content.index(b"\x00\x08\x00\x16" if syntax == uid.ExplicitVRBigEndian else b"\x08\x00\x16\x00")
    assert (read_dicom_frame(content[start:], 1) == read_dicom_frame(content, 1)).all()


def test_compressed_pixels_of_no_named_syntax_are_not_guessed():
    content = compressed(GREY, [jpeg(LOOP[0], "L")], uid.JPEGBaseline8Bit)
    with pytest.raises(BadImage) as caught:
        DicomFile(content[content.index(b"\x08\x00\x16\x00") :])
    assert caught.value.code == "unsupported_syntax"


@pytest.mark.parametrize("retired", ["1.2.840.10008.5.1.4.1.1.3", "1.2.840.10008.5.1.4.1.1.6"])
def test_retired_ultrasound_classes(retired):
    content = as_bytes_of_class(retired)
    assert read_facts(content).frames == 5
    assert (read_dicom_frame(content, 4) == LOOP[4][..., None]).all()


def as_bytes_of_class(name: str) -> bytes:
    data = dataset(GREY, 5, uid.ExplicitVRLittleEndian)
    data.SOPClassUID = data.file_meta.MediaStorageSOPClassUID = name
    data.PixelData = LOOP.tobytes()
    return as_bytes(data)


@pytest.mark.parametrize(
    ("colours", "options", "is_rgb"),
    [
        ("RGB", {"keep_rgb": True}, True),  # components called R, G, B, or Adobe's mark
        ("YBR_FULL", {"keep_rgb": True}, True),  # the codestream knows better
        ("YBR_FULL", {}, False),
        ("RGB", {}, False),  # JFIF: YCbCr, whatever the header was before compression
    ],
)
def test_the_codestream_s_own_word_on_its_colours_counts(colours, options, is_rgb):
    picture = stored_values(RGB, 1)[0]
    stream = jpeg(picture, "RGB", subsampling=0, **options)
    decoded = read_dicom_frame(compressed(Kind(colours), [stream], uid.JPEGBaseline8Bit))
    assert np.abs(decoded.astype(int) - picture).max() < 14
    assert (b"JFIF" in stream) is not is_rgb


def test_a_jpeg_that_says_nothing_of_its_colours_has_those_of_the_header():
    picture = stored_values(RGB, 1)[0]
    stream = jpeg(picture, "YCbCr", subsampling=0)  # the values themselves, unconverted
    place = stream.index(b"\xff\xe0")
    bare = stream[:place] + stream[place + 18 :]  # without the JFIF segment
    decoded = read_dicom_frame(compressed(RGB, [bare], uid.JPEGBaseline8Bit))
    assert np.abs(decoded.astype(int) - picture).max() < 14
    converted = read_dicom_frame(compressed(Kind("YBR_FULL"), [bare], uid.JPEGBaseline8Bit))
    assert np.abs(converted.astype(int) - picture).max() > 60


def test_what_is_told_of_a_person_is_not_in_the_facts_repr():
    data = dataset(GREY, 5, uid.ExplicitVRLittleEndian)
    data.PixelData, data.PatientID, data.AccessionNumber = LOOP.tobytes(), "MRN-4711", "ACC-4712"
    data.StudyInstanceUID = "1.2.4713"
    assert "471" not in repr(read_facts(as_bytes(data)))
