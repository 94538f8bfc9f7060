"""Section ``external`` of metrics.json: an external test of scored images."""

from typing import Literal

from usvit.records.base import Count, Name, Record, Text, nullable, optional, written
from usvit.records.guarantees import ConformalRecord
from usvit.records.metrics_calibration import ClassCalibration
from usvit.records.metrics_decisions import OutcomeRecord
from usvit.records.metrics_figures import Counts
from usvit.records.values import ShareValue


class SeenAnswer(Record):
    """Result of the search for tested images that the model had seen. These are refused, or left out and counted."""

    found: Name | None = written(
        "none: pixel hashes and near-duplicate descriptions of everything that was seen were compared with all tested "
        "images. none by exact hash: for some only pixel hashes could be compared. not known: it is not on record what "
        "the model has seen.",
        enum=["none", "none by exact hash", "not known"],
    )
    answer: Text | None = written()


class RecalibrationFiguresRecord(Record):
    """The calibration.json whose temperature and thresholds replaced those of the model."""

    sha256: Name | None = written()
    n_images: Count | None = written(minimum=1)
    n_groups: Count | None = written(minimum=1)


class WorstCase(Record):
    """Figures of one rule if each image that could not be scored had been called wrongly."""

    rule: Text
    sensitivity: ShareValue
    specificity: ShareValue


class Failures(Record):
    """Labelled images that could not be scored."""

    n_failed: Count | None = nullable()
    share: ShareValue | None = nullable("Share of all labelled images of the job.")
    codes: Counts | None = written(
        "Code of failures.csv -> labelled images.", additionalProperties={"type": "integer", "minimum": 1}
    )
    worst_case: list[WorstCase] = written(empty=list)
    reason: Text | None = nullable("Reason why the failures are not known.", minLength=1)


class DecidedOnly(Record):
    """Decisions of one frozen threshold on the images that were decided."""

    rule: Text
    outcome: OutcomeRecord


class Abstained(Record):
    """Frames that the model did not decide (usvit score --abstain and --abstain-at)."""

    n_images: Count | None = written("Frames without a decision.")
    decided_only: list[DecidedOnly] = written("The frozen thresholds on all other frames.", empty=list)


class External(Record):
    """Section of an external test (usvit evaluate SCORES --labels)."""

    unit: Literal["frame", "item", "study", "patient"] | None = written("Unit of a row, which n_images counts.")
    roll_up: Literal["mean", "max"] | None = nullable(
        "Method that combines the frames of a unit into one row; null for frames."
    )
    joined_by: Name | None = written(enum=["item_id", "instance_id", "study_id", "patient_id"])
    seen: SeenAnswer | None = optional("Result of the search for images seen in training. Since schema 1.3.")
    model_sha256: Name | None = written()
    recalibrated: RecalibrationFiguresRecord | None = nullable()
    counts: Counts | None = written(
        "label_rows: rows of the table. labels: different ids with a label that is used. The others count what is not "
        "used, as unmatched.csv lists it."
    )
    failures: Failures = written(empty=Failures)
    abstained: Abstained = written(empty=Abstained)
    calibrated: ClassCalibration | None = written(
        "Calibration of the calibrated probability of the positive class, to which the frozen thresholds apply; "
        "'calibration' describes the plain probability."
    )
    conformal: ConformalRecord | None = optional(
        "Conformal sets of the calibration.json that was given, tested on these images; null without them. Since "
        "schema 1.5.",
        null=True,
    )
