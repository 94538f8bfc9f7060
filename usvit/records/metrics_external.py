"""Section ``external`` of metrics.json: an external test of scored images."""

from usvit.records.base import Count, Name, Record, Text, key, optional
from usvit.records.flow import FlowRecord
from usvit.records.guarantees import ConformalRecord
from usvit.records.metrics_calibration import ClassCalibration
from usvit.records.metrics_decisions import OutcomeRecord
from usvit.records.metrics_figures import Counts
from usvit.records.values import ShareValue


class SeenAnswer(Record):
    """Result of the search for tested images that the model had seen. These are refused, or left out and counted."""

    found: Name = key(
        "none: pixel hashes and near-duplicate descriptions of everything that was seen were compared with all tested "
        "images. none by exact hash: for some only pixel hashes could be compared. not known: it is not on record what "
        "the model has seen.",
        enum=["none", "none by exact hash", "not known"],
    )
    answer: Text


class RecalibrationFiguresRecord(Record):
    """The calibration.json whose temperature and thresholds replaced those of the model."""

    sha256: Name
    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)


class WorstCase(Record):
    """Figures of one rule if each image that could not be scored had been called wrongly."""

    rule: Text
    sensitivity: ShareValue
    specificity: ShareValue


class Failures(Record):
    """Labelled images that could not be scored."""

    n_failed: Count | None
    share: ShareValue | None = key("Share of all labelled images of the job.")
    codes: Counts = key(
        "Code of failures.csv -> labelled images.", additionalProperties={"type": "integer", "minimum": 1}
    )
    worst_case: list[WorstCase]
    reason: Text | None = key("Reason why the failures are not known.", minLength=1)


class DecidedOnly(Record):
    """Decisions of one frozen threshold on the images that were decided."""

    rule: Text
    outcome: OutcomeRecord


class Abstained(Record):
    """Frames that the model did not decide (usvit score --abstain and --abstain-at)."""

    n_images: Count = key("Frames without a decision.")
    decided_only: list[DecidedOnly] = key("The frozen thresholds on all other frames.")


class External(Record):
    """Section of an external test (usvit evaluate SCORES --labels)."""

    joined_by: Name = key(enum=["item_id", "instance_id", "study_id", "patient_id"])
    model_sha256: Name
    recalibrated: RecalibrationFiguresRecord | None
    counts: Counts = key(
        "label_rows: rows of the table. labels: different ids with a label that is used. The others count what is not "
        "used, as unmatched.csv lists it."
    )
    flow: list[FlowRecord] | None = optional(
        "Flow of the images from what was found to what was tested, and of the labels to those that match a file."
    )
    seen: SeenAnswer = key("Result of the search for images seen in training.")
    failures: Failures
    abstained: Abstained
    calibrated: ClassCalibration = key(
        "Calibration of the calibrated probability of the positive class, to which the frozen thresholds apply; "
        "'calibration' describes the plain probability."
    )
    conformal: ConformalRecord | None = key(
        "Conformal sets of the calibration.json that was given, tested on these images; null without them."
    )
