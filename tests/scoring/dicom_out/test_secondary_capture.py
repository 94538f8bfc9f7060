import numpy as np
import pydicom
import pytest
from pydicom.uid import JPEGBaseline8Bit

from tests.programs import said, tool
from tests.scoring.dicom_out.product_cases import (
    KNOWN,
    SCORER,
    STARTED,
    cut_source,
    iod_errors,
    make,
    pseudonyms,
    row,
    rows,
)
from usvit.scoring.dicom_out.deidentify import evidence_of
from usvit.scoring.dicom_out.secondary_capture import capture_of
from usvit.scoring.items import ScoringItem


def written(tmp_path, n_frames=1, **more):
    item = cut_source(tmp_path, n_frames, **more.pop("tags", {}))
    out, products = make(tmp_path, item, rows("a" * 16, n_frames), ["sc", "overlay"], **more)
    assert [product.error_code for product in products] == [None] * (1 + min(n_frames, more.get("most", 16)))
    return out, out / products[0].path


def pngs(out):
    from PIL import Image

    paths = sorted((out / "overlays").iterdir(), key=lambda path: int(path.stem.split("-")[1]))
    return [np.asarray(Image.open(path)) for path in paths]


@pytest.mark.parametrize("n_frames", [1, 3])
def test_the_capture_holds_the_overlays_pixel_by_pixel(tmp_path, n_frames):
    out, path = written(tmp_path, n_frames)
    data = pydicom.dcmread(path)
    frames = data.pixel_array if n_frames > 1 else data.pixel_array[None]
    assert (frames == np.stack(pngs(out))).all()
    assert data.SOPClassUID.name == (
        "Secondary Capture Image Storage" if n_frames == 1 else "Multi-frame True Color Secondary Capture Image Storage"
    )


def test_of_a_loop_the_most_suspicious_frames_are_drawn_and_referred_to(tmp_path):
    _, path = written(tmp_path, 6, most=2, keep_ids=True)
    data = pydicom.dcmread(path)
    (source,) = data.SourceImageSequence
    assert source.ReferencedSOPInstanceUID == KNOWN["SOPInstanceUID"]
    assert list(source.ReferencedFrameNumber) == [5, 6]
    assert source.PurposeOfReferenceCodeSequence[0].CodeValue == "121322"
    assert data.StudyInstanceUID == KNOWN["StudyInstanceUID"] and data.PatientID == "MRN-4711"
    assert data.SeriesInstanceUID != KNOWN["SeriesInstanceUID"]
    assert data.NumberOfFrames == 2 and list(data.PageNumberVector) == [1, 2]


def test_it_says_what_it_is(tmp_path):
    _, path = written(tmp_path, saliency={0: np.eye(32)})
    data = pydicom.dcmread(path)
    assert data.BurnedInAnnotation == "YES"
    assert data.ContentQualification == "RESEARCH" and "RESEARCH USE ONLY" in data.SeriesDescription
    assert "saliency" in data.DerivationDescription and "Research use only" in data.DerivationDescription
    assert list(data.ImageType) == ["DERIVED", "SECONDARY"]
    assert (str(data.ContentDate), str(data.ContentTime)) == ("20261121", "203015")
    assert "LossyImageCompression" not in data  # the source does not say


def lossy_of(tmp_path, syntax=None, lossy=False, **tags):
    header = pydicom.Dataset()
    header.file_meta = pydicom.dataset.FileMetaDataset()
    if syntax:
        header.file_meta.TransferSyntaxUID = syntax
    with pydicom.config.disable_value_validation():
        for keyword, value in tags.items():
            setattr(header, keyword, value)
    names = pseudonyms()
    evidence = evidence_of(header, ScoringItem("a", "a"), names, keep_ids=False)
    data = capture_of(
        evidence,
        np.zeros((1, 8, 8, 3), np.uint8),
        [0],
        SCORER,
        header=None if lossy else header,
        has_saliency=False,
        lossy=lossy,
        pseudonyms=names,
        started=STARTED,
    )
    return [data.get(f"LossyImageCompression{part}") for part in ("", "Method", "Ratio")]


def test_once_lossy_is_always_lossy(tmp_path):
    stated = {"LossyImageCompression": "01", "LossyImageCompressionRatio": "12.5"}
    assert lossy_of(tmp_path, LossyImageCompressionMethod="ISO_10918_1", **stated) == ["01", "ISO_10918_1", 12.5]
    assert lossy_of(tmp_path, JPEGBaseline8Bit) == ["01", "ISO_10918_1", None]
    assert lossy_of(tmp_path, lossy=True) == ["01", "ISO_10918_1", None]
    assert lossy_of(tmp_path, LossyImageCompression="00") == ["00", None, None]
    assert lossy_of(tmp_path) == [None, None, None]


def test_words_where_a_ratio_or_method_belongs_do_not_pass(tmp_path):
    for ratio in ("19570203", "-1"):
        stated = {"LossyImageCompression": "01", "LossyImageCompressionRatio": ratio}
        assert lossy_of(tmp_path, LossyImageCompressionMethod="DOE_JANE", **stated) == ["01", None, None]


@pytest.mark.parametrize("keep_ids", [False, True], ids=["pseudonyms", "ids"])
@pytest.mark.parametrize("n_frames", [1, 3], ids=["still", "loop"])
def test_dciodvfy_finds_no_error(tmp_path, n_frames, keep_ids):
    assert iod_errors(written(tmp_path, n_frames, keep_ids=keep_ids)[1]) == []


def test_dcmtk_reads_it(tmp_path):
    _, path = written(tmp_path, 2)
    assert "MultiframeTrueColorSecondaryCaptureImageStorage" in said(tool("dcmdump"), path)


def test_the_same_job_writes_the_same_bytes(tmp_path):
    item, table = cut_source(tmp_path), [row("a" * 16)]
    first, again = (make(tmp_path, item, table, ["sc"], out=name)[0] / f"dicom/{'a' * 16}-sc.dcm" for name in "ab")
    assert first.read_bytes() == again.read_bytes()
