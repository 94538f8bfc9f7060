"""De-identified description of the source ("evidence") from which reports and Secondary Captures are built.

Evidence is built from an allow-list of attributes; a header is never copied and then blanked. Without ``keep_ids`` it
follows the Basic Application Level Confidentiality Profile (PS3.15 Annex E), as far as the objects have its attributes;
docs/how-to/dicom-out.md lists the parts that are met.
"""

import datetime
import logging
import re
from copy import deepcopy

from pydicom.dataset import Dataset
from pydicom.multival import MultiValue
from pydicom.sr.coding import Code
from pydicom.valuerep import DA, TM

from usvit import __version__
from usvit.pseudonyms import Pseudonyms
from usvit.scoring.items import ScoringItem

# highdicom logs names and UIDs, and Python prints warnings of a library without a log handler.
logging.getLogger("highdicom").setLevel(logging.CRITICAL + 1)

UTF8 = "ISO_IR 192"

_BASIC_PROFILE = Code("113100", "DCM", "Basic Application Confidentiality Profile")
_CLEAN_STRUCTURE = Code("113104", "DCM", "Clean Structured Content Option")
_CLEAN_DESCRIPTORS = Code("113105", "DCM", "Clean Descriptors Option")
"""Applies because the series and derivation descriptions are usvit's own and hold nothing of the source."""

_KEPT_TEXT = ("PatientName", "PatientID", "IssuerOfPatientID", "AccessionNumber", "StudyID", "ReferringPhysicianName")
_CARRIED = (
    *("PatientName", "IssuerOfPatientID", "PatientIdentityRemoved", "DeidentificationMethod"),
    "LongitudinalTemporalInformationModified",
)
_UID = re.compile(r"[0-9]+(\.[0-9]+)*")


def evidence_of(header: Dataset | None, item: ScoringItem, pseudonyms: Pseudonyms, *, keep_ids: bool) -> Dataset:
    """Return the attributes of the source instance that the objects may contain.

    Args:
        header: header of a DICOM source, without pixels; None for other images.
        item: the source; patient and study from a table replace those that the header lacks.
        pseudonyms: pseudonyms made with the user's key.
        keep_ids: keep patient, study, accession number and UIDs unchanged.

    Returns:
        Patient and study attributes, SOPClassUID, SOPInstanceUID, SeriesInstanceUID, StudyInstanceUID, Rows, Columns,
        NumberOfFrames and Modality, all valid whatever the header holds. SOPClassUID and SOPInstanceUID are "" if the
        header lacks them; then no object can refer to the source. A missing study or series UID is generated, and is
        the same for the same source.
    """
    source = Dataset() if header is None else header
    meta = getattr(source, "file_meta", None) or Dataset()
    data = Dataset()
    data.SpecificCharacterSet = UTF8
    data.PatientBirthDate = data.PatientSex = data.StudyDate = data.StudyTime = ""
    data.AccessionNumber = data.StudyID = data.ReferringPhysicianName = ""
    if keep_ids:
        _keep(data, source, item)
        if header is None and not data.PatientID:  # images of different people must not share an id
            data.PatientID = pseudonyms.item(item.name)
    else:
        person = pseudonyms.patient(item.patient or _text(source, "PatientID"))
        data.PatientID = (
            person or pseudonyms.study(item.study or _text(source, "StudyInstanceUID")) or pseudonyms.item(item.name)
        )
        data.PatientName = f"{data.PatientID}^"  # a family name alone
        data.PatientIdentityRemoved = "YES"
        data.DeidentificationMethod = f"usvit {__version__}: PS3.15 Basic Profile, built from scratch"
        data.DeidentificationMethodCodeSequence = [_coded(_BASIC_PROFILE), _coded(_CLEAN_DESCRIPTORS)]
        data.LongitudinalTemporalInformationModified = "REMOVED"
    instance = _text(source, "SOPInstanceUID") or _text(meta, "MediaStorageSOPInstanceUID")
    study, series = _text(source, "StudyInstanceUID"), _text(source, "SeriesInstanceUID")
    if keep_ids:
        instance, study, series = (value if _is_uid(value) else "" for value in (instance, study, series))
    else:
        instance, study, series = (pseudonyms.uid(value) if value else "" for value in (instance, study, series))
    data.SOPInstanceUID = instance
    data.StudyInstanceUID = study or pseudonyms.uid(f"study of {item.study or item.name}")
    data.SeriesInstanceUID = series or pseudonyms.uid(f"series of {study or item.name}")
    kind = _text(source, "SOPClassUID") or _text(meta, "MediaStorageSOPClassUID")
    data.SOPClassUID = kind if kind in IMAGE_CLASSES else ""
    data.Modality = "US"
    data.Rows, data.Columns = _whole(source, "Rows"), _whole(source, "Columns")
    data.NumberOfFrames = _whole(source, "NumberOfFrames") or 1
    return data


IMAGE_CLASSES = {
    "1.2.840.10008.5.1.4.1.1.6.1": False,  # Ultrasound Image
    "1.2.840.10008.5.1.4.1.1.3.1": True,  # Ultrasound Multi-frame Image
    "1.2.840.10008.5.1.4.1.1.6": False,  # both retired, and met in old archives
    "1.2.840.10008.5.1.4.1.1.3": True,
    "1.2.840.10008.5.1.4.1.1.6.2": True,  # Enhanced US Volume
    "1.2.840.10008.5.1.4.1.1.7": False,  # Secondary Capture, multi-frame single bit, grey byte, grey word, true colour
    "1.2.840.10008.5.1.4.1.1.7.1": True,
    "1.2.840.10008.5.1.4.1.1.7.2": True,
    "1.2.840.10008.5.1.4.1.1.7.3": True,
    "1.2.840.10008.5.1.4.1.1.7.4": True,
}
"""SOP classes of ultrasound images -> whether their frames can be referred to by number."""


def stamp(data: Dataset, evidence: Dataset, *, started: datetime.datetime, structured: bool) -> None:
    """Set the remaining common attributes of an object, and replace the current time set by its library.

    Args:
        data: the object, which is modified.
        evidence: result of ``evidence_of``.
        started: time at which the job started, so that an object that is written again has the same bytes.
        structured: whether it is a report, whose content holds no text of the source either.
    """
    for keyword in ("InstanceCreationDate", "InstanceCreationTime", "ContributingEquipmentSequence"):
        if keyword in data:
            delattr(data, keyword)
    for keyword in _CARRIED:
        if keyword in evidence:
            setattr(data, keyword, evidence[keyword].value)
    if "DeidentificationMethodCodeSequence" in evidence:
        methods = deepcopy(list(evidence.DeidentificationMethodCodeSequence))
        ours = any(one.get("CodeValue") == _CLEAN_DESCRIPTORS.value for one in methods)
        data.DeidentificationMethodCodeSequence = methods + ([_coded(_CLEAN_STRUCTURE)] if structured and ours else [])
    data.ContentDate, data.ContentTime = DA(started.date()), TM(started.time().replace(microsecond=0, tzinfo=None))


def object_uid(pseudonyms: Pseudonyms, *parts: object) -> str:
    """Return a UID generated by usvit, which is the same for the same parts and key."""
    return pseudonyms.uid("usvit|" + "|".join(map(str, parts)))


def of_revision(revision: int) -> tuple[str, ...]:
    """Return the part of ``object_uid`` that tells revisions apart; none for 0, the objects of ``usvit score``."""
    return (f"revision {revision}",) if revision else ()


def _keep(data: Dataset, source: Dataset, item: ScoringItem) -> None:
    """Copy patient and study from the header; invalid dates, times and sexes are left empty."""
    data.PatientName = data.PatientID = ""
    for keyword in _KEPT_TEXT:
        if value := _text(source, keyword):
            setattr(data, keyword, value)
    data.PatientID = data.PatientID or item.patient or ""
    for keyword in ("PatientBirthDate", "StudyDate"):
        value = _text(source, keyword)
        setattr(data, keyword, value if _parses(DA, value) else "")
    value = _text(source, "StudyTime")
    data.StudyTime = value if _parses(TM, value) else ""
    value = _text(source, "PatientSex")
    data.PatientSex = value if value in ("M", "F", "O") else ""
    if _text(source, "PatientIdentityRemoved") == "YES":  # the source was already de-identified
        data.PatientIdentityRemoved = "YES"
        data.DeidentificationMethod = _text(source, "DeidentificationMethod") or "not stated by the source"


def _text(source: Dataset, keyword: str) -> str:
    """Return a value as one string, without padding; "" if it is absent or cannot be read."""
    try:
        value = source.get(keyword)
        parts = value if isinstance(value, (list, tuple, MultiValue)) else [value]
        return "\\".join("" if part is None else str(part) for part in parts).strip(" \0")
    except Exception:  # pydicom converts on access, and raises many types for invalid values
        return ""


def _whole(source: Dataset, keyword: str) -> int:
    text = _text(source, keyword)
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) else 0


def _is_uid(value: str) -> bool:
    return len(value) <= 64 and _UID.fullmatch(value) is not None


def _parses(kind: type, value: str) -> bool:
    try:
        return bool(value) and kind(value) is not None
    except Exception:
        return False


def _coded(code: Code) -> Dataset:
    item = Dataset()
    item.CodeValue, item.CodingSchemeDesignator, item.CodeMeaning = code.value, code.scheme_designator, code.meaning
    return item
