"""Results as HL7 FHIR: a Bundle of one DiagnosticReport and an Observation for each frame, valid in R4B and R5.

The report is ``preliminary``, as the DICOM SR is UNVERIFIED. Concepts without a standard code have a code of our own
system, which is a column of ``scores.csv``.
"""

import datetime
import uuid
from collections.abc import Sequence

from pydicom.dataset import Dataset

from usvit.plain_data import Json
from usvit.scoring.dicom_out.findings import RESEARCH_USE_ONLY, Finding, ScoringModel

SYSTEM = "https://usvit.invalid/fhir/scores"
_UCUM = "http://unitsofmeasure.org"
_INTERPRETATION = "http://terminology.hl7.org/CodeSystem/v3-ObservationInterpretation"
_META = {
    "security": [{"system": "http://terminology.hl7.org/CodeSystem/v3-ActReason", "code": "HRESCH"}],
    "tag": [{"system": SYSTEM, "code": "research-use-only", "display": RESEARCH_USE_ONLY}],
}


def bundle_of(
    evidence: Dataset,
    listed: Sequence[Finding],
    scorer: ScoringModel,
    *,
    item_id: str,
    started: datetime.datetime,
    n_frames: int,
    n_failed: int = 0,
) -> Json:
    """Build the FHIR Bundle of one scored file.

    Args:
        evidence: Result of ``evidence_of``: the patient's id and the study, as pseudonyms unless ids are kept.
        listed: Findings of the frames that are listed, at least one.
        scorer: The networks.
        item_id: Pseudonym of the file, from which the identifiers follow.
        started: Local time at which the job started.
        n_frames: Number of frames that were scored.
        n_failed: Number of frames that could not be scored.
    """
    issued = started.astimezone().isoformat(timespec="seconds")
    names = [_urn(item_id, f"frame {one.frame}") for one in listed]
    highest = max(listed, key=lambda one: one.calibrated)
    shown = "" if len(listed) == n_frames else f" The {len(listed)} most suspicious are listed."
    shown += f" {n_failed} frames could not be scored." if n_failed else ""
    report = {
        "resourceType": "DiagnosticReport",
        "meta": _META,
        "identifier": [{"system": SYSTEM, "value": item_id}],
        "status": "preliminary",
        "category": [  # radiology ultrasound
            {"coding": [{"system": "http://terminology.hl7.org/CodeSystem/v2-0074", "code": "RUS"}]}
        ],
        "code": {"text": f"usvit scores - {RESEARCH_USE_ONLY}"},
        **_subject(evidence),
        "issued": issued,
        "result": [{"reference": name} for name in names],
        "conclusion": f"{RESEARCH_USE_ONLY}. Highest probability of {scorer.positive} over {n_frames} scored frames: "
        f"{highest.calibrated:.3f} (frame {highest.frame + 1}).{shown} {scorer.version}.",
    }
    entries = [(_urn(item_id, "report"), report)]
    entries += [(name, _observation(evidence, one, scorer, issued)) for name, one in zip(names, listed, strict=True)]
    return {
        "resourceType": "Bundle",
        "type": "collection",
        "timestamp": issued,
        "entry": [{"fullUrl": name, "resource": resource} for name, resource in entries],
    }


def _observation(evidence: Dataset, one: Finding, scorer: ScoringModel, issued: str) -> Json:
    if one.decision:
        code, decision = ("POS", one.decision) if one.decision == scorer.positive else ("NEG", one.decision)
    else:
        code, decision = "IND", f"no decision{f': the image is {one.abstained}' if one.abstained else ''}"
    numbers: list[tuple[str, float | None]] = [
        (f"prob_{name}", p) for name, p in zip(scorer.classes, one.probabilities, strict=True)
    ]
    numbers += [(f"spread_{scorer.positive}", one.spread), ("threshold", one.threshold), ("novelty", one.ood)]
    study = evidence.get("StudyInstanceUID")
    source = {"system": "urn:dicom:uid", "value": f"urn:oid:{study}"}
    origin = f" Threshold: {one.threshold_origin}." if one.threshold_origin else ""
    return {
        "resourceType": "Observation",
        "meta": _META,
        "status": "preliminary",
        "code": _concept(f"calibrated_{scorer.positive}", f"Probability of {scorer.positive}, frame {one.frame + 1}"),
        **_subject(evidence),
        "issued": issued,
        "valueQuantity": _share(one.calibrated),
        "interpretation": [{"coding": [{"system": _INTERPRETATION, "code": code}], "text": decision}],
        "note": [{"text": f"{RESEARCH_USE_ONLY}.{origin}"}],
        "device": {"display": scorer.version},
        **({"derivedFrom": [{"type": "ImagingStudy", "identifier": source}]} if study else {}),
        "component": [
            *(
                {"code": _concept(name, name), "valueQuantity": _share(value)}
                for name, value in numbers
                if value is not None
            ),
            {"code": _concept("unusual", "Unlike the training images"), "valueBoolean": one.unusual},
        ],
    }


def _subject(evidence: Dataset) -> Json:
    patient = str(evidence.get("PatientID") or "")
    return {"subject": {"type": "Patient", "identifier": {"value": patient}}} if patient else {}


def _concept(code: str, text: str) -> Json:
    return {"coding": [{"system": SYSTEM, "code": code}], "text": text}


def _share(value: float) -> Json:
    return {"value": value, "unit": "1", "system": _UCUM, "code": "1"}


def _urn(item_id: str, part: str) -> str:
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{SYSTEM}/{item_id}/{part}").urn
