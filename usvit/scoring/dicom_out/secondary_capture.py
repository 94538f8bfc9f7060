"""DICOM Secondary Captures of overlays: single-frame, or multi-frame true colour (PS3.3 A.8.1 and A.8.5)."""

import datetime
from collections.abc import Sequence
from copy import deepcopy

import highdicom as hd
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes
from pydicom.uid import (
    HEVCM10P51,
    HEVCMP51,
    JPEG2000,
    MPEG4HP41,
    UID,
    ExplicitVRLittleEndian,
    MPEGTransferSyntaxes,
    MultiFrameTrueColorSecondaryCaptureImageStorage,
    SecondaryCaptureImageStorage,
)

from usvit.data.io import UInt8
from usvit.pseudonyms import Pseudonyms
from usvit.scoring.dicom_out.deidentify import IMAGE_CLASSES, UTF8, object_uid, of_revision, stamp
from usvit.scoring.dicom_out.findings import ScoringModel

SERIES_NUMBER = 9802
SERIES_DESCRIPTION = "usvit overlays - RESEARCH USE ONLY"
_DERIVATION = "B-mode region with the scores of a neural network underneath{}. Research use only; not a medical device."
_SALIENCY = ", its saliency blended in"
"""Part of the derivation description, if saliency is drawn."""
_JPEG, _JPEG_2000, _JPEG_LS = "ISO_10918_1", "ISO_15444_1", "ISO_14495_1"
_MPEG_2, _H264 = "ISO_13818_2", "ISO_14496_10"
_LOSSY: dict[str, str] = {
    "1.2.840.10008.1.2.4.50": _JPEG,
    "1.2.840.10008.1.2.4.51": _JPEG,
    "1.2.840.10008.1.2.4.81": _JPEG_LS,
    JPEG2000: _JPEG_2000,
    "1.2.840.10008.1.2.4.203": "ISO_15444_15",
    **{syntax: _MPEG_2 if syntax < MPEG4HP41 else _H264 for syntax in MPEGTransferSyntaxes},
    **dict.fromkeys((HEVCMP51, HEVCM10P51), "ISO_23008_2"),
}
_METHODS = {*_LOSSY.values()}


def capture_of(
    evidence: Dataset,
    pictures: UInt8,
    frames: Sequence[int],
    scorer: ScoringModel,
    *,
    header: Dataset | None,
    has_saliency: bool,
    lossy: bool = False,
    pseudonyms: Pseudonyms,
    started: datetime.datetime,
    revision: int = 0,
) -> Dataset:
    """Build the Secondary Capture of one source.

    Args:
        evidence: result of ``evidence_of``; the object refers to its SOP class and instance if it has both.
        pictures: (N, H, W, 3) uint8; one picture gives a single-frame object.
        frames: (N,) numbers of the source frames that the pictures show, from 0.
        scorer: the networks.
        header: header of a DICOM source, which states whether its pixels were compressed with loss.
        has_saliency: whether saliency is drawn, for the derivation description.
        lossy: whether a source that is not DICOM was compressed with loss (JPEG).
        pseudonyms: used for the UIDs of the object.
        started: time at which the job started.
        revision: number of the revision of the study's results; another revision gives another object.
    """
    single = len(pictures) == 1
    kind = (scorer.sha256, started.isoformat(), "sc")
    data = hd.SOPClass(
        study_instance_uid=evidence.StudyInstanceUID,
        series_instance_uid=object_uid(pseudonyms, "series", evidence.StudyInstanceUID, *kind),
        series_number=SERIES_NUMBER,
        sop_instance_uid=object_uid(
            pseudonyms, evidence.SOPInstanceUID or evidence.StudyInstanceUID, *kind, *of_revision(revision)
        ),
        sop_class_uid=SecondaryCaptureImageStorage if single else MultiFrameTrueColorSecondaryCaptureImageStorage,
        instance_number=1,
        modality="OT",
        manufacturer="usvit",
        transfer_syntax_uid=ExplicitVRLittleEndian,
        patient_id=evidence.PatientID,
        patient_birth_date=evidence.PatientBirthDate,
        patient_sex=evidence.PatientSex,
        accession_number=evidence.AccessionNumber,
        study_id=evidence.StudyID,
        study_date=evidence.StudyDate,
        study_time=evidence.StudyTime,
        referring_physician_name=evidence.ReferringPhysicianName,
        content_qualification=hd.ContentQualificationValues.RESEARCH,
        series_description=SERIES_DESCRIPTION,
        manufacturer_model_name=scorer.name[:64],
        software_versions=scorer.version,
        content_date=started.date(),
        content_time=started.time().replace(microsecond=0, tzinfo=None),
        specific_character_set=UTF8,
    )
    data.ConversionType = "WSD"
    data.SecondaryCaptureDeviceManufacturer = "usvit"
    data.SecondaryCaptureDeviceManufacturerModelName = scorer.name[:64]
    data.SecondaryCaptureDeviceSoftwareVersions = scorer.software
    data.Laterality = data.PatientOrientation = ""  # the scanner's values are not trusted
    data.ImageType = ["DERIVED", "SECONDARY"]
    data.DerivationDescription = _DERIVATION.format(_SALIENCY if has_saliency else "")
    data.BurnedInAnnotation = "YES"  # the caption, and possibly text in the tissue region
    _refer(data, evidence, frames)
    _say_lossy(data, header, lossy)
    _put_pixels(data, pictures)
    stamp(data, evidence, started=started, structured=False)
    return data


def _refer(data: Dataset, evidence: Dataset, frames: Sequence[int]) -> None:
    if not (evidence.SOPClassUID and evidence.SOPInstanceUID):
        return
    reference = Dataset()
    reference.ReferencedSOPClassUID = evidence.SOPClassUID
    reference.ReferencedSOPInstanceUID = evidence.SOPInstanceUID
    of_series = Dataset()
    of_series.SeriesInstanceUID = evidence.SeriesInstanceUID
    of_series.ReferencedInstanceSequence = [deepcopy(reference)]
    data.ReferencedSeriesSequence = [of_series]
    if IMAGE_CLASSES[evidence.SOPClassUID] and evidence.NumberOfFrames > 1:
        reference.ReferencedFrameNumber = [number + 1 for number in frames]
    purpose = codes.DCM.SourceImageForImageProcessingOperation
    reference.PurposeOfReferenceCodeSequence = [hd.sr.CodedConcept.from_code(purpose)]
    data.SourceImageSequence = [reference]


def _say_lossy(data: Dataset, header: Dataset | None, lossy: bool) -> None:
    """Record lossy compression, which is permanent (PS3.3 C.7.6.1.1.5); leave it out if it is unknown."""
    if header is None:
        if lossy:
            data.LossyImageCompression, data.LossyImageCompressionMethod = "01", _JPEG
        return
    stated = str(header.get("LossyImageCompression") or "")
    syntax = UID(getattr(header, "file_meta", Dataset()).get("TransferSyntaxUID") or "")
    if stated == "01" or syntax in _LOSSY:
        data.LossyImageCompression = "01"
        methods = header.get("LossyImageCompressionMethod") or []
        known = [one for one in ([methods] if isinstance(methods, str) else list(methods)) if one in _METHODS]
        if known or syntax in _LOSSY:
            data.LossyImageCompressionMethod = known or _LOSSY[syntax]
        if ratios := _ratios(header):
            data.LossyImageCompressionRatio = ratios
    elif stated == "00":
        data.LossyImageCompression = "00"


def _ratios(header: Dataset) -> list[float]:
    """Return the compression ratios if they are plausible; other content of the file is private."""
    try:
        value = header.get("LossyImageCompressionRatio")
        values = [] if value is None else [value] if isinstance(value, (int, float)) else list(value)
        ratios = [round(float(one), 2) for one in values]
    except Exception:  # not a number, and converted only now
        return []
    return ratios if all(1 <= one < 1000 for one in ratios) else []


def _put_pixels(data: Dataset, pictures: UInt8) -> None:
    n_frames, data.Rows, data.Columns, data.SamplesPerPixel = pictures.shape
    data.PhotometricInterpretation, data.PlanarConfiguration = "RGB", 0
    data.BitsAllocated = data.BitsStored = 8
    data.HighBit, data.PixelRepresentation = 7, 0
    if n_frames > 1:
        data.NumberOfFrames = n_frames
        data.FrameIncrementPointer = 0x00182001  # PageNumberVector: frames are pages, not times
        data.PageNumberVector = list(range(1, n_frames + 1))
    raw = pictures.tobytes()
    data.add_new("PixelData", "OB", raw + b"\0" * (len(raw) % 2))
