"""Where "positive" begins, and which images said so."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from usvit.errors import UsvitError
from usvit.metrics.ensemble_scores import mean_scores
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
    """The one of the mean of several networks of a run.

    No image is new to all networks of a cross-validation. So the rule is applied to draws of their mean score on new
    images (``metrics.ensemble_scores``), made from each network's scores of its test images and from the correlation of
    two networks' scores of images that neither was trained on. Where too few such images are recorded, the threshold is
    that of single networks on their test images, and ``origin`` warns of it: their scores are more extreme, so that the
    mean exceeds the target, at the cost of the other figure.

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
    tables = {fold: _table_of(run, fold) for fold in sorted(temperatures)}
    if not all(path.is_file() for path in tables.values()):
        return _point(Choice(None, "the run has no predictions.csv to choose it on"), rule, "")
    found = _unseen_scores(tables, temperatures, classes, positive)
    drawn = mean_scores(found.tested, found.validated, found.positive)
    if isinstance(drawn, str):
        at = ~np.isnan(found.tested)
        images = (
            f"{int(at.sum())} out-of-fold images of single networks, not of their mean, which exceeds the target "
            f"({drawn}): usvit recalibrate chooses it on the mean"
        )
        reference = np.broadcast_to(found.positive[:, None], at.shape)[at]
        return _point(choose_threshold(reference, found.tested[at], rule), rule, images)
    scores = np.concatenate([drawn.positive, drawn.negative])
    choice = choose_threshold(np.arange(len(scores)) < len(drawn.positive), scores, rule)
    up, down = drawn.correlation
    images = (
        f"{int((~np.isnan(found.tested)).sum())} out-of-fold images, for the mean of {len(temperatures)} networks "
        f"(correlated by {up:.2f} and {down:.2f})"
    )
    return _point(choice, rule, images)


@dataclass(frozen=True)
class _Unseen:
    """Calibrated probabilities of the positive class, of n images by the K networks that were not trained on them."""

    tested: NDArray[np.float64]
    """(n, K); NaN where the image is not of the network's test part."""
    validated: NDArray[np.float64]
    """(n, K); NaN where it is not of its inner validation part."""
    positive: NDArray[np.bool_]
    """(n,)"""


def _table_of(run: Path, fold: int) -> Path:
    """A network's predictions, inner validation images included; the run's own table, if that is all that was kept."""
    own = run / f"fold-{fold}" / "predictions.csv"
    return own if own.is_file() else run / "predictions.csv"


def _unseen_scores(
    tables: Mapping[int, Path], temperatures: Mapping[int, float | None], classes: tuple[str, ...], positive: str
) -> _Unseen:
    tested, validated = [], []  # by network: image -> calibrated probability
    reference: dict[tuple[str, str], bool] = {}
    for fold, path in tables.items():
        try:
            table = read_predictions(path)
            # One network at a time, so that each image is there once, also in a repeated cross-validation.
            table = table[table["fold"] == fold].drop(columns="repeat", errors="ignore")
            for part, into in (("test", tested), ("val", validated)):
                own = table[table["part"] == part]
                if own.empty:
                    into.append({})
                    continue
                rows = rows_of(table, part, classes)
                images = list(zip(own["dataset"], own["image_id"], strict=True))
                into.append(dict(zip(images, _calibrated(rows, {fold: temperatures[fold]}, positive), strict=True)))
                reference |= zip(images, (rows.label == rows.index(positive)).tolist(), strict=True)
        except UsvitError as error:
            raise UsvitError(f"{path}: {error}") from error

    def table_of(parts: list[dict[tuple[str, str], float]]) -> NDArray[np.float64]:
        return np.array([[part.get(image, np.nan) for part in parts] for image in reference]).reshape(-1, len(parts))

    return _Unseen(table_of(tested), table_of(validated), np.array(list(reference.values()), dtype=bool))


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
