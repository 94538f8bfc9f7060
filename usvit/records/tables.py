"""Rows of the CSV tables. Columns named by a class (``prob_<class>``) are described as patterns."""

from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from usvit.plain_data import Json
from usvit.records.base import Count, Fold, Name, Number, Record, Sha256, Share, Text, key, optional

_PROBABILITY: Json = {"type": "number", "minimum": 0, "maximum": 1}


class CsvRow(Record):
    """Base class of the rows; ``KIND`` names the schema in docs/reference."""

    KIND: ClassVar[str]


class FoldRow(CsvRow):
    """Row of folds.csv: the split of one image in one fold."""

    KIND: ClassVar[str] = "folds-csv"
    dataset: Name = key("Name of the data set; (dataset, image_id) is the key of an image.")
    image_id: Name
    fold: Fold
    repeat: Count | None = optional("Repeat that the fold belongs to, from 0; only in a repeated cross-validation.")
    part: Literal["train", "val", "test"] = key("The image's split in that fold.")


class PredictionRow(FoldRow):
    """Row of predictions.csv: one image, predicted by one model."""

    model_config = ConfigDict(
        json_schema_extra={"patternProperties": {"^prob_": _PROBABILITY, "^logit_": {"type": "number"}}}
    )
    KIND: ClassVar[str] = "predictions-csv"
    group_id: Name = key("The patient if known, otherwise the near-duplicates of one frame, otherwise the image.")
    patient_id: Text = key("Identifier of the patient, for private data its pseudonym; empty if there is none.")
    lesion_id: Text | None = optional(
        "Identifier of the lesion, for private data its pseudonym; empty if unknown.", null=True
    )
    side: Literal["left", "right"] | None = optional("Breast that the image shows; empty if unknown.", null=True)
    exam_id: Text | None = optional(
        "Identifier of the exam, for private data its pseudonym. This and the columns of lesion and side exist only if "
        "an image of the run has a value.",
        null=True,
    )
    label: Name = key("The reference class, one of those that the prob_ columns name.")


class FailureRow(CsvRow):
    """Row of failures.csv: one file or frame that was not scored."""

    KIND: ClassVar[str] = "failures-csv"
    item_id: Name = key("Pseudonym of the file's path within its input.")
    path: Text | None = key("Path of the file, only with --keep-ids.")
    frame: Count | None = key("Number of the frame; empty if the whole file was not scored.")
    code: Name
    reason: Text


class ScoreRow(CsvRow):
    """Row of scores.csv: one scored frame; (item_id, frame) is the key."""

    model_config = ConfigDict(
        json_schema_extra={
            "patternProperties": {"^(prob|calibrated|spread|concept)_": {**_PROBABILITY, "type": ["number", "null"]}}
        }
    )
    KIND: ClassVar[str] = "scores-csv"
    item_id: Name = key("Pseudonym of the file's path within its input.")
    frame: Count = key("Number of the frame in its file, from 0.")
    instance_id: Text | None = key("Pseudonym of the SOP instance.")
    study_id: Text | None = key("Pseudonym of the study.")
    patient_id: Text | None = key("Pseudonym of the patient.")
    side: Literal["left", "right"] | None = optional(
        "Breast that the frame shows, by its laterality in DICOM; the column exists only if a frame states it.",
        null=True,
    )
    kind: Literal["dicom", "picture"]
    n_frames: Annotated[int, Field(ge=1)] = key("Frames of the file, scored or not.")
    view_weight: Share | None = optional(
        "Share of the image in the result of its study or patient, mean over the networks; the column exists only if "
        "the model pools its unit by attention.",
        null=True,
    )
    decision: Text | None = key("The positive class, 'not' and the positive class, or empty.")
    abstained: Text | None = key(
        "Reason for abstaining: 'unusual' or 'uncertain'; empty if there is a decision, or no threshold."
    )
    threshold: Number | None
    threshold_origin: Text | None
    novelty: Number | None = key("Out-of-distribution score: how different the image is from the training images.")
    unusual: bool | None = key("true if the out-of-distribution score is above the limit.")
    seen: bool | None = key("true if the networks, their initial weights or the calibration have seen the image.")
    flags: Text | None = key("Detected features, joined by ';'.")
    quality: Share | None = key("Image quality; higher is better.")
    pixel_spacing_mm: Number | None = key("Pixel spacing of the tissue region.")
    lesion_area: Number | None = optional(
        "Area of the lesion that the model or the segmenter marks; 0 without one. The column exists only if lesions "
        "are marked (--seg, --seg-from, or --gsps with a model that predicts a mask).",
        minimum=0,
        null=True,
    )
    lesion_unit: Literal["mm2", "px"] | None = optional(
        "Unit of lesion_area: mm2 if the pixel spacing is known, otherwise pixels of the file.", null=True
    )
    brightness: Number | None = key("Mean grey level of the network's crop.", minimum=0, maximum=255)
    contrast: Number | None = key("Standard deviation of the grey levels of the network's crop.", minimum=0)
    width: Count | None = key("Width of the crop in pixels of the file.")
    height: Count | None = key("Height of the crop in pixels of the file.")
    pixel_sha256: Sha256 = key("SHA-256 of the pixels of the decoded frame.")
    file_sha256: Sha256 = key("SHA-256 of the file.")
    model_sha256: Sha256 = key("SHA-256 of the set of networks.")
    path: Text | None = key("Path of the file; this and the following columns exist only with --keep-ids.")
    sop_instance_uid: Text | None
    study_instance_uid: Text | None
    original_patient_id: Text | None
    device: Text | None
    study_date: Text | None = key("StudyDate, ISO 8601.")
