"""A calibration refitted on local labels (``usvit recalibrate``): a small file; the model stays as it is."""

import base64
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.special import softmax

from usvit.data.copies.compact import CompactDescriptions
from usvit.data.seen_copies import MAX_BYTES_EACH, MAX_DESCRIBED
from usvit.errors import UsvitError
from usvit.files import read_json, sha256_of_file
from usvit.metrics.rows import LOWEST_PROB
from usvit.records import CalibrationRecord, check_record

SCHEMA_VERSION = "1.1"


@dataclass(frozen=True)
class Threshold:
    """The operating point of one rule, on the probability of the positive class after ``Calibration.scaled``."""

    rule: str
    threshold: float | None
    reason: str | None
    """Why there is no threshold; None where there is one."""


@dataclass(frozen=True)
class Calibration:
    """``calibration.json`` (docs/reference/calibration.schema.json)."""

    model_sha256: str
    """Of the model whose scores it was fitted on: it fits no other."""
    positive: str
    classes: tuple[str, ...]
    temperature: float | None
    """Above 0; None: no temperature could be fitted, and probabilities stay as they are."""
    thresholds: tuple[Threshold, ...]
    n_images: int
    n_groups: int
    fitted_on: frozenset[str] = field(repr=False)
    """Pixel hashes of the images that it was fitted on: they cannot judge it."""
    fitted_on_groups: frozenset[str] = field(repr=False)
    """SHA-256 of the groups (patients' pseudonyms) of these images."""
    fitted_on_copies: CompactDescriptions = field(repr=False)
    """Copy descriptions of these images; empty where an earlier usvit wrote the file."""
    source: str
    """What an error calls it."""
    sha256: str
    """Of the file: tells one calibration from another."""

    def scaled(self, prob: np.ndarray) -> np.ndarray:
        """(n, K) mean probabilities of the ensemble -> (n, K) softmax(log(prob) / temperature).

        A probability of 0 is read as ``rows.LOWEST_PROB``, as in the fit.
        """
        return scaled(prob, self.temperature)

    @property
    def describes_all(self) -> bool:
        """Whether each image that it was fitted on has a copy description."""
        return len(self.fitted_on_copies) >= len(self.fitted_on)

    def knows(self, pixel_sha256: str, group: str) -> bool:
        """Whether it was fitted on an image, or on another one of its group (``group_of``)."""
        return pixel_sha256 in self.fitted_on or group_sha256(group) in self.fitted_on_groups

    def refuse_other(self, model_sha256: str, classes: tuple[str, ...], positive: str) -> None:
        """UsvitError unless it was fitted on scores of this model."""
        if self.model_sha256 != model_sha256:
            raise UsvitError(
                f"{self.source} was fitted on scores of another model, or of other folds of it (model_sha256 "
                f"{self.model_sha256[:12]}..., not {model_sha256[:12]}...). Run usvit recalibrate on scores of "
                "this one."
            )
        if set(self.classes) != set(classes) or self.positive != positive:
            raise UsvitError(
                f"{self.source} is of classes {', '.join(self.classes)} with '{self.positive}' as the positive one; "
                f"the model's are {', '.join(classes)} with '{positive}'."
            )


def group_of(patient_id: str, study_id: str, item_id: str) -> str:
    """What an image is not independent of: its patient if known, else its study, else its file; never a frame alone.

    Args:
        patient_id, study_id, item_id: pseudonyms; "" where there is none.

    Returns:
        Such as ``patient:a123456789abcdef``.
    """
    return f"patient:{patient_id}" if patient_id else f"study:{study_id}" if study_id else f"file:{item_id}"


def group_sha256(group: str) -> str:
    """How a calibration remembers a group."""
    return hashlib.sha256(group.encode()).hexdigest()


def scaled(prob: np.ndarray, temperature: float | None) -> np.ndarray:
    """(n, K) probabilities -> (n, K) softmax(log(prob) / temperature); as they are where it is None."""
    values = np.asarray(prob, dtype=np.float64)
    return values if temperature is None else softmax(log_prob(values) / temperature, axis=1)


def log_prob(prob: np.ndarray) -> np.ndarray:
    """(n, K) probabilities -> (n, K) their logarithms, with 0 read as ``rows.LOWEST_PROB``."""
    return np.log(np.maximum(np.asarray(prob, dtype=np.float64), LOWEST_PROB))


def read_calibration(path: Path) -> Calibration:
    """Read what ``usvit recalibrate`` wrote.

    Raises:
        UsvitError: the file is absent, damaged, or of another version.
    """
    found = read_json(path, "usvit recalibrate writes such a file.", follow=True)
    version = str(found.get("schema_version", "absent"))
    if version.partition(".")[0] != SCHEMA_VERSION.partition(".")[0]:
        raise UsvitError(f"{path}: schema_version is {version}; this usvit reads version {SCHEMA_VERSION}.")
    check_record(found, CalibrationRecord, path)
    try:
        copies = _copies(found.get("fitted_on_copies"))
    except (ValueError, UsvitError) as error:
        raise UsvitError(f"{path} is damaged: key fitted_on_copies: {error}. Copy the file again.") from error
    return Calibration(
        model_sha256=found["model_sha256"],
        positive=found["positive_class"],
        classes=tuple(found["classes"]),
        temperature=found["temperature"]["value"],
        thresholds=tuple(Threshold(one["rule"], one["threshold"], one.get("reason")) for one in found["thresholds"]),
        n_images=found["n_images"],
        n_groups=found["n_groups"],
        fitted_on=frozenset(found["fitted_on_sha256"]),
        fitted_on_groups=frozenset(found.get("fitted_on_groups_sha256") or []),
        fitted_on_copies=copies,
        source=str(path),
        sha256=sha256_of_file(path),
    )


def _copies(value: str | None) -> CompactDescriptions:
    if value is None:
        return CompactDescriptions.of([])
    if len(value) > 2 * MAX_DESCRIBED * MAX_BYTES_EACH:
        raise ValueError("it is too long")
    return CompactDescriptions.from_bytes(base64.b64decode(value, validate=True))
