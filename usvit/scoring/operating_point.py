"""The threshold from which an image counts as positive, and the images on which it was chosen."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from usvit.config.evaluation import UnitSettings
from usvit.errors import UsvitError
from usvit.evaluation import (
    IMAGES,
    Rows,
    Temperature,
    calibrated_units,
    identified,
    read_predictions,
    rows_of,
    settings_of,
)
from usvit.metrics.ensemble_scores import mean_scores
from usvit.metrics.threshold_choice import Choice, Rule, choose_threshold
from usvit.records import FittedThreshold
from usvit.scoring.calibration import LocalCalibration

if TYPE_CHECKING:  # it imports PyTorch, which a process that only checks a rule does not need
    from usvit.scoring.ensemble_members import FoldModel

_TARGET = re.compile(r"(sensitivity|specificity)\s*>=\s*(\S+)")


@dataclass(frozen=True)
class ScoringThreshold:
    """A threshold on the calibrated probability of the positive class."""

    threshold: float | None
    origin: str
    """The rule and the images on which it was chosen; ``none:`` and the reason if there is no threshold."""


@dataclass(frozen=True)
class UnitPoint:
    """The threshold on the pooled calibrated probability of a unit, such as a patient."""

    unit: str
    pooling: str
    point: ScoringThreshold


def parse_rule(text: str) -> Rule:
    """Parse ``sensitivity>=0.9``, ``specificity>=0.95``, ``youden``, or a threshold in [0, 1].

    Raises:
        UsvitError: the text is none of these.
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
            f"Unknown operating point '{text}'. Pass 'sensitivity>=0.9' or 'specificity>=0.9' with a value above 0 and "
            "up to 1, 'youden', or a threshold from 0 to 1, such as 0.4."
        ) from error


def of_calibration(fit: LocalCalibration, rule: Rule) -> ScoringThreshold:
    """Return the threshold that a calibration on local images holds for a rule."""
    if rule.kind == "fixed":
        return _fixed(rule)
    return _of_fit(fit.thresholds, rule, f"{fit.n_images} local images of {fit.n_groups} groups")


def units_of_calibration(fit: LocalCalibration, rule: Rule) -> UnitPoint | None:
    """Return the threshold of the unit that a calibration was fitted for; None if it has none."""
    if fit.of_units is None:
        return None
    units = fit.of_units.units
    if rule.kind == "fixed":
        return _fixed_of_unit(units.unit, units.pooling, rule)
    point = _of_fit(fit.of_units.thresholds, rule, f"{units.n_units} local {units.unit}s of {fit.n_groups} groups")
    return UnitPoint(units.unit, units.pooling, point)


def _of_fit(thresholds: Sequence[FittedThreshold], rule: Rule, rows: str) -> ScoringThreshold:
    rows += " (usvit recalibrate)"
    for one in thresholds:
        if one.rule == rule.name:
            return _point(Choice(one.threshold, one.reason), rule, rows)
    has = ", ".join(one.rule for one in thresholds) or "none"
    return _point(Choice(None, f"the calibration has no threshold for it (it has: {has})"), rule, rows)


def of_fold(model: "FoldModel", classes: tuple[str, ...], positive: str, rule: Rule) -> ScoringThreshold:
    """Return the threshold of a single network, or of one fold of an ensemble.

    It is read from its record, or else chosen on the inner validation rows of its ``predictions.csv``.
    """
    if rule.kind == "fixed":
        return _fixed(rule)
    if (stated := model.thresholds.get(rule.name)) is not None:
        images = f"{stated.n_images} {stated.chosen_on}"
        return _point(Choice(stated.threshold, stated.reason), rule, images)
    images = f"inner validation images of fold {model.fold}"
    if not (model.folder / "predictions.csv").is_file():
        reason = "neither model.json nor a predictions.csv beside it says where it lies"
        return _point(Choice(None, reason), rule, images)
    rows = _rows_of_part(model.folder / "predictions.csv", "val", classes)
    score = _calibrated(rows, {int(one): model.temperature for one in np.unique(rows.fold)}, positive)
    return _choose(rows, score, positive, rule, f"{len(rows)} {images}")


def of_unit(
    run: Path, models: Sequence["FoldModel"], classes: tuple[str, ...], positive: str, rule: Rule
) -> UnitPoint | None:
    """Return the threshold of the unit of a run, or of an ensemble of runs; None if it has none.

    That of several networks is chosen as in ``of_run``, on units instead of images.
    """
    stated = [model.of_units for model in models]
    first = stated[0]
    if first is None or not all(stated):
        return None
    units = settings_of(first.units)
    if rule.kind == "fixed":
        return _fixed_of_unit(str(units.unit), units.pooling, rule)
    if len(models) == 1:
        found = {one.rule: one for one in first.thresholds}.get(rule.name)
        absent = f"model.json has no threshold of {units.unit}s for it"
        choice = Choice(None, absent) if found is None else Choice(found.threshold, found.reason)
        point = _point(choice, rule, "" if found is None else f"{found.n_images} {found.chosen_on}")
    else:
        temperatures = {model.fold: model.temperature for model in models}
        what = "folds of the ensemble" if models[0].of_ensemble else "networks"
        point = of_run(run, temperatures, classes, positive, rule, what, units)
    return UnitPoint(str(units.unit), units.pooling, point)


def of_several_runs(n_runs: int, rule: Rule) -> ScoringThreshold:
    """Return the threshold of the networks of several runs, which exists only if it is a number.

    A threshold of one of the runs belongs to its own mean. The mean over the runs has less spread, so that the
    threshold would miss its target there.
    """
    if rule.kind == "fixed":
        return _fixed(rule)
    reason = (
        f"the thresholds of the {n_runs} models belong to each of them, not to their mean. Runs with the same folds: "
        "usvit ensemble chooses one for the mean. Others: pass a number, or --calibration of usvit recalibrate"
    )
    return _point(Choice(None, reason), rule, "")


def of_run(
    run: Path,
    temperatures: Mapping[int, float | None],
    classes: tuple[str, ...],
    positive: str,
    rule: Rule,
    what: str = "networks",
    units: UnitSettings = IMAGES,
) -> ScoringThreshold:
    """Return the threshold of the mean of several networks of a run.

    No image is new to all networks of a cross-validation. The rule is therefore applied to draws of their mean score on
    new images (``metrics.ensemble_scores``), which are made from the scores of each network on its test images and from
    the correlation of the scores of two networks on images that neither was trained on. If too few such images are
    recorded, the threshold is that of single networks on their test images, and ``origin`` contains a warning: their
    scores are more extreme, so that the mean exceeds the target, at the cost of the other figure.

    Args:
        run: folder of the run.
        temperatures: temperature of each network, by fold; images of other folds are not used.
        classes, positive: classes of the networks, and the positive one.
        rule: the rule to apply.
        what: what is averaged, for ``origin``.
        units: what the threshold decides: images, or units with the pooled probability of their images.

    Raises:
        UsvitError: the predictions of the run are damaged or have other classes.
    """
    if rule.kind == "fixed":
        return _fixed(rule)
    tables = {fold: _table_of(run, fold) for fold in sorted(temperatures)}
    if not all(path.is_file() for path in tables.values()):
        return _point(Choice(None, "the run has no predictions.csv to choose it on"), rule, "")
    found = _unseen_scores(tables, temperatures, classes, positive, units)
    row = units.unit or "image"
    drawn = mean_scores(found.tested, found.validated, found.positive)
    if isinstance(drawn, str):
        at = ~np.isnan(found.tested)
        images = (
            f"{int(at.sum())} out-of-fold {row}s of single networks, not of their mean, which exceeds the target "
            f"({drawn}): usvit recalibrate chooses it on the mean"
        )
        reference = np.broadcast_to(found.positive[:, None], at.shape)[at]
        return _point(choose_threshold(reference, found.tested[at], rule), rule, images)
    scores = np.concatenate([drawn.positive, drawn.negative])
    choice = choose_threshold(np.arange(len(scores)) < len(drawn.positive), scores, rule)
    up, down = drawn.correlation
    images = (
        f"{int((~np.isnan(found.tested)).sum())} out-of-fold {row}s, for the mean of {len(temperatures)} {what} "
        f"(correlated by {up:.2f} and {down:.2f})"
    )
    return _point(choice, rule, images)


@dataclass(frozen=True)
class _Unseen:
    """Calibrated probabilities of the positive class of n images, from K networks that were not trained on them."""

    tested: NDArray[np.float64]
    """(n, K); NaN where the image is not in the test split of the network."""
    validated: NDArray[np.float64]
    """(n, K); NaN where the image is not in the inner validation split of the network."""
    positive: NDArray[np.bool_]
    """(n,)"""


def _table_of(run: Path, fold: int) -> Path:
    """Return the predictions of a fold, which include inner validation images; else those of the run."""
    own = run / f"fold-{fold}" / "predictions.csv"
    return own if own.is_file() else run / "predictions.csv"


def _unseen_scores(
    tables: Mapping[int, Path],
    temperatures: Mapping[int, float | None],
    classes: tuple[str, ...],
    positive: str,
    units: UnitSettings,
) -> _Unseen:
    tested: list[dict[tuple[str, str], float]] = []  # by network: image -> calibrated probability
    validated: list[dict[tuple[str, str], float]] = []
    reference: dict[tuple[str, str], bool] = {}
    for fold, path in tables.items():
        try:
            table = read_predictions(path)
            # One network at a time, so that each image occurs once even in a repeated cross-validation.
            table = table[table["fold"] == fold].drop(columns="repeat", errors="ignore")
            for part, into in (("test", tested), ("val", validated)):
                own = table[table["part"] == part]
                if own.empty:
                    into.append({})
                    continue
                if not units.of_images:
                    if not identified(own, units).any():
                        into.append({})
                        continue
                    own, _ = calibrated_units(own, units, positive, temperatures[fold])
                    images = list(zip(own["dataset"], own["image_id"], strict=True))
                    into.append(dict(zip(images, own[f"prob_{positive}"].tolist(), strict=True)))
                    reference |= zip(images, (own["label"] == positive).tolist(), strict=True)
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


def _rows_of_part(path: Path, part: str, classes: tuple[str, ...]) -> Rows:
    """Return the rows of one split of the predictions, with the classes in the order of the network."""
    try:
        return rows_of(read_predictions(path), part, classes)
    except UsvitError as error:
        raise UsvitError(f"{path}: {error}") from error


def _calibrated(rows: Rows, temperatures: Mapping[int, float | None], positive: str) -> NDArray[np.float64]:
    """Return the (n,) probability of the positive class, with the temperature of the fold of each row."""
    log_prob = np.empty_like(rows.scores)
    for fold, temperature in temperatures.items():
        at = rows.fold == fold
        log_prob[at] = Temperature(temperature or 1.0).log_prob(rows.scores[at])
    return np.asarray(np.exp(log_prob[:, rows.index(positive)]))


def _choose(rows: Rows, score: NDArray[np.float64], positive: str, rule: Rule, images: str) -> ScoringThreshold:
    if not len(rows):
        return _point(Choice(None, "there are no images to choose it on"), rule, images)
    return _point(choose_threshold(rows.label == rows.index(positive), score, rule), rule, images)


def _fixed_of_unit(unit: str, pooling: str, rule: Rule) -> UnitPoint | None:
    """Return a threshold that is a number, which holds for every row: it is a unit's own only with its own pooling."""
    return None if pooling in ("mean", "max") else UnitPoint(unit, pooling, _fixed(rule))


def _fixed(rule: Rule) -> ScoringThreshold:
    return ScoringThreshold(rule.target, f"fixed at {rule.target:g}")


def _point(choice: Choice, rule: Rule, images: str) -> ScoringThreshold:
    if choice.threshold is None:
        return ScoringThreshold(None, f"none: {rule.name}: {choice.reason}")
    return ScoringThreshold(choice.threshold, f"{rule.name} on {images}")
