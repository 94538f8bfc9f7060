"""DICOM files: one frame as 8-bit RGB, and the few facts of the header that a manifest needs.

Decoding is pydicom's, with python-gdcm and pylibjpeg-openjpeg for the compressed transfer syntaxes. Grey goes
through the modality and VOI transformations of PS3.3 C.11.1 and C.11.2 and comes out as it is meant to be seen.
"""

import hashlib
import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
from numpy.typing import NDArray
from pydicom.errors import InvalidDicomError
from pydicom.pixels import apply_color_lut, apply_modality_lut, apply_voi_lut, get_decoder, pixel_array

from usvit.data.images import BadImage, UInt8, refuse_frame, refuse_size, refusing

# Of odd values that do not matter here; set once for all, as files are decoded in threads, which share the filters.
warnings.filterwarnings("ignore", module=r"pydicom(\.|$)")

_COLOURS = ("RGB", "YBR_FULL", "YBR_FULL_422", "YBR_ICT", "YBR_RCT")
"""What pydicom's decoders return as RGB."""
_DIRECTORY = "1.2.840.10008.1.3.10"


@dataclass(frozen=True)
class DicomFacts:
    """What a manifest may know of a DICOM file, and what a table's rows are matched with."""

    patient: str | None
    """``hashed_patient_id`` of the PatientID; None where it is empty."""
    device: str | None
    """ManufacturerModelName."""
    pixel_spacing_mm: float | None
    """Millimetres a pixel; None where unknown, or where directions or regions differ by more than 1%."""
    frames: int
    has_pixels: bool
    """Whether the header describes an image; a report or a plan does not."""
    is_directory: bool
    """A DICOMDIR: an index of other files."""
    sop_instance_uid: str
    study_instance_uid: str = field(repr=False)
    accession_number: str = field(repr=False)
    patient_id: str = field(repr=False)
    """As it stands in the file: to match a table with, never to be written anywhere."""


def read_facts(path: Path) -> DicomFacts:
    """Read a header, no pixels.

    Raises:
        BadImage: the file is missing, damaged, or no DICOM file.
    """
    with refusing(path):
        header = _header(path)
        patient_id = str(header.get("PatientID") or "").strip()
        return DicomFacts(
            patient=hashed_patient_id(patient_id) if patient_id else None,
            device=str(header.get("ManufacturerModelName") or "").strip() or None,
            pixel_spacing_mm=_spacing(header),
            frames=_frames(header),
            has_pixels="Rows" in header and "Columns" in header,
            is_directory=header.file_meta.get("MediaStorageSOPClassUID") == _DIRECTORY,
            sop_instance_uid=str(header.get("SOPInstanceUID") or ""),
            study_instance_uid=str(header.get("StudyInstanceUID") or ""),
            accession_number=str(header.get("AccessionNumber") or "").strip(),
            patient_id=patient_id,
        )


def hashed_patient_id(patient_id: str) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of a PatientID.

    It keeps one patient's images together and the id itself out of every table. It is a pseudonym, not anonymous:
    without a secret salt, who knows an id can compute its hash.
    """
    return hashlib.sha256(patient_id.strip().encode()).hexdigest()[:16]


def read_dicom_frame(path: Path, frame: int = 0) -> UInt8:
    """Decode one frame; the others are not read.

    MONOCHROME1 is inverted, a window or lookup table of the file is applied (the first, where there are several),
    palettes and YBR become RGB, and the range that the header states for its values becomes 0 to 255.

    Args:
        path: a DICOM file.
        frame: from 0.

    Returns:
        (H, W, 3) uint8.

    Raises:
        BadImage: the file is missing, damaged, no DICOM file, or larger than ``MAX_PIXELS``; it has no pixels or no
            such frame; its transfer syntax or colours cannot be decoded.
    """
    with refusing(path):
        header = _header(path)
        if "Rows" not in header or "Columns" not in header:
            raise BadImage(path, f"it has no pixels ({_kind(header)})")
        refuse_size(path, int(header.Rows), int(header.Columns))
        refuse_frame(path, frame, _frames(header))
        colours = str(header.get("PhotometricInterpretation"))
        if colours not in (*_COLOURS, "PALETTE COLOR", "MONOCHROME1", "MONOCHROME2"):
            raise BadImage(path, f"its photometric interpretation '{colours}' is not supported")
        stored = _decoded(path, header, frame)
        if colours == "PALETTE COLOR":
            depth = int(header.RedPaletteColorLookupTableDescriptor[2])
            return _eight_bits(apply_color_lut(stored, header)[..., :3], depth)
        if colours in _COLOURS:
            return _eight_bits(stored, int(header.BitsStored))
        grey = _displayed(path, stored, header)
        return np.stack([255 - grey if colours == "MONOCHROME1" else grey] * 3, axis=2)


def _header(path: Path) -> pydicom.Dataset:
    try:
        return pydicom.dcmread(path, stop_before_pixels=True)
    except InvalidDicomError as error:
        raise BadImage(path, "it is not a DICOM file (no 'DICM' at byte 128)") from error


def _decoded(path: Path, header: pydicom.Dataset, frame: int) -> NDArray[Any]:
    syntax = header.file_meta.get("TransferSyntaxUID")
    if syntax is None:
        raise BadImage(path, "it does not name its transfer syntax")
    try:
        decoder = get_decoder(syntax)
    except NotImplementedError as error:
        raise BadImage(
            path, f"its transfer syntax '{syntax.name}' ({syntax}) cannot be decoded; convert it to an uncompressed one"
        ) from error
    if not decoder.is_available:
        raise BadImage(
            path,
            f"its transfer syntax '{syntax.name}' ({syntax}) needs a decoder: "
            "pip install python-gdcm pylibjpeg pylibjpeg-openjpeg",
        )
    try:
        return pixel_array(path, index=frame)
    except Exception:  # some files, such as deflated ones, decode only from memory; what truly fails does so again
        dataset = pydicom.dcmread(path)
    if "PixelData" not in dataset:
        raise BadImage(path, f"it has no pixels ({_kind(header)})")
    try:
        return pixel_array(dataset, index=frame)
    except RuntimeError as error:
        reasons = " ".join(str(error).split())
        raise BadImage(path, f"its pixels ({syntax.name}) cannot be decoded: {reasons}") from error


def _displayed(path: Path, stored: NDArray[Any], header: pydicom.Dataset) -> UInt8:
    """Grey values as they are meant to be seen: modality, then VOI transformation, then the stated range to 0..255."""
    bits = int(header.BitsStored)
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if header.PixelRepresentation else (0, 2**bits - 1)
    if tables := header.get("ModalityLUTSequence"):
        low, high = 0, 2 ** int(tables[0].LUTDescriptor[2]) - 1
    elif header.get("RescaleSlope") is not None:
        slope, intercept = float(header.RescaleSlope), float(header.get("RescaleIntercept") or 0)
        if slope <= 0:
            raise BadImage(path, f"its rescale slope {slope:g} is not positive")
        low, high = low * slope + intercept, high * slope + intercept
    values = apply_voi_lut(apply_modality_lut(stored, header), header)
    if tables := header.get("VOILUTSequence"):
        low, high = 0, 2 ** int(tables[0].LUTDescriptor[2]) - 1
    return np.rint((values.astype(np.float64) - low).clip(0, high - low) * (255 / (high - low))).astype(np.uint8)


def _eight_bits(colours: NDArray[Any], bits: int) -> UInt8:
    """Colour values of ``bits`` bits: the upper eight."""
    return (colours >> max(bits - 8, 0)).clip(0, 255).astype(np.uint8)


def _frames(header: pydicom.Dataset) -> int:
    return int(header.get("NumberOfFrames") or 1)


def _kind(header: pydicom.Dataset) -> str:
    kind = header.get("SOPClassUID") or header.file_meta.get("MediaStorageSOPClassUID")
    return kind.name if kind else "a DICOM file of no named kind"


def _spacing(header: pydicom.Dataset) -> float | None:
    """From the two-dimensional ultrasound regions (PS3.3 C.8.5.5, in cm), else from PixelSpacing."""
    found = [
        abs(float(delta)) * 10
        for region in header.get("SequenceOfUltrasoundRegions") or []
        if region.get("RegionSpatialFormat") == 1
        and region.get("PhysicalUnitsXDirection") == region.get("PhysicalUnitsYDirection") == 3
        for delta in (region.get("PhysicalDeltaX"), region.get("PhysicalDeltaY"))
        if delta
    ] or [float(value) for value in header.get("PixelSpacing") or []]
    if not found or not math.isclose(min(found), max(found), rel_tol=0.01) or min(found) <= 0:
        return None
    return round(sum(found) / len(found), 6)
