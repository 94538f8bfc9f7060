"""``summary.json`` and ``job.json`` of a scored set."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from usvit.estimate import Interval
from usvit.plain_data import Json, Settings
from usvit.records.base import (
    OPEN,
    Classes,
    Count,
    FileRecord,
    Fold,
    InGivenOrder,
    Name,
    Number,
    Record,
    Sha256,
    Share,
    Text,
    key,
    optional,
)
from usvit.records.model import InDistribution
from usvit.records.seen_images import SeenCollectionRecord, SeenGap

_FAILED = {"properties": {"rows": {"minimum": 1}}}


class JobIdentity(InGivenOrder):
    """Identity of a job: a job is resumed only if these values are the same. It contains nothing private."""

    model_config = OPEN
    key: Name = key("Fingerprint of the key of the pseudonyms.")


class JobRecord(FileRecord):
    """State of a scoring job."""

    KIND: ClassVar[str] = "job"
    usvit_version: Name
    state: Literal["running", "finished"]
    started: Name = key("Start of the job, ISO 8601.")
    identity: JobIdentity


class ScoreCounts(Record):
    """Counts of files, breasts, studies, patients and frames."""

    files: Count = key("All files that were found: files_scored + files_failed - files_partly.")
    files_scored: Count = key("Files with at least one row in scores.csv.")
    files_failed: Count = key("Files with at least one row in failures.csv.")
    files_partly: Count = key("Files in both tables: some frames were scored, others not.")
    breasts: Count = key("Rows of breasts.csv, which exists if an image states the breast that it shows.")
    files_without_breast: Count = key(
        "Scored files that do not name a patient and one breast; they are not in breasts.csv."
    )
    studies: Count = key("Rows of studies.csv.")
    files_without_study: Count = key("Scored files that name no study; they are not in studies.csv.")
    patients: Count = key("Rows of patients.csv.")
    files_without_patient: Count = key("Scored files that name no patient; they are not in patients.csv.")
    frames_scored: Count = key("Rows of scores.csv.")
    frames_unusual: Count = key("Out-of-distribution frames, which are unlike the training images.")
    frames_abstained: Count = key(
        "Frames from which the model abstains although it has a threshold: unusual frames (--abstain) and uncertain "
        "ones (--abstain-at)."
    )
    frames_uncertain: Count = key(
        "Of frames_abstained, those whose calibrated probability is in the zone of --abstain-at."
    )
    frames_seen: Count = key(
        "Frames in the training or validation data of one of the networks, or of a patient that the calibration was "
        "fitted on."
    )
    frames_positive: Count = key("Frames decided as the positive class.")
    frames_negative: Count = key("Frames decided as not the positive class.")
    frames_undecided: Count = key("Frames without a decision: abstained, or there is no threshold.")
    failures: Count = key("Rows of failures.csv.")
    products_failed: Count = key("Files of products that could not be written.")


class Reason(Record):
    """Failures with one code."""

    rows: Count = key(minimum=1)
    reason: Text = key("Meaning of the code.")


class ScoredTable(Record):
    """Table of a scored set."""

    rows: Count
    sha256: Sha256 = key("SHA-256 of the file.")


class ScoreThresholdRecord(Record):
    """Threshold on the calibrated probability of a single image; an image at the threshold is positive."""

    value: Number | None = key("Null if no decision is made.")
    origin: Text


class AbstentionZone(Record):
    """Calibrated probabilities of the positive class for which no decision is made (--abstain-at): low <= p < high."""

    low: Share
    high: Share
    origin: Text = key("Where the zone comes from.", minLength=1)


class OodSummary(Record):
    """Out-of-distribution detection of the job."""

    threshold: Number | None = key("An image above it is unusual; null if the model has no detector.")
    stated_rate: Share | None = key("Share of images like the training images that are flagged, from training.")
    found_rate: Share | None = key("Share of the images scored here that are flagged; null if there are none.")


class FlaggedImages(Record):
    """How often in-distribution images are flagged, in the test splits of several networks."""

    on: Text = key("Description of the images.")
    n_images: Count
    n_groups: Count
    n_flagged: Count
    rate: Share | None
    ci95: Interval | None
    method: Text


class MemberOod(Record):
    """Out-of-distribution detector of one network."""

    thresholds: dict[str, Number] = key("View -> distance that counts as 1.")
    left_out: dict[str, Text] = key("View -> why it is not used.")
    in_distribution: InDistribution | None


class EnsembleOod(Record):
    """Out-of-distribution detection of all networks together."""

    threshold: Number
    combined: Text
    in_distribution: FlaggedImages


class ScoringMember(Record):
    """One network."""

    model_config = OPEN
    fold: Fold
    weights_sha256: Sha256 | None = optional()
    architecture: Name
    temperature: Number | None
    temperature_reason: Text | None = optional("Reason why there is no temperature.", null=True)
    novelty: MemberOod | None = optional(null=True)
    novelty_reason: Text | None = optional("Reason why there is no detector.", null=True)
    run: Name | None = optional("Name of its run, only if the networks are of several runs.")
    weight: Share | None = optional("Its weight in the mean of its fold, only in an ensemble of usvit ensemble.")


class ModelSeen(Record):
    """Record of the images that the networks or the calibration have seen."""

    known: Name = key(
        "copies: every seen image has a near-duplicate description. hashes: some are recognised only by their pixel "
        "hash. nothing: for some training, or for the initial weights, it is not on record which images were seen.",
        enum=["copies", "hashes", "nothing"],
    )
    n_hashes: Count
    n_descriptions: Count
    gaps: list[SeenGap]
    collections: Annotated[list[SeenCollectionRecord], Field(max_length=1000)] | None = optional(
        "Published lists of the data sets of foundation models that the networks started from.", minItems=1
    )


class ScoringPreprocessing(Record):
    """Preparation of the images."""

    model_config = OPEN
    image_size: Count
    resize: Name
    crop: Name
    mean: list[Number]
    std: list[Number]


class ScoringCalibration(Record):
    """The calibration.json that was used."""

    temperature: Number | None
    n_images: Count
    n_groups: Count
    sha256: Name


class UnitPointRecord(Record):
    """Threshold of a unit, such as a patient, on the pooled calibrated probability of its images."""

    unit: Name
    pooling: Name
    threshold: Number | None = key("null if the rule gives none; then nothing is decided.", minimum=0, maximum=1)
    origin: Text = key("Where the threshold comes from, or why there is none.")
    decides: Name | None = key(
        "Table that the threshold decides; null if no table has the pooled probability of this unit, so that all are "
        "decided at the threshold of a single image."
    )

    def column(self, positive: str) -> str:
        """Return the column of this table with the pooled probability, such as ``top_3_calibrated_malignant``."""
        return f"{self.pooling.replace('-', '_')}_calibrated_{positive}"


class ScoringCompanion(Record):
    """The segmenter of --seg-from, or the text tower of --concepts-from."""

    name: Text = key("Network and head.")
    sha256: Sha256
    networks: Count = key("Number of networks whose probabilities are averaged.", minimum=1)


class ScoringModelRecord(Record):
    """The networks that scored, and their calibration."""

    model_config = OPEN
    sha256: Sha256
    classes: list[Name]
    positive_class: Name
    preprocessing: ScoringPreprocessing
    members: list[ScoringMember] = key(minItems=1)
    flip: bool = key("true if probabilities are averaged with those of the mirrored image.")
    segmenter: ScoringCompanion | None = optional("What marks the lesion, with --seg-from.")
    concepts: ScoringCompanion | None = optional("What scores concepts, with --concepts-from.")
    calibration: ScoringCalibration | None
    rule: Text | None = optional("Rule of the threshold.")
    threshold: Number | None = optional("Threshold of a single image.", null=True)
    threshold_origin: Text | None = optional("Where the threshold comes from.")
    unit: UnitPointRecord | None = optional("Present if the run, the ensemble or the calibration has a unit (--unit).")
    novelty: EnsembleOod | None
    seen: ModelSeen = key("Record of seen images.")
    device: Json


class ProductRecord(Record):
    """Files of one kind of product."""

    written: Count
    failed: Count
    reasons: dict[str, Reason] | None = optional(
        "Code of products.csv -> number of files that could not be written, and the reason."
    )


class SummaryRecord(FileRecord):
    """Summary of 'usvit score'. It is written last: if it exists, all tables beside it are complete."""

    KIND: ClassVar[str] = "scores"
    research_use_only: bool = key(const=True)
    classes: Classes = key("Class names in the order of the network's outputs.")
    positive_class: Name = key("Class of calibrated_, spread_, mean_calibrated_, max_calibrated_ and decision.")
    counts: ScoreCounts
    failures: dict[str, Reason] = key("Code -> number of rows of failures.csv, and meaning of the code.")
    flags: dict[str, Count] = key(
        "Flag -> number of frames that have it.", additionalProperties={"type": "integer", "minimum": 1}
    )
    threshold: ScoreThresholdRecord
    abstention: AbstentionZone | None = key("Null without --abstain-at.")
    novelty: OodSummary
    model: ScoringModelRecord
    settings: Settings = key("Options of the job, without paths.")
    versions: dict[str, Text] = key("Package -> version.")
    started: Name = key("Start of the job, of its first process if it was resumed, ISO 8601.")
    finished: Name = key("End of the job, ISO 8601.")
    seconds: Number = key("Time from started to finished, including pauses of a resumed job.", minimum=0)
    products: dict[str, ProductRecord] = key("Kind (sr, sc, gsps, seg, overlay, fhir) -> files of this kind.")
    files: dict[str, ScoredTable] = key(
        "Table -> its rows and the SHA-256 of the file.",
        required=[
            "scores.csv",
            "scores.parquet",
            "copies.parquet",
            "failures.csv",
            "files.csv",
            "studies.csv",
            "patients.csv",
        ],
    )
    key_fingerprint: Name | None = optional("Fingerprint of the key of the pseudonyms.")
