"""What a planned study is expected to look like: from the user, or from the predictions of an existing run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from scipy.stats import norm, rankdata

from usvit.config.evaluation import UnitSettings
from usvit.config.fields import part
from usvit.config.planning import PatientSettings
from usvit.errors import UsvitError
from usvit.evaluation import at_units, first_repeat, open_predictions, rows_of, units_to_use
from usvit.metrics.area_interval import within_group_correlation
from usvit.metrics.basic import auc, decide
from usvit.metrics.calibration_statistics import calibration_line, log_odds
from usvit.metrics.checks import group_codes
from usvit.metrics.influence import LinearPredictor
from usvit.metrics.sample_size import shifted
from usvit.records import UnitRecord
from usvit.records.units import RowsOfUnit


@dataclass(frozen=True)
class ObservedRun(RowsOfUnit):
    """Test images, or units, of an existing run, whose predictions a plan takes as typical.

    Attributes:
        name: of the run or table.
        positive_class: name of the positive class.
        positive: (n,) bool.
        log_odds: (n,) of the positive class.
        called: (n,) bool, whether the most probable class is the positive one.
        code: (n,) int, the patient (or duplicate cluster) of each image.
        images: (n,) names, by which two runs are matched.
        unit: what a row is; None for an image.
    """

    name: str
    positive_class: str
    positive: np.ndarray
    log_odds: np.ndarray
    called: np.ndarray
    code: np.ndarray
    images: tuple[str, ...]
    unit: UnitRecord | None = None

    @property
    def prevalence(self) -> float:
        return float(self.positive.mean())

    @property
    def area(self) -> float:
        found = auc(self.positive, self.log_odds)
        assert found is not None  # both classes are present
        return found

    @property
    def correlation(self) -> float:
        """Correlation of the scores of two images of one patient and class."""
        return within_group_correlation(self.positive, self.log_odds, self.code)

    @property
    def sizes(self) -> np.ndarray:
        """Images of each patient."""
        return np.bincount(self.code)

    def predictor(self, prevalence: float) -> LinearPredictor:
        """Return the distribution of the log-odds, recalibrated on this run and moved to a prevalence.

        Raises:
            UsvitError: the run has no calibration line, or its probabilities do not rise with the positives.
        """
        line = calibration_line(self.positive, self.log_odds, self.code)
        slope, intercept = line.slope.value, line.intercept.value
        if slope is None or intercept is None or slope <= 0:
            why = line.slope.reason or "the slope is not above 0"
            raise UsvitError(
                f"{self.name} has no calibration line to plan from ({why}). Leave --like out, and give --auc and "
                "--prevalence."
            )
        moved = shifted(self.log_odds, (intercept, slope), self.prevalence, prevalence)
        says = f"the {len(moved)} test {self.row}s of {self.name}, recalibrated by its own line (slope {slope:.2f})"
        return LinearPredictor.observed(moved, self.positive, prevalence, says)


def observe(path: str | Path, settings: PatientSettings) -> ObservedRun:
    """Read the test images of a run or a predictions table, or their units.

    Raises:
        UsvitError: as ``open_predictions`` and ``units_of``; a class is absent.
    """
    found = open_predictions(Path(path), positive=settings.positive)
    found = at_units(found, units_to_use(found, part(settings, UnitSettings)))
    rows = rows_of(found.table, "test", found.classes)
    k = rows.index(found.positive)
    up = rows.label == k
    if up.all() or not up.any():
        raise UsvitError(f"{found.name}: its test images are of one class only, so nothing can be planned from them.")
    table = first_repeat(found.table)
    test = table[table["part"] == "test"]
    names = (test["dataset"].astype(str) + "/" + test["image_id"].astype(str)).tolist()
    return ObservedRun(
        name=found.name,
        positive_class=found.positive,
        positive=up,
        log_odds=log_odds(rows.scores, k),
        called=decide(rows.prob) == k,
        code=group_codes(rows.group, len(rows))[0],
        images=tuple(names),
        unit=found.unit,
    )


def score_correlation(first: ObservedRun, second: ObservedRun) -> float:
    """Compute the correlation of the normal scores of two models within classes.

    Raises:
        UsvitError: the runs have different test images or labels.
    """
    order = [np.argsort(np.array(run.images), kind="stable") for run in (first, second)]
    names = [np.array(run.images)[at] for run, at in zip((first, second), order, strict=True)]
    labels = [run.positive[at] for run, at in zip((first, second), order, strict=True)]
    if len(names[0]) != len(names[1]) or (names[0] != names[1]).any() or (labels[0] != labels[1]).any():
        raise UsvitError(
            f"{first.name} and {second.name} have different test images or labels, so the correlation of their scores "
            "is not known. Give two runs on the same images, or --auc, --auc-b and --correlation."
        )
    away = []
    for run, at in zip((first, second), order, strict=True):
        score = run.log_odds[at]
        normal = norm.ppf((rankdata(score) - 0.5) / len(score))
        means = [normal[labels[0] == side].mean() for side in (False, True)]
        away.append(normal - np.where(labels[0], means[1], means[0]))
    return float(np.corrcoef(*away)[0, 1])


@dataclass
class StudyClusters:
    """Images of the patients of the planned study, and how alike the scores of one patient are."""

    images: float
    variation: float
    icc: float
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, like: Sequence[ObservedRun], settings: PatientSettings) -> "StudyClusters":
        """Take each number from the user, else from the first run, else the default."""
        notes = []
        images, variation, icc = settings.images, settings.images_cv, settings.icc
        first = like[0] if like else None
        if first is None and not settings.of_images:
            raise UsvitError(
                f"--unit {settings.unit} says how a run is read: name one with --like. Without a run, state what you "
                f"expect of {settings.unit}s; --images is then their number in a patient."
            )
        if first is not None and (unit := first.unit) is not None:
            size = unit.images_per_unit
            notes.append(
                f"a row is one {unit.unit} of {size.least} to {size.most} images (median {size.median:g}) of "
                f"{first.name}, whose probabilities are pooled by {unit.pooling}"
            )
        if images is None:
            images = 1.0 if first is None else float(first.sizes.mean())
            if variation is None and first is not None:
                variation = float(first.sizes.std() / first.sizes.mean())
            if first is not None and images > 1:
                notes.append(f"{first.row}s per patient ({images:.2f}, CV {variation:.2f}) as in {first.name}")
        variation = 0.0 if variation is None else variation
        several = images > 1 or variation > 0
        if icc is None:
            if first is not None and int(first.sizes.max()) > 1:
                icc = first.correlation
                notes.append(f"correlation of the scores of a patient's {first.row}s ({icc:.2f}) as in {first.name}")
            else:
                icc = 1.0 if several else 0.0
                if several:
                    notes.append(
                        "no --icc was given, so further images of a patient are taken to add nothing; with a run that "
                        "has several images of a patient, --like estimates it"
                    )
        return cls(images, variation, icc, notes)


def share_of(
    value: float | None,
    option: str,
    like: ObservedRun | None,
    take: Callable[[ObservedRun], float],
    *,
    above: float = 0.0,
) -> float:
    """Return a share from the user, else from a run.

    Args:
        value: Share that the user gave, whose range the settings check.
        option: Its option, for the error.
        like: Run whose predictions are typical.
        take: Function that returns the share of a run.
        above: Smallest share of a run that can be planned from; it must be larger, and smaller than 1.

    Raises:
        UsvitError: Neither is given, or nothing can be planned from the share of the run.
    """
    if value is not None:
        return float(value)
    if like is None:
        raise UsvitError(
            f"{option} is missing: state what you expect, such as {option} {_EXAMPLES.get(option, '0.9')}, or name "
            "a run with --like whose predictions are typical."
        )
    value = take(like)
    if not above < value < 1:
        raise UsvitError(f"{option} is {value:g} in {like.name}, which no study can be planned from: give {option}.")
    return float(value)


def area_of(value: float | None, option: str, like: ObservedRun | None) -> float:
    """Return an AUC above 0.5 and below 1; otherwise as ``share_of``."""
    return share_of(value, option, like, lambda run: run.area, above=0.5)


_EXAMPLES = {"--prevalence": "0.3", "--auc": "0.9", "--auc-b": "0.85"}
