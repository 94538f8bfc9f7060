"""Figures of one left-out set: inside and outside, at the thresholds and calibration that training fixed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import logit, softmax

from usvit.estimate import Estimate
from usvit.evaluation import SiteImages, read_predictions, recalibration_draws, rows_of, size_problem
from usvit.metrics.calibration_statistics import LOWEST_PROB, calibration_line
from usvit.metrics.checks import group_codes
from usvit.metrics.clustered import clustered_auc
from usvit.metrics.fold_figures import FoldFigure, area_figure
from usvit.metrics.intervals import undefined
from usvit.metrics.prevalence import predictive_values
from usvit.metrics.proportions import clustered_share
from usvit.metrics.shift import (
    independent_change,
    mean_area_of_folds,
    mean_area_of_networks,
    observed_to_expected,
    paired_change,
)
from usvit.metrics.threshold_choice import Rule, outcome
from usvit.scoring import RunNetworks
from usvit.upstream.records.shift import (
    ShiftCell,
    ShiftChange,
    ShiftDeployed,
    ShiftPaired,
    ShiftRecalibration,
    ShiftRow,
    ShiftSide,
    ShiftSkipped,
    ShiftSpread,
)
from usvit.upstream.studies.shift.training import LeftOut

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
_KEYS = ("value", "ci95", "method", "reason", "warning", "n_groups", "p")


@dataclass(frozen=True)
class _DecidedRows:
    """n predictions of single networks: reference, probability and decision."""

    positive: Bools
    prob: Floats
    """(n,) probability of the positive class, before calibration."""
    calibrated: Floats
    """(n,) after it."""
    called: Bools | None
    """(n,) decisions; None if a network has no threshold."""
    group: NDArray[np.object_]


@dataclass(frozen=True)
class Judged:
    """Predictions of the networks of one training, on both sides."""

    left_out: LeftOut
    networks: RunNetworks
    held_out: _DecidedRows
    """Images of the sets that it was trained on, each by the network that did not see it."""
    fold: NDArray[np.int64]
    """(n,) fold of each held-out image."""
    held_out_set: NDArray[np.object_]
    """(n,) set of each held-out image."""
    held_out_key: list[tuple[str, str]]
    """(data set, id) of each held-out image."""
    label: NDArray[np.int64]
    """(m,) class of each image of the left-out set."""
    logits: Floats
    """(M, m, K) of M networks."""
    group: NDArray[np.object_]
    """(m,) group of each image of the left-out set."""
    key: list[tuple[str, str]]

    @property
    def positive(self) -> Bools:
        """(m,) whether an image of the left-out set is positive."""
        return np.asarray(self.label == self.networks.positive)

    @property
    def prob(self) -> Floats:
        """(M, m) probability of the positive class by each network, before calibration."""
        return np.asarray(softmax(self.logits, axis=2)[:, :, self.networks.positive])

    @property
    def calibrated(self) -> Floats:
        """(M, m) the same after the calibration of each network."""
        return np.stack([self.networks.calibrated(one, k) for k, one in enumerate(self.logits)])


def judge(left_out: LeftOut, networks: RunNetworks, logits: Floats, set_of: Mapping[tuple[str, str], str]) -> Judged:
    """Put the predictions of one training together.

    Args:
        left_out: the left-out set.
        networks: the networks of its training.
        logits: (M, m, K) predictions for the left-out set.
        set_of: (data set, id) of each image -> its set.
    """
    table = read_predictions(networks.run / "predictions.csv")
    test = table[table.part == "test"].reset_index(drop=True)
    rows = rows_of(table, "test", networks.classes)
    number = {fold: k for k, fold in enumerate(networks.folds)}
    calibrated, thresholds = np.empty(len(rows)), np.empty(len(rows))
    for fold, k in number.items():
        at = rows.fold == fold
        calibrated[at] = networks.calibrated(rows.scores[at], k)
        threshold = networks.own[k].threshold
        thresholds[at] = np.nan if threshold is None else threshold
    keys = list(zip(test.dataset, test.image_id, strict=True))
    target = left_out.target.usable
    return Judged(
        left_out,
        networks,
        _DecidedRows(
            rows.label == networks.positive,
            rows.prob[:, networks.positive],
            calibrated,
            None if np.isnan(thresholds).any() else calibrated >= thresholds,
            rows.group,
        ),
        rows.fold,
        np.array([set_of[key] for key in keys], dtype=object),
        keys,
        np.asarray(target.label.map({name: k for k, name in enumerate(networks.classes)}), dtype=np.int64),
        logits,
        target.group_id.to_numpy(object),
        list(zip(target.dataset, target.image_id, strict=True)),
    )


def _external_of(judged: Judged) -> _DecidedRows:
    """Return the predictions of all networks for the left-out set, one network after the other."""
    n = len(judged.networks.members)
    thresholds = [one.threshold for one in judged.networks.own]
    calibrated = judged.calibrated
    called = None
    if not any(one is None for one in thresholds):
        called = (calibrated >= np.array(thresholds, dtype=np.float64)[:, None]).ravel()
    return _DecidedRows(
        np.tile(judged.positive, n), judged.prob.ravel(), calibrated.ravel(), called, np.tile(judged.group, n)
    )


def row_of(
    judged: Judged, others: Sequence[Judged], *, prevalence: float, rule: Rule, sizes: Sequence[int], draws: int
) -> ShiftRow:
    """Return the entry of a left-out set in ``shift.json``.

    Args:
        judged: the training without the set.
        others: the other trainings, which contain it.
        prevalence: for predictive values.
        rule: the operating point.
        sizes: numbers of patients to recalibrate on.
        draws: draws of patients for each size.
    """
    external, held = _external_of(judged), judged.held_out
    inside = _side_of(held, lambda: mean_area_of_folds(held.positive, held.prob, held.group, judged.fold), prevalence)
    outside = _side_of(
        external, lambda: mean_area_of_networks(judged.positive, judged.prob, judged.group), prevalence, judged.group
    )
    joint = judged.networks.joint
    mean = judged.calibrated.mean(axis=0)
    deployed = _DecidedRows(
        judged.positive,
        mean,
        mean,
        None if joint.threshold is None else mean >= joint.threshold,
        judged.group,
    )
    paired, n_paired = _paired(judged, others)
    site = SiteImages(
        judged.label,
        softmax(judged.logits, axis=2).mean(axis=0),
        mean,
        joint.threshold,
        judged.group,
        judged.networks.positive,
    )
    recalibration, skipped = _recalibration(site, rule, sizes, draws, judged.left_out.run.seed)
    deployed_side = _side_of(deployed, lambda: clustered_auc(judged.positive, mean, judged.group), prevalence)
    return ShiftRow(
        left_out=judged.left_out.name,
        run=judged.left_out.run.id,
        trained_on=list(judged.left_out.trained_on),
        n_networks=len(judged.networks.members),
        internal=inside,
        external=outside,
        change=ShiftChange(
            auc=plain(independent_change(outside.auc, inside.auc)),
            sensitivity=plain(independent_change(outside.sensitivity, inside.sensitivity)),
            specificity=plain(independent_change(outside.specificity, inside.specificity)),
        ),
        paired=ShiftPaired(auc=plain(paired), n_images=n_paired),
        deployed=ShiftDeployed(**dict(deployed_side), threshold=joint.threshold, origin=joint.origin),
        recalibration=recalibration,
        skipped=skipped,
    )


def _side_of(
    rows: _DecidedRows, auc: Callable[[], Estimate], prevalence: float, images: NDArray[np.object_] | None = None
) -> ShiftSide:
    """Return the figures of one side.

    Args:
        rows: predictions; several networks on the same images stand one after the other.
        auc: computes the AUC.
        prevalence: for predictive values.
        images: groups of the images, if ``rows`` repeats them.
    """
    group = rows.group if images is None else images
    lacking = undefined("a network has no threshold by the rule", len(set(group)))
    sensitivity = specificity = ppv = npv = lacking
    if rows.called is not None:
        judged = outcome(rows.positive, rows.called, rows.group, interval=clustered_share)
        sensitivity, specificity = judged.sensitivity, judged.specificity
        values = predictive_values(rows.positive, rows.called, rows.group, prevalence)
        ppv, npv = values.ppv, values.npv
    odds = logit(np.clip(rows.calibrated, LOWEST_PROB, 1 - LOWEST_PROB))
    return ShiftSide(
        n_images=len(group),
        n_groups=len(set(group)),
        auc=plain(auc()),
        sensitivity=plain(sensitivity),
        specificity=plain(specificity),
        slope=plain(calibration_line(rows.positive, odds, rows.group).slope),
        observed_expected=plain(observed_to_expected(rows.positive, rows.calibrated, rows.group)),
        ppv=plain(ppv),
        npv=plain(npv),
    )


def cells_of(judged: Judged, names: Sequence[str]) -> list[ShiftCell]:
    """Return the row of the matrix: the AUC of one training's networks on each set."""
    cells = []
    for name in names:
        external = name == judged.left_out.name
        if external:
            value, group = mean_area_of_networks(judged.positive, judged.prob, judged.group), judged.group
        else:
            at, held = judged.held_out_set == name, judged.held_out
            group = held.group[at]
            value = mean_area_of_folds(held.positive[at], held.prob[at], group, judged.fold[at])
        cells.append(
            ShiftCell(
                left_out=judged.left_out.name,
                tested=name,
                external=external,
                n_images=len(group),
                n_groups=len(set(group)),
                auc=plain(value),
            )
        )
    return cells


def _paired(judged: Judged, others: Sequence[Judged]) -> tuple[Estimate, int]:
    """Compare networks without the set with those that contain it, on the images that the latter held out."""
    code, n_groups = group_codes(judged.group, len(judged.key))
    place = {key: k for k, key in enumerate(judged.key)}
    prob = judged.prob
    number = {fold: k for k, fold in enumerate(judged.networks.folds)}
    repeats: list[list[tuple[FoldFigure | None, FoldFigure | None]]] = []
    n_images = 0
    for other in others:
        folds: list[tuple[FoldFigure | None, FoldFigure | None]] = []
        for fold in np.unique(other.fold):
            rows = np.flatnonzero((other.held_out_set == judged.left_out.name) & (other.fold == fold))
            if not len(rows) or int(fold) not in number:
                continue
            at = np.array([place[other.held_out_key[row]] for row in rows])
            a = area_figure(judged.positive[at], prob[number[int(fold)], at], code[at], n_groups)
            b = area_figure(judged.positive[at], other.held_out.prob[rows], code[at], n_groups)
            folds.append((a, b))
        repeats.append(folds)
        n_images = max(n_images, int((other.held_out_set == judged.left_out.name).sum()))
    without, within = ([[pair[k] for pair in folds] for folds in repeats] for k in (0, 1))
    return paired_change(without, within, n_groups), n_images


def _recalibration(
    site: SiteImages, rule: Rule, sizes: Sequence[int], draws: int, seed: int
) -> tuple[list[ShiftRecalibration], list[ShiftSkipped]]:
    n_groups = len(set(site.group))
    done, skipped = [], []
    for size in sizes:
        if (reason := size_problem(size, n_groups)) is not None:
            skipped.append(ShiftSkipped(n_patients=size, reason=reason))
            continue
        for one in recalibration_draws(site, size, rule, draws=draws, seed=seed):
            figures = {
                name: ShiftSpread(
                    median=found.median,
                    interval=None if found.low is None or found.high is None else (found.low, found.high),
                    n_draws=found.n_draws,
                )
                for name, found in one.figures.items()
            }
            done.append(
                ShiftRecalibration(
                    n_patients=one.n_patients,
                    fitted=one.fitted,
                    n_draws=one.n_draws,
                    n_one_sided=one.n_one_sided,
                    n_unfitted=one.n_unfitted,
                    **figures,
                )
            )
    return done, skipped


def plain(value: Estimate) -> Estimate:
    """Return the keys of an estimate that ``shift.json`` has."""
    return Estimate(
        **{name: one for name in _KEYS if (one := getattr(value, name)) is not None or name in ("value", "ci95")}
    )


def set_by_key(table: pd.DataFrame) -> dict[tuple[str, str], str]:
    """Return (data set, id) of each image -> its set."""
    return dict(zip(zip(table.dataset, table.image_id, strict=True), table.set, strict=True))
