"""DICOM structured reports: one Comprehensive SR of template TID 1500 (PS3.16) for each source instance.

highdicom builds the tree. The classification of an image is a Qualitative Evaluation, and its probabilities are
Measurements, in a group (TID 1501) that refers to the instance and frame. Concepts without a standard code have a code
of the private scheme ``99USVIT``, which is a column of ``scores.csv``; docs/how-to/dicom-out.md lists them.
"""

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import highdicom as hd
import numpy as np
from highdicom.coding_schemes import CodingSchemeIdentificationItem
from highdicom.sr import (
    AlgorithmIdentification,
    CodedConcept,
    Measurement,
    MeasurementsAndQualitativeEvaluations,
    QualitativeEvaluation,
    SourceImageForMeasurementGroup,
    TextContentItem,
    TrackingIdentifier,
)
from pydicom.dataset import Dataset
from pydicom.sr.codedict import codes
from pydicom.sr.coding import Code
from pydicom.uid import ComprehensiveSRStorage

from usvit import __version__
from usvit.pseudonyms import Pseudonyms
from usvit.scoring.dicom_out.deidentify import IMAGE_CLASSES, UTF8, object_uid, of_revision, stamp
from usvit.scoring.dicom_out.findings import RESEARCH_USE_ONLY, Finding, ScoringModel, most_suspicious
from usvit.scoring.dicom_out.retired import rename_references, supported_class, with_class
from usvit.scoring.items import VIEW_WEIGHT

_SCHEME = "99USVIT"
SERIES_NUMBER = 9801
SERIES_DESCRIPTION = "usvit scores - RESEARCH USE ONLY"
_MOST_NUMBERS = 2000
"""A longer list of frame numbers is left out of a reference, which then refers to all frames."""

_CLASS_CODES = {"benign": codes.SCT.Benign, "malignant": codes.SCT.Malignant, "normal": codes.SCT.Normal}
"""Qualifiers, not diseases: SNOMED's "Benign neoplasm of breast" would be wrong for a cyst."""
NO_UNITS, FRAMES = codes.UCUM.NoUnits, Code("{frames}", "UCUM", "frames")
_WEIGHT = "Share of the image in the result of its study or patient"
_COMMENT = Code("121106", "DCM", "Comment")


@dataclass(frozen=True)
class Predecessor:
    """An earlier report that a new one replaces."""

    study_instance_uid: str
    series_instance_uid: str
    sop_instance_uid: str
    sop_class_uid: str = ComprehensiveSRStorage

    @classmethod
    def of(cls, report: Dataset) -> Self:
        """Return the predecessor that an existing report is."""
        return cls(report.StudyInstanceUID, report.SeriesInstanceUID, report.SOPInstanceUID, report.SOPClassUID)


def report_of(
    evidence: Dataset,
    findings: Sequence[Finding],
    scorer: ScoringModel,
    *,
    item_id: str,
    pseudonyms: Pseudonyms,
    started: datetime.datetime,
    most: int,
    n_failed: int = 0,
    predecessors: Sequence[Predecessor] = (),
    revision: int = 0,
) -> Dataset:
    """Build the report of one source instance.

    The report is UNVERIFIED and qualified as RESEARCH. It is COMPLETE if every scored frame is listed and none failed,
    else PARTIAL with a description of what is missing. For several frames, a roll-up comes first (mean and maximum of
    the probability of the positive class, numbers of frames), then the ``most`` most suspicious frames, each with the
    probability of each class, the calibrated probability of the positive class, spread, threshold, OOD score and
    decision.

    Args:
        evidence: result of ``evidence_of``, with SOP class and instance.
        findings: findings of all scored frames; at least one.
        scorer: the networks.
        item_id: name of the groups.
        pseudonyms: used for the UIDs of the object.
        started: time at which the job started.
        most: maximum number of frames listed one by one.
        n_failed: number of frames that could not be scored.
        predecessors: earlier reports that this one replaces; they are listed in PredecessorDocumentsSequence.
        revision: number of the revision of the study's results. Another revision gives another object in the same
            series; 0 gives the objects of ``usvit score``.
    """
    source = ReportSource(evidence, findings, item_id, n_failed)
    own = (evidence.SOPInstanceUID,)
    return _built([source], own, scorer, pseudonyms, started, most, predecessors, revision, n_missing=0)


@dataclass(frozen=True)
class ReportSource:
    """One source instance of a report, and what was found in it."""

    evidence: Dataset
    """Result of ``evidence_of``, with SOP class and instance."""
    findings: Sequence[Finding]
    """Findings of all scored frames; at least one."""
    item_id: str
    """Name of its groups."""
    n_failed: int = 0
    """Number of its frames that could not be scored."""


def study_report_of(
    sources: Sequence[ReportSource],
    scorer: ScoringModel,
    *,
    pseudonyms: Pseudonyms,
    started: datetime.datetime,
    most: int,
    predecessors: Sequence[Predecessor] = (),
    revision: int = 0,
    n_missing: int = 0,
) -> Dataset:
    """Build one report of several source instances of one study, each with the groups of ``report_of``.

    Args:
        sources: the instances; at least one.
        scorer, pseudonyms, started, predecessors, revision: see ``report_of``.
        most: maximum number of frames of one instance that are listed one by one.
        n_missing: number of images of the study that could not be scored, or are not listed again; the report is then
            PARTIAL.
    """
    own = ("study", sources[0].evidence.StudyInstanceUID)
    return _built(sources, own, scorer, pseudonyms, started, most, predecessors, revision, n_missing=n_missing)


def _built(
    sources: Sequence[ReportSource],
    own: tuple[str, ...],
    scorer: ScoringModel,
    pseudonyms: Pseudonyms,
    started: datetime.datetime,
    most: int,
    predecessors: Sequence[Predecessor],
    revision: int,
    n_missing: int,
) -> Dataset:
    """Build a report; ``own`` is what its UID is made of, beside the networks, the time and the revision."""
    groups, evidence, missing = [], [], _Missing(n_images=n_missing)
    for one in sources:
        shown = with_class(one.evidence, supported_class(one.evidence.SOPClassUID))
        listed = most_suspicious(one.findings, most)
        shared = _Shared(shown, scorer, one.item_id, pseudonyms)
        if len(one.findings) > 1:
            groups.append(_roll_up(shared, one.findings, listed, one.n_failed))
        groups += [_frame_group(shared, each, many=shown.NumberOfFrames > 1) for each in listed]
        evidence.append(shown)
        missing.add(one, listed)
    content = hd.sr.MeasurementReport(
        observation_context=hd.sr.ObservationContext(observer_device_context=_observer(scorer)),
        procedure_reported=codes.SCT.UltrasonographyOfBreast,
        imaging_measurements=groups,
        title=codes.DCM.ImagingMeasurementReport,
        referenced_images=evidence,
    )
    kind = (scorer.sha256, started.isoformat(), "sr")
    report = hd.sr.ComprehensiveSR(
        evidence=evidence,
        content=content[0],
        series_instance_uid=object_uid(pseudonyms, "series", evidence[0].StudyInstanceUID, *kind),
        series_number=SERIES_NUMBER,
        sop_instance_uid=object_uid(pseudonyms, *own, *kind, *of_revision(revision)),
        instance_number=1,
        manufacturer="usvit",
        manufacturer_model_name=scorer.name[:64],
        software_versions=scorer.version,
        series_description=SERIES_DESCRIPTION,
        is_complete=not missing.text,
        is_verified=False,
        previous_versions=[_named(one) for one in predecessors] or None,
        content_qualification=hd.ContentQualificationValues.RESEARCH,
        coding_schemes=[
            CodingSchemeIdentificationItem(
                _SCHEME, name="usvit score columns", version=__version__, responsible_organization="usvit"
            )
        ],
        content_date=started.date(),
        content_time=started.time().replace(microsecond=0, tzinfo=None),
        specific_character_set=UTF8,
    )
    if missing.text:
        report.CompletionFlagDescription = missing.text[:64]
    stamp(report, evidence[0], started=started, structured=True)
    rename_references(report, {one.evidence.SOPInstanceUID: one.evidence.SOPClassUID for one in sources})
    return report


@dataclass
class _Missing:
    """What a report does not list."""

    n_images: int
    n_listed: int = 0
    n_scored: int = 0
    n_failed: int = 0

    def add(self, source: ReportSource, listed: Sequence[Finding]) -> None:
        self.n_listed += len(listed)
        self.n_scored += len(source.findings)
        self.n_failed += source.n_failed

    @property
    def text(self) -> str:
        """CompletionFlagDescription; "" if nothing is missing."""
        few = self.n_listed < self.n_scored
        said = [f"{self.n_listed} of {self.n_scored} scored frames listed"] if few else []
        said += [f"{self.n_failed} frames not scored"] if self.n_failed else []
        said += [f"{self.n_images} images not listed"] if self.n_images else []
        return "; ".join(said)


class _Shared:
    """Values that all groups of one report share."""

    def __init__(self, evidence: Dataset, scorer: ScoringModel, item_id: str, pseudonyms: Pseudonyms):
        self.evidence, self.scorer, self.item_id, self.pseudonyms = evidence, scorer, item_id, pseudonyms

    def tracking(self, what: str) -> TrackingIdentifier:
        uid = object_uid(self.pseudonyms, "tracking", self.evidence.SOPInstanceUID, self.scorer.sha256, what)
        return TrackingIdentifier(uid=uid, identifier=f"{self.item_id} {what}")

    def source(self, frames: list[int] | None) -> SourceImageForMeasurementGroup:
        by_number = frames and IMAGE_CLASSES[self.evidence.SOPClassUID] and len(frames) <= _MOST_NUMBERS
        return SourceImageForMeasurementGroup(
            self.evidence.SOPClassUID,
            self.evidence.SOPInstanceUID,
            [number + 1 for number in frames] if by_number and frames else None,
        )

    def group(
        self,
        what: str,
        measurements: list[Measurement],
        evaluations: list[QualitativeEvaluation],
        frames: list[int] | None,
        comments: list[str],
        parameters: list[str],
    ) -> MeasurementsAndQualitativeEvaluations:
        group = MeasurementsAndQualitativeEvaluations(
            tracking_identifier=self.tracking(what),
            algorithm_id=_algorithm(self.scorer, parameters),
            measurements=measurements,
            qualitative_evaluations=evaluations,
            source_images=[self.source(frames)],
        )
        for comment in (RESEARCH_USE_ONLY, *comments):
            item = TextContentItem(_COMMENT, comment, hd.sr.RelationshipTypeValues.CONTAINS)
            group[0].ContentSequence.append(item)
        return group


def _frame_group(shared: _Shared, one: Finding, *, many: bool) -> MeasurementsAndQualitativeEvaluations:
    scorer = shared.scorer
    measurements = [
        _number(f"prob_{name}", f"Probability of class {name}", value)
        for name, value in zip(scorer.classes, one.probabilities, strict=True)
    ]
    measurements.append(Measurement(_positive_concept(scorer.positive), one.calibrated, NO_UNITS))
    optional = (
        (f"spread_{scorer.positive}", "Standard deviation over the ensemble's networks", one.spread),
        ("threshold", "Threshold of the decision", one.threshold),
        ("novelty", "Novelty (1 is the limit of the training images)", one.ood),
        (VIEW_WEIGHT, _WEIGHT, one.view_weight),
    )
    measurements += [_number(code, meaning, value) for code, meaning, value in optional if value is not None]
    origin = [f"threshold: {one.threshold_origin}"] if one.threshold_origin else []
    evaluations = [
        QualitativeEvaluation(private("decision", "Decision"), _decision_concept(one, scorer)),
        QualitativeEvaluation(
            private("unusual", "Unlike the training images"), codes.SCT.Yes if one.unusual else codes.SCT.No
        ),
    ]
    frames = [one.frame] if many else None
    comments = [f"No decision: the image is {one.abstained}."] if one.abstained else []
    return shared.group(f"frame {one.frame + 1}", measurements, evaluations, frames, comments, origin)


def _roll_up(
    shared: _Shared, findings: Sequence[Finding], listed: Sequence[Finding], n_failed: int
) -> MeasurementsAndQualitativeEvaluations:
    values = np.array([one.calibrated for one in findings])
    concept = _positive_concept(shared.scorer.positive)
    measurements = [
        Measurement(concept, float(values.mean()), NO_UNITS, derivation=codes.SCT.Mean),
        Measurement(concept, float(values.max()), NO_UNITS, derivation=codes.SCT.Maximum),
        _count("n_scored", "Frames scored", len(findings)),
        _count("n_positive", "Frames decided positive", sum(_is_positive(one, shared.scorer) for one in findings)),
        _count("n_unusual", "Frames unlike the training images", sum(one.unusual for one in findings)),
    ]
    weights = [one.view_weight for one in findings if one.view_weight is not None]
    if weights:
        concept = private(VIEW_WEIGHT, _WEIGHT)
        measurements.append(Measurement(concept, math.fsum(weights), NO_UNITS, derivation=codes.SCT.Total))
    if abstained := sum(bool(one.abstained) for one in findings):
        measurements.append(_count("n_abstained", "Frames without a decision", abstained))
    if n_failed:
        measurements.append(_count("n_failed", "Frames that could not be scored", n_failed))
    comments = (
        [f"The {len(listed)} most suspicious of {len(findings)} frames are listed one by one."]
        if len(listed) < len(findings)
        else []
    )
    all_frames = len(findings) == shared.evidence.NumberOfFrames
    frames = None if all_frames else [one.frame for one in findings]
    return shared.group("roll-up", measurements, [], frames, comments, [])


def _positive_concept(positive: str) -> CodedConcept:
    """Return the concept of the calibrated probability, with the DICOM code if the positive class is ``malignant``."""
    if positive == "malignant":
        return CodedConcept.from_code(codes.DCM.ProbabilityOfCancer)
    return private(f"calibrated_{positive}", f"Calibrated probability of class {positive}")


def _decision_concept(one: Finding, scorer: ScoringModel) -> CodedConcept:
    """Return the concept of the positive class, ``not_<positive>``, or ``no_decision``."""
    if not one.decision:
        return private("no_decision", "No decision")
    if _is_positive(one, scorer):
        known = _CLASS_CODES.get(scorer.positive)
        return CodedConcept.from_code(known) if known else private(scorer.positive, scorer.positive)
    return private(f"not_{scorer.positive}", f"Not {scorer.positive}")


def _is_positive(one: Finding, scorer: ScoringModel) -> bool:
    """Return whether the decision is the positive class."""
    return one.decision == scorer.positive


def private(value: str, meaning: str) -> CodedConcept:
    """Return a code of the scheme ``99USVIT``, shortened, and without backslashes, which separate values in DICOM."""
    return CodedConcept(value.replace("\\", "/"), _SCHEME, meaning.replace("\\", "/")[:64])


def _number(code: str, meaning: str, value: float) -> Measurement:
    return Measurement(private(code, meaning), value, NO_UNITS)


def _count(code: str, meaning: str, value: int) -> Measurement:
    return Measurement(private(code, meaning), value, FRAMES)


def _observer(scorer: ScoringModel) -> hd.sr.ObserverContext:
    return hd.sr.ObserverContext(
        observer_type=codes.DCM.Device,
        observer_identifying_attributes=hd.sr.DeviceObserverIdentifyingAttributes(
            uid=f"2.25.{int(scorer.sha256[:32], 16)}",  # the same networks are the same device
            name=scorer.software,
            manufacturer_name="usvit",
            model_name=scorer.name,
        ),
    )


def _algorithm(scorer: ScoringModel, parameters: list[str]) -> AlgorithmIdentification:
    said = [f"networks: {scorer.n_members}", f"classes: {', '.join(scorer.classes)}", f"positive: {scorer.positive}"]
    return AlgorithmIdentification(
        name=f"{scorer.software}: {scorer.name}",
        version=scorer.sha256,
        parameters=[*said, *parameters],
        manufacturer="usvit",
    )


def _named(one: Predecessor) -> Dataset:
    data = Dataset()
    data.StudyInstanceUID, data.SeriesInstanceUID = one.study_instance_uid, one.series_instance_uid
    data.SOPInstanceUID, data.SOPClassUID = one.sop_instance_uid, one.sop_class_uid
    return data
