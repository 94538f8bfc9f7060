"""A calibration fitted on local labels by ``usvit recalibrate``, stored in a file beside the unchanged model."""

import base64
import hashlib
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.special import softmax

from usvit.data.near_duplicates import CompactDescriptions
from usvit.data.splits import MAX_BYTES_EACH, MAX_DESCRIBED
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.metrics.calibration_statistics import LOWEST_PROB
from usvit.records import CalibrationRecord, ConformalFit, FittedThreshold, FittedUnits, load_record


@dataclass(frozen=True)
class LocalCalibration:
    """The content of ``calibration.json`` (docs/reference/calibration.schema.json)."""

    model_sha256: str
    """Hash of the model whose scores it was fitted on; it is valid for no other model."""
    positive: str
    classes: tuple[str, ...]
    temperature: float | None
    """Temperature, above 0; None: none could be fitted, and probabilities stay unchanged."""
    thresholds: tuple[FittedThreshold, ...]
    """Operating points on the probability of the positive class after ``scaled``."""
    of_units: FittedUnits | None
    """Operating points of a unit, such as the patient, on the pooled probability of its images after ``scaled``."""
    conformal: ConformalFit
    n_images: int
    n_groups: int
    fitted_on: frozenset[str] = field(repr=False)
    """Pixel hashes of the images that it was fitted on, which must not be used to evaluate it."""
    fitted_on_groups: frozenset[str] = field(repr=False)
    """SHA-256 of the groups (pseudonyms of patients) of these images."""
    fitted_on_copies: CompactDescriptions = field(repr=False)
    """Near-duplicate descriptions of these images, of those that have one."""
    source: str
    """Name of the file in error messages."""
    sha256: str
    """Hash of the file, which identifies the calibration."""

    def scaled(self, prob: np.ndarray) -> np.ndarray:
        """Map (n, K) mean probabilities of the ensemble to softmax(log(prob) / temperature).

        A probability of 0 is read as ``rows.LOWEST_PROB``, as in the fit.
        """
        return scaled(prob, self.temperature)

    @property
    def describes_all(self) -> bool:
        """True if each image that it was fitted on has a near-duplicate description."""
        return len(self.fitted_on_copies) >= len(self.fitted_on)

    def knows(self, pixel_sha256: str, group: str) -> bool:
        """Return whether it was fitted on an image, or on another image of the same group (``group_of``)."""
        return pixel_sha256 in self.fitted_on or group_sha256(group) in self.fitted_on_groups

    def refuse_other(self, model_sha256: str, classes: tuple[str, ...], positive: str) -> None:
        """Raise ``UsvitError`` unless it was fitted on scores of this model."""
        if self.model_sha256 != model_sha256:
            raise UsvitError(
                f"{self.source} was fitted on scores of another model, or of other folds of the model (model_sha256 "
                f"{self.model_sha256[:12]}..., not {model_sha256[:12]}...). Run usvit recalibrate on scores of "
                "this model."
            )
        if set(self.classes) != set(classes) or self.positive != positive:
            raise UsvitError(
                f"{self.source} is of classes {', '.join(self.classes)} with '{self.positive}' as the positive one; "
                f"the model's are {', '.join(classes)} with '{positive}'."
            )


def group_of(patient_id: str, study_id: str, item_id: str) -> str:
    """Return the group of an image: its patient if known, else its study, else its file.

    Args:
        patient_id, study_id, item_id: pseudonyms; "" if there is none.

    Returns:
        For example ``patient:a123456789abcdef``.
    """
    return f"patient:{patient_id}" if patient_id else f"study:{study_id}" if study_id else f"file:{item_id}"


def group_sha256(group: str) -> str:
    """Return the hash under which a calibration stores a group."""
    return hashlib.sha256(group.encode()).hexdigest()


def scaled(prob: np.ndarray, temperature: float | None) -> np.ndarray:
    """Map (n, K) probabilities to softmax(log(prob) / temperature); unchanged if the temperature is None."""
    values = np.asarray(prob, dtype=np.float64)
    return values if temperature is None else softmax(log_prob(values) / temperature, axis=1)


def log_prob(prob: np.ndarray) -> np.ndarray:
    """Return the logarithms of (n, K) probabilities, with 0 replaced by ``rows.LOWEST_PROB``."""
    return np.log(np.maximum(np.asarray(prob, dtype=np.float64), LOWEST_PROB))


def read_calibration(path: Path) -> LocalCalibration:
    """Read a calibration that ``usvit recalibrate`` wrote.

    Raises:
        UsvitError: the file is missing, damaged, or of another version.
    """
    found = load_record(path, CalibrationRecord, "usvit recalibrate writes such a file.", follow=True)
    try:
        copies = _copies(found.fitted_on_copies)
    except (ValueError, UsvitError) as error:
        raise UsvitError(f"{path} is damaged: key fitted_on_copies: {error}. Copy the file again.") from error
    return LocalCalibration(
        model_sha256=found.model_sha256,
        positive=found.positive_class,
        classes=tuple(found.classes),
        temperature=found.temperature.value,
        thresholds=tuple(found.thresholds),
        of_units=found.unit_thresholds,
        conformal=found.conformal,
        n_images=found.n_images,
        n_groups=found.n_groups,
        fitted_on=frozenset(found.fitted_on_sha256),
        fitted_on_groups=frozenset(found.fitted_on_groups_sha256),
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
