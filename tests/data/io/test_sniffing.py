import pytest

from tests.conftest import REPOSITORY
from tests.data.conftest import write_dicom
from tests.data.io.pictures import COLOUR, GREY, packed, refused
from usvit.data.io.decoding import read_image
from usvit.data.io.formats import PICTURE_FORMATS, PICTURE_NAMES
from usvit.data.io.sniffing import HEAD_BYTES, kind_of
from usvit.scoring.items import FAILURES


@pytest.mark.parametrize("format_", ["PNG", "TIFF", "BMP", "PPM", "JPEG2000"])
def test_a_picture_is_known_by_its_content_whatever_it_is_called(tmp_path, format_):
    data = packed(format_)
    assert kind_of(data[:HEAD_BYTES]) == "picture"
    for name in ("IM0001", "a.dcm", "b.jpg", "c.txt"):
        (tmp_path / name).write_bytes(data)
        assert (read_image(tmp_path / name) == COLOUR).all()


@pytest.mark.parametrize(
    "head", [b"II*\0", b"MM\0*", b"II+\0", b"MM\0+", b"BM" + b"\7" * 12 + b"\x28\0\0\0", b"\xff\xd8\xff\xe0"]
)
def test_both_byte_orders_and_big_tiff_are_pictures(head):
    assert kind_of(head.ljust(HEAD_BYTES, b"\7")) == "picture"


@pytest.mark.parametrize("format_", ["TGA", "ICO", "PCX", "EPS", "PDF", "AVIF"])
def test_other_formats_are_never_given_to_a_decoder_and_the_error_names_those_that_are(tmp_path, format_):
    (tmp_path / "image.png").write_bytes(packed(format_))
    assert kind_of(packed(format_)[:HEAD_BYTES]) is None
    error = refused(tmp_path / "image.png")
    assert error.code == "not_an_image"
    assert PICTURE_NAMES in error.reason
    assert PICTURE_NAMES in FAILURES["not_an_image"]


def test_dicom_is_known_with_and_without_a_preamble_and_text_is_not(tmp_path):
    data = write_dicom(tmp_path / "whole.dcm", GREY).read_bytes()
    assert kind_of(data[:HEAD_BYTES]) == "dicom"
    assert kind_of(data[132 : 132 + HEAD_BYTES]) == "dicom"  # group 0002 comes first
    implicit, big = b"\x08\0\5\0\x0a\0\0\0ISO_IR 100", b"\0\x08\0\5CS\0\x0aISO_IR 100"
    assert kind_of(implicit) == kind_of(big) == kind_of(b"\x08\0\5\0CS\x0a\0ISO_IR 100") == "dicom"
    others = (
        b"",
        b"\0" * 132,
        b"DICM",
        b"Patient: ...",
        b"\x08\0",
        b"PK\3\4",
        b"\x7fELF",
        b"%PDF-1.7",
        b"\0\0\1\0\1\0",
    )
    for other in others:
        assert kind_of(other) is None
    (tmp_path / "letter.dcm").write_text("Dear colleague, " * 20)
    assert refused(tmp_path / "letter.dcm").code == "not_an_image"
    (tmp_path / "named.png").write_bytes(data)
    assert (read_image(tmp_path / "named.png") == GREY[:, :, None]).all()


@pytest.mark.parametrize("page", ["how-to/score.md", "how-to/export.md", "reference/sources.md"])
def test_the_pages_name_every_format_that_is_read(page):
    text = " ".join((REPOSITORY / "docs" / page).read_text().split())
    for one in PICTURE_FORMATS:
        assert one.name in text, one.name
