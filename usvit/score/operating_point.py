"""Where "positive" begins, and which images said so."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from usvit.errors import UsvitError
from usvit.metrics.predictions import read_predictions
from usvit.metrics.recalibration import Temperature
from usvit.metrics.rows import Rows, rows_of
from usvit.metrics.thresholds import Choice, Rule, choose_threshold
from usvit.models.trained import TrainedModel
from usvit.score.calibration import Calibration

_TARGET = re.compile(r"(sensitivity|specificity)\s*>=\s*(\S+)")


@dataclass(frozen=True)
class OperatingPoint:
    """A threshold on the calibrated probability of the positive class."""

    threshold: float | None
    origin: str
    """The rule and the images that it was applied to; ``none:`` and the reason where there is no threshold."""


def parse_rule(text: str) -> Rule:
    """``sensitivity>=0.9``, ``specificity>=0.95``, ``youden``, or a threshold in [0, 1], as a rule.

    Raises:
        UsvitError: it is none of these.
    """
    words = text.strip().lower()
    try:
        if words == "youden":
            return Rule("youden")
        if found := _TARGET.fullmatch(words):
            return Rule("sensitivity" if found[1] == "sensitivity" else "specificity", float(found[2]))
        value = float(words)
        if not 0 <= value <= 1:
            raise ValueError
        return Rule("fixed", value)
    except ValueError as error:
        raise UsvitError(
            f"There is no operating point '{text}'. Give 'sensitivity>=0.9' or 'specificity>=0.9' with a share above 0 "
            "and up to 1, 'youden', or a threshold from 0 to 1, such as 0.4."
        ) from error


def of_calibration(fit: Calibration, rule: Rule) -> OperatingPoint:
    """The one that a calibration on local images has for a rule."""
    if rule.kind == "fixed":
        return _fixed(rule)
    images = f"{fit.n_images} local images of {fit.n_groups} groups (usvit recalibrate)"
    for one in fit.thresholds:
        if one.rule == rule.name:
            return _point(Choice(one.threshold, one.reason), rule, images)
    has = ", ".join(one.rule for one in fit.thresholds) or "none"
    return _point(Choice(None, f"the calibration has no threshold for it (it has: {has})"), rule, images)


def of_member(trained: TrainedModel, folder: Path, fold: int, rule: Rule) -> OperatingPoint:
    """The one of a single network: its passport's, else from the inner validation rows that lie beside it."""
    if rule.kind == "fixed":
        return _fixed(rule)
    if (stated := trained.thresholds.get(rule.name)) is not None:
        images = f"{stated['n_images']} {stated['chosen_on']}"
        return _point(Choice(stated["threshold"], stated.get("reason")), rule, images)
    images = f"inner validation images of fold {fold}"
    if not (folder / "predictions.csv").is_file():
        reason = "neither model.json nor a predictions.csv beside it says where it lies"
        return _point(Choice(None, reason), rule, images)
    rows = rows_of_part(folder / "predictions.csv", "val", trained.classes)
    score = _calibrated(rows, {int(one): trained.temperature for one in np.unique(rows.fold)}, trained.positive)
    return _choose(rows, score, trained.positive, rule, f"{len(rows)} {images}")


def of_run(
    run: Path, temperatures: Mapping[int, float | None], classes: tuple[str, ...], positive: str, rule: Rule
) -> OperatingPoint:
    """The one of several networks of a run, on its out-of-fold test images.

    Each image is judged by the one network that has not seen it, not by the mean of them all, which no image that was
    trained on can judge. The mean's probabilities are less extreme, so its sensitivity differs a little.

    Args:
        run: its folder.
        temperatures: of the networks, by fold; images of other folds have no part.
        classes, positive: the networks'.
        rule: what is asked for.

    Raises:
        UsvitError: the run's predictions are damaged or of other classes.
    """
    if rule.kind == "fixed":
        return _fixed(rule)
    if not (run / "predictions.csv").is_file():
        return _point(Choice(None, "the run has no predictions.csv to choose it on"), rule, "")
    rows = rows_of_part(run / "predictions.csv", "test", classes)
    rows = rows[np.isin(rows.fold, list(temperatures))]
    images = f"{len(rows)} out-of-fold images (single networks, not the ensemble)"
    return _choose(rows, _calibrated(rows, temperatures, positive), positive, rule, images)


def rows_of_part(path: Path, part: str, classes: tuple[str, ...]) -> Rows:
    """The rows of one part of a fold's or run's predictions, in the order of the network's classes."""
    try:
        return rows_of(read_predictions(path), part, classes)
    except UsvitError as error:
        raise UsvitError(f"{path}: {error}") from error


def _calibrated(rows: Rows, temperatures: Mapping[int, float | None], positive: str) -> NDArray[np.float64]:
    """(n,) probability of the positive class, each row with its own fold's temperature."""
    log_prob = np.empty_like(rows.scores)
    for fold, temperature in temperatures.items():
        at = rows.fold == fold
        log_prob[at] = Temperature(temperature or 1.0).log_prob(rows.scores[at])
    return np.asarray(np.exp(log_prob[:, rows.index(positive)]))


def _choose(rows: Rows, score: NDArray[np.float64], positive: str, rule: Rule, images: str) -> OperatingPoint:
    if not len(rows):
        return _point(Choice(None, "there are no images to choose it on"), rule, images)
    return _point(choose_threshold(rows.label == rows.index(positive), score, rule), rule, images)


def _fixed(rule: Rule) -> OperatingPoint:
    return OperatingPoint(rule.target, f"fixed at {rule.target:g}")


def _point(choice: Choice, rule: Rule, images: str) -> OperatingPoint:
    if choice.threshold is None:
        return OperatingPoint(None, f"none: {rule.name}: {choice.reason}")
    return OperatingPoint(choice.threshold, f"{rule.name} on {images}")
