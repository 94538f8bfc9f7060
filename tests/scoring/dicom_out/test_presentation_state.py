from pathlib import Path

import numpy as np
import pydicom
import pytest
from PIL import Image
from pydicom.sequence import Sequence

from tests.data.conftest import speckle, tissue_region, write_dicom
from tests.programs import said, tool
from tests.scoring.dicom_out.product_cases import (
    KNOWN,
    ODD_HEADERS,
    cut_source,
    iod_errors,
    make,
    odd_source,
    order,
    rows,
    scored,
    source,
)
from usvit.data.io import read_dicom_frame
from usvit.scoring.dicom_out.findings import RESEARCH_USE_ONLY
from usvit.scoring.dicom_out.products import write_products
from usvit.scoring.items import ScoringItem

ID = "a" * 16


DCMPSCHK_REFUSES = ("no patient", "empty values", "other letters")
"""dcmpschk wants a patient's name, which is of type 2 (may be empty) in the standard, in ASCII."""


def written(tmp_path, item, n_frames=1, *, out="out", **more):
    folder, (product,) = make(tmp_path, item, rows(ID, n_frames), ["gsps"], out=out, **more)
    assert (product.kind, product.error_code) == ("gsps", None)
    return folder / product.path


def colour_source(tmp_path):
    pixels = np.stack([speckle(seed, 96, 128) for seed in (3, 4, 5)], axis=2)
    region = Sequence([tissue_region(24, 16, 104, 80)])
    path = write_dicom(tmp_path / "in" / "Doe_Jane.dcm", pixels, **KNOWN, SequenceOfUltrasoundRegions=region)
    return ScoringItem("export/Doe_Jane.dcm", str(path))


def texts(data):
    return [one.TextObjectSequence[0].UnformattedTextValue for one in data.GraphicAnnotationSequence]


def test_the_region_and_the_scores_stand_over_the_image_they_belong_to(tmp_path):
    data = pydicom.dcmread(written(tmp_path, cut_source(tmp_path), keep_ids=True))
    assert (data.PatientID, data.StudyInstanceUID) == (KNOWN["PatientID"], KNOWN["StudyInstanceUID"])
    assert data.SeriesInstanceUID != KNOWN["SeriesInstanceUID"]
    (annotation,) = data.GraphicAnnotationSequence
    assert annotation.ReferencedImageSequence[0].ReferencedSOPInstanceUID == KNOWN["SOPInstanceUID"]
    (outline,) = annotation.GraphicObjectSequence
    assert outline.GraphicAnnotationUnits == "PIXEL"
    assert outline.GraphicData == [24, 16, 104, 16, 104, 80, 24, 80, 24, 16]
    (text,) = texts(data)
    assert RESEARCH_USE_ONLY in text
    assert "malignant: calibrated probability 0.500" in text and "decision: malignant, threshold 0.400" in text
    assert (data.PresentationCreationDate, data.PresentationCreationTime) == ("20261121", "203015")


def test_the_lesion_that_the_networks_mark_is_outlined_on_its_frame(tmp_path):
    """The tissue is 80 x 64 px at (24, 16), and 32 x 26 px with three rows above it for the networks."""
    marked = np.zeros((32, 32), np.float32)
    marked[11:24, 8:24] = 1
    item = cut_source(tmp_path, 2)
    data = pydicom.dcmread(written(tmp_path, item, 2, keep_ids=True, lesion=marked))
    for annotation in data.GraphicAnnotationSequence:
        _, lesion = annotation.GraphicObjectSequence
        x, y = np.reshape(lesion.GraphicData, (-1, 2)).T
        assert (x[0], y[0]) == (x[-1], y[-1])
        assert [x.min(), x.max()] == pytest.approx([24 + 8 * 2.5, 24 + 24 * 2.5], abs=2)
        assert [y.min(), y.max()] == pytest.approx([16 + 8 * 64 / 26, 16 + 21 * 64 / 26], abs=2)
    assert iod_errors(tmp_path / "out" / "dicom" / f"{ID}-gsps.dcm") == []


def test_the_frames_of_a_loop_have_their_own_words(tmp_path):
    item = cut_source(tmp_path, 6)
    data = pydicom.dcmread(written(tmp_path, item, 6, most=2, keep_ids=True))
    frames = [one.ReferencedImageSequence[0].ReferencedFrameNumber for one in data.GraphicAnnotationSequence]
    assert frames == [5, 6]  # the most suspicious
    assert [text.endswith(f"frame {n} of 6") for text, n in zip(texts(data), frames, strict=True)] == [True, True]


def test_an_image_without_a_known_region_has_words_alone(tmp_path):
    data = pydicom.dcmread(written(tmp_path, source(tmp_path), pictures=False))
    (annotation,) = data.GraphicAnnotationSequence
    assert "GraphicObjectSequence" not in annotation and len(texts(data)) == 1


def test_a_colour_image_gets_a_state_of_the_class_for_colour(tmp_path):
    path = written(tmp_path, colour_source(tmp_path))
    data = pydicom.dcmread(path)
    assert data.SOPClassUID.name == "Color Softcopy Presentation State Storage"
    assert data.ICCProfile[12:20] == b"scnrRGB " and "PresentationLUTShape" not in data
    assert iod_errors(path) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD_HEADERS)
def test_dciodvfy_and_dcmtk_find_no_error(tmp_path, name):
    n_frames = 1 if "class" in name or "capture" in name else 2
    path = written(tmp_path, odd_source(tmp_path, name, n_frames), n_frames, keep_ids=True)
    assert iod_errors(path) == []
    if name not in DCMPSCHK_REFUSES:
        assert "Test passed" in said(tool("dcmpschk"), path)
    if name == "retired class":
        (annotation,) = pydicom.dcmread(path).GraphicAnnotationSequence
        assert annotation.ReferencedImageSequence[0].ReferencedSOPClassUID == "1.2.840.10008.5.1.4.1.1.6"


@pytest.mark.slow
@pytest.mark.parametrize(
    "tags",
    [
        {},
        {"WindowCenter": 100, "WindowWidth": 120},
        {"RescaleSlope": 0.5, "RescaleIntercept": 3, "WindowCenter": 40, "WindowWidth": 70.5},
        {"PhotometricInterpretation": "MONOCHROME1", "WindowCenter": 90, "WindowWidth": 150},
    ],
    ids=["plain", "window", "rescaled", "inverse"],
)
def test_dcmtk_shows_the_image_through_the_state_as_it_is_without_it(tmp_path, tags):
    """A state that forgets the window of its image would show it in other grey levels."""
    item = cut_source(tmp_path, **tags)
    path = written(tmp_path, item, keep_ids=True)
    heard = said(tool("dcmp2pgm"), "-v", "-p", path, item.location, tmp_path / "a.pgm")
    assert "Number of text objects: 1" in heard and "Number of graphic objects: 1" in heard
    plain = read_dicom_frame(Path(item.location))[..., 0]
    assert np.abs(np.asarray(Image.open(tmp_path / "a.pgm")).astype(int) - plain).max() <= 4  # dcmtk rounds on the way


def test_tables_of_grey_levels_are_taken_over_without_their_words(tmp_path):
    table = pydicom.Dataset()
    table.LUTDescriptor, table.LUTData, table.LUTExplanation = [256, 0, 8], bytes(range(255, -1, -1)), "of Doe"
    table["LUTDescriptor"].VR, table["LUTData"].VR = "US", "OW"
    data = pydicom.dcmread(written(tmp_path, cut_source(tmp_path, VOILUTSequence=Sequence([table]))))
    (taken,) = data.SoftcopyVOILUTSequence[0].VOILUTSequence
    assert taken.LUTData == table.LUTData and "LUTExplanation" not in taken


def test_the_same_job_writes_the_same_bytes_and_a_revision_another_object(tmp_path, monkeypatch):
    from usvit.scoring.dicom_out import presentation_state

    item = colour_source(tmp_path)
    first = written(tmp_path, item, out="a")
    presentation_state.srgb_profile.cache_clear()
    assert written(tmp_path, item, out="b").read_bytes() == first.read_bytes()
    from dataclasses import replace

    later = replace(order(tmp_path, tmp_path / "c", ["gsps"]), revision=1)
    (product,) = write_products(later, item, scored(item, rows(ID, 1)))
    one, other = pydicom.dcmread(first), pydicom.dcmread(tmp_path / "c" / product.path)
    assert one.SOPInstanceUID != other.SOPInstanceUID and one.SeriesInstanceUID == other.SeriesInstanceUID


def test_a_picture_gets_none_and_a_source_that_cannot_be_named_has_a_reason(tmp_path):
    item = cut_source(tmp_path, SOPClassUID="1.2.3.4711")
    _, (product,) = make(tmp_path, item, rows(ID, 1), ["gsps"])
    assert (product.path, product.error_code) == (None, "no_reference")
    assert make(tmp_path, item, rows(ID, 1, kind="picture"), ["gsps"])[1] == []
