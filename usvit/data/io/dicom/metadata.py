"""Read the metadata that manifests and scoring need from a header."""

import contextlib
import math
from dataclasses import dataclass, field
from datetime import datetime

import pydicom
from pydicom.uid import MediaStorageDirectoryStorage

from usvit.data.io.dicom.functional_groups import functional_groups
from usvit.data.io.dicom.header import Header, number, text
from usvit.data.io.dicom.layout import frames_of
from usvit.data.io.dicom.patient import PatientIdentity
from usvit.data.io.dicom.regions import LARGEST_MM, Regions, read_regions


@dataclass(frozen=True)
class DicomFacts:
    """Metadata of a DICOM file, for manifests and for matching the rows of a table."""

    device: str | None
    """ManufacturerModelName."""
    pixel_spacing_mm: float | None
    """Millimetres per pixel of the tissue region, else of the image; None if unknown, or if the two directions differ
    by more than 1%."""
    frames: int
    has_pixels: bool
    """True if the header describes an image; a report or a plan does not."""
    is_directory: bool
    """True if the file is a DICOMDIR, an index of other files."""
    regions: Regions
    """The tissue region and other information on the regions of the picture."""
    burned_in: bool
    """True if BurnedInAnnotation is YES."""
    sides: tuple[str | None, ...]
    """``left`` or ``right`` breast of each frame, None if it is unpaired, both or not stated; the last entry also holds
    for all further frames."""
    sop_instance_uid: str
    study_date: str = field(repr=False)
    """StudyDate as ``2026-03-31``; "" if it is absent or no date."""
    study_instance_uid: str = field(repr=False)
    accession_number: str = field(repr=False)
    patient_id: str = field(repr=False)
    """Value in the file; "" if absent. Output files contain a pseudonym instead."""

    def side(self, frame: int) -> str | None:
        """Return the side of a frame, counted from 0."""
        return self.sides[min(frame, len(self.sides) - 1)]


@dataclass(frozen=True)
class DicomIdentity:
    """What a DICOM file says of itself: which instance it is, and what kind of image; all text is private."""

    sop_class_uid: str
    sop_instance_uid: str = field(repr=False)
    series_uid: str = field(repr=False)
    study_uid: str = field(repr=False)
    transfer_syntax_uid: str
    patient: PatientIdentity
    attributes: dict[str, str] = field(repr=False)
    """Values of ``DESCRIBING``, at most 200 characters each; absent ones are ""."""


_SIDES = {"L": "left", "R": "right"}
DESCRIBING = {
    "modality": "Modality",
    "manufacturer": "Manufacturer",
    "study_description": "StudyDescription",
    "series_description": "SeriesDescription",
    "body_part": "BodyPartExamined",
}
"""Name -> DICOM keyword of what describes the kind of an image."""


def identity_of(header: Header) -> DicomIdentity:
    """Read the UIDs of a header and what describes the kind of its image; values that are absent are ""."""
    data = header.data
    return DicomIdentity(
        sop_class_uid=text(data, "SOPClassUID"),
        sop_instance_uid=text(data, "SOPInstanceUID"),
        series_uid=text(data, "SeriesInstanceUID"),
        study_uid=text(data, "StudyInstanceUID"),
        transfer_syntax_uid=str(header.syntax or ""),
        patient=PatientIdentity.of(data),
        attributes={name: text(data, keyword)[:200] for name, keyword in DESCRIBING.items()},
    )


def facts_of(header: Header) -> DicomFacts:
    """Read the metadata of a header; implausible values are left out.

    Raises:
        BadImage: NumberOfFrames is not a positive integer.
    """
    data = header.data
    has_pixels = "Rows" in data and "Columns" in data
    rows, columns = number(data, "Rows"), number(data, "Columns")
    frames = frames_of(header) if has_pixels else 1
    regions = read_regions(data, int(rows), int(columns)) if rows and columns else Regions()
    return DicomFacts(
        device=text(data, "ManufacturerModelName") or None,
        pixel_spacing_mm=regions.even_spacing_mm if regions.tissue else _pixel_spacing(header, frames),
        frames=frames,
        has_pixels=has_pixels,
        is_directory=text(header.meta, "MediaStorageSOPClassUID") == MediaStorageDirectoryStorage,
        regions=regions,
        burned_in=text(data, "BurnedInAnnotation").upper() == "YES",
        sides=_sides(header, frames),
        sop_instance_uid=text(data, "SOPInstanceUID"),
        study_date=_date(text(data, "StudyDate")),
        study_instance_uid=text(data, "StudyInstanceUID"),
        accession_number=text(data, "AccessionNumber"),
        patient_id=text(data, "PatientID"),
    )


def _sides(header: Header, frames: int) -> tuple[str | None, ...]:
    """Read the laterality of each frame: its own, that of all frames, that of the image, or that of the series.

    Source: DICOM PS3.3 C.7.6.16.2.8 (Frame Anatomy), C.8.7.6 (Image Laterality), C.7.3.1 (Laterality).
    """
    data = header.data
    groups = functional_groups(data)
    whole = text(data, "ImageLaterality") or text(data, "Laterality")
    found = []
    for frame in range(min(frames, len(groups.frames) + 1)):  # one number stands for all frames without an item
        item = groups.item("FrameAnatomySequence", frame, ("FrameLaterality",))
        found.append(_SIDES.get((whole if item is None else text(item, "FrameLaterality")).upper()))
    return tuple(found)


def _date(value: str) -> str:
    with contextlib.suppress(ValueError):
        return datetime.strptime(value.strip().replace(".", ""), "%Y%m%d").date().isoformat()
    return ""


def _pixel_spacing(header: Header, frames: int) -> float | None:
    """Read PixelSpacing, or the pixel measures of an enhanced file, in mm; None if they differ between frames."""
    if (plain := _even_spacing(header.data)) is not None:
        return plain
    groups = functional_groups(header.data)
    numbers = range(min(frames, len(groups.frames) + 1))  # one number stands for all frames without an item
    measures = (groups.item("PixelMeasuresSequence", number, ("PixelSpacing",)) for number in numbers)
    found = {None if item is None else _even_spacing(item) for item in measures}
    return found.pop() if len(found) == 1 else None


def _even_spacing(holder: pydicom.Dataset) -> float | None:
    try:
        found = [float(value) for value in holder.get("PixelSpacing") or []]
    except (TypeError, ValueError):
        return None
    if found and 0 < min(found) <= max(found) < LARGEST_MM and math.isclose(min(found), max(found), rel_tol=0.01):
        return round(sum(found) / len(found), 6)
    return None
