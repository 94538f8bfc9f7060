"""Refit temperature and thresholds of a frozen model on local labels, and report how uncertain they are."""

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import usvit
from usvit.config.evaluation import LabelTable, ScoredUnitSettings
from usvit.config.keywords import takes_settings
from usvit.data.splits import described_among, joined
from usvit.errors import UsvitError
from usvit.estimate import Estimate
from usvit.evaluation import NoFit, fit_temperature
from usvit.metrics.bootstrap import MAX_UNDEFINED
from usvit.metrics.checks import group_codes
from usvit.metrics.intervals import ALPHA, Interval, wilson
from usvit.metrics.proportions import clustered_share
from usvit.metrics.threshold_choice import RULES, Rule, choose_threshold, outcome
from usvit.records import (
    CalibrationRecord,
    ConformalFit,
    CorrectedShare,
    FittedTemperature,
    FittedThreshold,
    FittedUnits,
    save_record,
)
from usvit.scoring.calibration import group_sha256, log_prob, scaled
from usvit.scoring.external.counting import pooled_by, predictions_of
from usvit.scoring.external.evaluation import ENOUGH
from usvit.scoring.external.labels import join_labels
from usvit.scoring.external.leakage import seen_check, without_seen
from usvit.scoring.external.local_sets import check_alpha, fit_sets
from usvit.scoring.external.patients import with_patients
from usvit.scoring.external.scored_set import read_scored_set

N_RESAMPLES = 1000
"""Number of bootstrap resamples, each with a fit; 25 of 1,000 lie beyond either bound."""


@dataclass(frozen=True)
class Resamples:
    """Results of refitting on resampled patients, for B resamples and R rules."""

    temperature: np.ndarray
    """(B,), NaN if there is no fit."""
    threshold: np.ndarray
    """(B, R), NaN if there is no threshold."""
    optimism: np.ndarray
    """(B, R, 2): sensitivity and specificity in the resample minus those of the same threshold on all images."""


@dataclass(frozen=True)
class LabelledImages:
    """n labelled images in G groups."""

    label: np.ndarray
    """(n,) int, index of the reference class."""
    prob: np.ndarray
    """(n, K) mean probabilities of the ensemble."""
    group: np.ndarray
    """(n,) str."""
    positive: int

    @property
    def reference(self) -> np.ndarray:
        """(n,) bool."""
        return self.label == self.positive


@dataclass(frozen=True)
class LabelledRows:
    """m labelled rows that thresholds decide: images, or units with the pooled probability of their images."""

    reference: np.ndarray
    """(m,) bool, whether the row is positive."""
    group: np.ndarray
    """(m,) str; a unit lies in one group."""
    pool: Callable[[np.ndarray], np.ndarray]
    """Probabilities (n, K) of the images -> (m,) of the positive class of the rows."""

    @classmethod
    def of_images(cls, images: LabelledImages) -> "LabelledRows":
        return cls(images.reference, images.group, lambda prob: prob[:, images.positive])


@dataclass(frozen=True)
class _LocalFit:
    """The parts of calibration.json that are fitted."""

    temperature: FittedTemperature
    thresholds: list[FittedThreshold]
    of_units: list[FittedThreshold]
    """Thresholds of the units; empty without units."""
    conformal: ConformalFit
    positive_groups: int
    negative_groups: int
    said: list[str]


@takes_settings
def recalibrate(
    folder: str | Path,
    labels: str | Path | LabelTable,
    settings: ScoredUnitSettings,
    *,
    out: str | Path,
    drop_seen: bool = False,
    rules: Sequence[Rule] = RULES,
    alpha: float | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> CalibrationRecord:
    """Fit a temperature, thresholds and conformal sets on the labelled images of a scored set.

    The model is not changed. The temperature scales the logarithm of the mean probabilities of the ensemble. Thresholds
    and sets are chosen on the scaled probability of the positive class. With a unit other than the image, thresholds
    are also chosen on units, from the pooled scaled probabilities of their images. The temperature is that of images,
    because ``usvit score`` pools calibrated probabilities; the guarantee of the sets covers means and maxima of images.

    Args:
        folder: folder that ``usvit score`` wrote.
        labels: the reference classes: a table with a column ``label``, or a ``LabelTable`` that names its columns.
        settings: see ``ScoredUnitSettings``.
        out: JSON file to write (docs/reference/calibration.schema.json).
        drop_seen: leave out groups that the model has seen, instead of raising ``LeakageError``.
        rules: the operating points.
        alpha: share of new patients of a class whom the conformal sets may miss; None: 0.1, and no sets if there are
            too few patients.
        n_resamples, seed: number of resamples and seed of the bootstrap over patients.

    Returns:
        The content of the file.

    Raises:
        UsvitError: see ``read_scored_set``, ``join_labels`` and ``predictions_of``; or all labels are of one class,
            ``alpha`` needs more patients than there are, or ``out`` exists.
        LeakageError: the model was trained on these images, so that it would look better calibrated than it is.

    Example:
        >>> import usvit
        >>> usvit.recalibrate("scores", "labels.csv", out="calibration.json").n_images  # doctest: +SKIP
        120
    """
    folder, out = Path(folder), Path(out)
    labels = labels if isinstance(labels, LabelTable) else LabelTable(Path(labels))
    if out.is_dir():
        raise UsvitError(f"--out {out} is a folder. Pass a file, such as {out / 'calibration.json'}.")
    if out.exists():
        raise UsvitError(f"--out {out} exists. Nothing was changed. Choose another name, or remove the file first.")
    if alpha is not None:
        check_alpha(alpha)
    scored = with_patients(read_scored_set(folder), labels)
    labelled = join_labels(scored, labels)
    rows, dropped = without_seen(scored, labelled, None, drop=drop_seen, use="refit")
    index = {name: k for k, name in enumerate(scored.classes)}
    images = LabelledImages(
        rows["label"].map(index).to_numpy(np.int64),
        rows[[f"prob_{name}" for name in scored.classes]].to_numpy(np.float64),
        rows["group_id"].to_numpy(object),
        index[scored.positive],
    )
    who = "patients" if (rows["patient_id"] != "").all() else "groups"
    table, said, unit = predictions_of(rows, scored, settings.unit, settings.pooling, [])
    units = None
    if unit is not None:
        reference, group = (table["label"] == scored.positive).to_numpy(), table["group_id"].to_numpy(object)
        pool, k = pooled_by(rows, scored, settings.unit, settings.pooling), images.positive
        units = LabelledRows(reference, group, lambda prob: pool(prob)[:, k])
    fitted = fit(images, scored.positive, units, who=who, rules=rules, alpha=alpha, n_resamples=n_resamples, seed=seed)
    own, _ = described_among(scored.descriptions, sorted(set(rows["pixel_sha256"])))
    record = CalibrationRecord(
        model_sha256=scored.model_sha256,
        positive_class=scored.positive,
        classes=list(scored.classes),
        temperature=fitted.temperature,
        thresholds=fitted.thresholds,
        unit_thresholds=None if unit is None else FittedUnits(units=unit, thresholds=fitted.of_units),
        conformal=fitted.conformal,
        n_images=len(images.label),
        n_groups=len(set(images.group.tolist())),
        positive_groups=fitted.positive_groups,
        negative_groups=fitted.negative_groups,
        said=[*labelled.said, *said, *fitted.said],
        class_counts={name: int((images.label == k).sum()) for name, k in index.items()},
        n_seen_images_left_out=len(dropped),
        fitted_on_sha256=sorted(set(rows["pixel_sha256"])),
        fitted_on_copies=base64.b64encode(joined(own).to_bytes()).decode(),
        seen=seen_check(scored, rows, None),
        fitted_on_groups_sha256=sorted({group_sha256(one) for one in rows["group_id"]}),
        created_with=f"usvit {usvit.__version__}",
    )
    save_record(out, record)
    return record


def fit(
    images: LabelledImages,
    positive: str,
    units: LabelledRows | None = None,
    *,
    who: str = "patients",
    rules: Sequence[Rule] = RULES,
    alpha: float | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> _LocalFit:
    """Fit temperature and thresholds, with intervals, and conformal sets.

    Args:
        images: images of at least two groups, of the positive class and of another one.
        positive: name of the positive class.
        units: units of these images, on which thresholds are chosen, too; None for images alone.
        who: word for the groups in the messages.
        alpha: see ``recalibrate``.

    Returns:
        Parts of calibration.json, whose sentences are about the units, if there are any. Intervals of temperature and
        thresholds are percentiles over resampled groups. Sensitivity and specificity have the interval of a proportion
        at a fixed threshold, and ``corrected``: the value minus the optimism of choosing and evaluating the threshold
        on the same images.

    Raises:
        UsvitError: there are no images of the positive class, or only such images, or too few patients for ``alpha``.

    Source: Harrell, Lee & Mark (1996), Statistics in Medicine 15:361 (optimism by bootstrap); Guo et al. (2017).
    """
    rows = LabelledRows.of_images(images)
    for own, what in ((rows, "images"), (units, "units")):
        if own is not None and (own.reference.all() or not own.reference.any()):
            kind = f"of class '{positive}'" if own.reference.all() else f"of another class than '{positive}'"
            raise UsvitError(
                f"All {len(own.reference)} labelled {what} are {kind}: neither a temperature nor a threshold can be "
                f"fitted on one side alone. Label {what} of both kinds."
            )
    temperature, reason = _temperature(images.label, log_prob(images.prob))
    score = scaled(images.prob, temperature)
    sets = fit_sets(rows.reference, rows.pool(score), images.group, positive=positive, alpha=alpha, who=who)
    drawn = resample(images, rules, n_resamples=n_resamples, seed=seed)
    thresholds, of_units = _fitted(rows, rules, score, drawn), []
    if units is not None:
        of_units = _fitted(units, rules, score, resample(images, rules, units, n_resamples=n_resamples, seed=seed))
    sides = _sides(rows)
    return _LocalFit(
        temperature=FittedTemperature(
            value=temperature,
            ci95=None if temperature is None else _percentiles(drawn.temperature),
            reason=reason,
        ),
        thresholds=thresholds,
        of_units=of_units,
        conformal=sets,
        positive_groups=sides["positive"],
        negative_groups=sides["negative"],
        said=_sentences(of_units or thresholds, rules, _sides(units or rows), positive, who),
    )


def _sides(rows: LabelledRows) -> dict[str, int]:
    """Return the numbers of groups with a positive and with a negative row."""
    sides = {"positive": rows.reference, "negative": ~rows.reference}
    return {name: len(set(rows.group[at].tolist())) for name, at in sides.items()}


def _fitted(rows: LabelledRows, rules: Sequence[Rule], prob: np.ndarray, drawn: Resamples) -> list[FittedThreshold]:
    """Choose the threshold of each rule; ``prob`` (n, K) are the calibrated probabilities of the images."""
    entries, score = [], rows.pool(prob)
    for r, rule in enumerate(rules):
        choice = choose_threshold(rows.reference, score, rule)
        ci95, figures = None, {}
        if choice.threshold is not None:
            if rule.kind != "fixed":
                ci95 = _percentiles(drawn.threshold[:, r])
            judged = outcome(rows.reference, score >= choice.threshold, rows.group, interval=clustered_share)
            figures = {
                name: CorrectedShare.of(figure, corrected=_corrected(figure, drawn.optimism[:, r, k]))
                for k, (name, figure) in enumerate(
                    {"sensitivity": judged.sensitivity, "specificity": judged.specificity}.items()
                )
            }
        entries.append(
            FittedThreshold(rule=rule.name, threshold=choice.threshold, ci95=ci95, reason=choice.reason, **figures)
        )
    return entries


def resample(
    images: LabelledImages, rules: Sequence[Rule], units: LabelledRows | None = None, *, n_resamples: int, seed: int
) -> Resamples:
    """Fit temperature and thresholds on groups drawn with replacement; the thresholds on units, if there are any."""
    rows, logs = units or LabelledRows.of_images(images), log_prob(images.prob)
    reference, n = rows.reference, len(images.label)
    code, n_groups = group_codes(np.concatenate([images.group, rows.group]), n + len(reference))
    rng = np.random.default_rng(seed)
    temperature = np.full(n_resamples, np.nan)
    threshold = np.full((n_resamples, len(rules)), np.nan)
    optimism = np.full((n_resamples, len(rules), 2), np.nan)
    for b in range(n_resamples):
        counts = np.bincount(rng.integers(0, n_groups, n_groups), minlength=n_groups)
        drawn = np.repeat(np.arange(n), counts[code[:n]])
        inside = np.repeat(np.arange(len(reference)), counts[code[n:]])
        own = reference[inside]
        if own.all() or not own.any():
            continue
        value, _ = _temperature(images.label[drawn], logs[drawn])
        temperature[b] = np.nan if value is None else value
        score = rows.pool(scaled(images.prob, value))
        for r, rule in enumerate(rules):
            choice = choose_threshold(own, score[inside], rule)
            if choice.threshold is None:
                continue
            called = score >= choice.threshold
            threshold[b, r] = choice.threshold
            optimism[b, r, 0] = called[inside][own].mean() - called[reference].mean()
            optimism[b, r, 1] = (~called[inside][~own]).mean() - (~called[~reference]).mean()
    return Resamples(temperature, threshold, optimism)


def more_groups(value: float, n: int) -> int:
    """Return how many groups, in addition to n, would halve the Wilson interval of a proportion of this value."""

    def width(cases: int) -> float:
        low, high = wilson(round(value * cases), cases) or (0.0, 1.0)
        return high - low

    goal, least, most = width(n) / 2, n, 8 * n + 64
    while least + 1 < most:  # the width falls with n but for the rounding of the successes
        middle = (least + most) // 2
        least, most = (least, middle) if width(middle) <= goal else (middle, most)
    return most - n


def _temperature(label: np.ndarray, logs: np.ndarray) -> tuple[float | None, str | None]:
    """Return the temperature and None, or None and the reason; ``logs`` come from ``log_prob``."""
    fitted = fit_temperature(label, logs)
    return (None, fitted.reason) if isinstance(fitted, NoFit) else (fitted.value, None)


def _percentiles(drawn: np.ndarray) -> Interval | None:
    """Return the 95 % interval of the resamples; None if too many have no value, or all have the same."""
    known = drawn[~np.isnan(drawn)]
    if len(drawn) - len(known) > MAX_UNDEFINED * len(drawn):
        return None
    if not np.ptp(known):  # one group, or so few that none is ever missing
        return None
    low, high = np.quantile(known, [ALPHA / 2, 1 - ALPHA / 2])
    return float(low), float(high)


def _corrected(figure: Estimate, optimism: np.ndarray) -> float | None:
    known = optimism[~np.isnan(optimism)]
    if figure.value is None or len(optimism) - len(known) > MAX_UNDEFINED * len(optimism):
        return None
    return float(np.clip(figure.value - known.mean(), 0, 1))


def _sentences(
    entries: Sequence[FittedThreshold], rules: Sequence[Rule], sides: dict[str, int], positive: str, who: str
) -> list[str]:
    """Return the main results as sentences."""
    named = {"positive": f"{positive} {who}", "negative": f"{who} without '{positive}'"}
    said = []
    for entry, rule in zip(entries, rules, strict=True):
        if rule.kind not in ("sensitivity", "specificity") or entry.threshold is None:
            continue
        figure = entry.sensitivity if rule.kind == "sensitivity" else entry.specificity
        side = "positive" if rule.kind == "sensitivity" else "negative"
        if figure is None:
            continue
        if figure.value is None or figure.ci95 is None:
            said.append(f"With {sides[side]} {named[side]}, nothing can be said of {rule.name}: {figure.reason}.")
            continue
        low, high = figure.ci95
        said.append(
            f"With {sides[side]} {named[side]}, {rule.name} is compatible with {low:.2f} to {high:.2f}: "
            f"{more_groups(figure.value, sides[side])} more of them would halve this."
        )
    few = [f"{sides[side]} {named[side]}" for side in named if sides[side] < ENOUGH]
    if few:
        said.append(
            f"There are {' and '.join(few)}. Below {ENOUGH} of each a refit is unsure, and may be worse than the "
            "model's own temperature and thresholds (Vergouwe 2005, Collins 2016)."
        )
    said.append(
        "These figures were fitted and judged on the same images. Judge the calibration on other patients: usvit "
        "evaluate SCORES --labels OTHERS --calibration FILE (it refuses those of this fit)."
    )
    return said
