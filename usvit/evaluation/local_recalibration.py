"""What a recalibration on a few patients of a new site gives on the other patients of that site, over many draws.

In each draw, some patients are drawn at random and without replacement; temperature or Platt scaling and the threshold
are fitted on their images, as ``usvit recalibrate`` does, and judged on the images of all other patients.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import softmax

from usvit.evaluation.recalibration import NoFit, Platt, Temperature, fit_platt, fit_temperature
from usvit.metrics.calibration_statistics import LOWEST_PROB, log_odds, logistic_fit, no_slope
from usvit.metrics.checks import group_codes
from usvit.metrics.intervals import ALPHA
from usvit.metrics.threshold_choice import Rule, choose_threshold

Fitted = Literal["frozen", "temperature", "platt"]
_FITTED: tuple[Fitted, ...] = ("frozen", "temperature", "platt")
"""``frozen`` judges the unchanged model on the same other patients, so that the spread can be compared."""
FIGURES = ("sensitivity", "specificity", "slope", "observed_expected")
_LEAST_LEFT = 10
"""Fewest patients that must be left to judge a recalibration on."""


@dataclass(frozen=True)
class SiteImages:
    """n labelled images of one site in G groups."""

    label: np.ndarray
    """(n,) int, index of the reference class."""
    prob: np.ndarray
    """(n, K) probabilities of the model, from which it is recalibrated."""
    calibrated: np.ndarray
    """(n,) probability of the positive class by the model's own calibration."""
    threshold: float | None
    """The model's own threshold on ``calibrated``."""
    group: np.ndarray
    """(n,) int or str."""
    positive: int
    """Index of the positive class."""


@dataclass(frozen=True)
class _DrawSpread:
    """Median and central 95 % of a figure over draws."""

    median: float | None
    low: float | None
    high: float | None
    n_draws: int
    """Draws in which the figure exists."""


@dataclass(frozen=True)
class _RecalibrationDraws:
    """The figures of one kind of recalibration at one number of patients."""

    n_patients: int
    fitted: Fitted
    n_draws: int
    """Draws with images of both sides, on which something could be fitted."""
    n_one_sided: int
    """Draws without a positive or without a negative image, which were left out."""
    n_unfitted: int
    """Draws in which the scaling does not exist, so that probabilities stayed those of the model."""
    figures: dict[str, _DrawSpread]


def size_problem(n_patients: int, n_groups: int) -> str | None:
    """Return why a number of patients cannot be drawn from a site with ``n_groups`` groups; None if it can."""
    if n_groups - n_patients >= _LEAST_LEFT:
        return None
    return (
        f"{n_patients} patients to recalibrate and at least {_LEAST_LEFT} others to judge it on are needed, and there "
        f"are {n_groups}"
    )


def recalibration_draws(
    images: SiteImages, n_patients: int, rule: Rule, *, draws: int, seed: int
) -> list[_RecalibrationDraws]:
    """Draw patients many times, recalibrate on them, and judge on the others.

    Args:
        images: the images of the site.
        n_patients: number of groups that are drawn; ``size_problem`` must be None.
        rule: the operating point.
        draws: number of draws.
        seed: seed of the draws; they do not depend on other sizes.

    Returns:
        One entry for each of ``_FITTED``, all from the same draws.
    """
    reference = images.label == images.positive
    logs = np.log(np.maximum(images.prob, LOWEST_PROB))
    code, n_groups = group_codes(images.group, len(reference))
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(n_patients,)))
    found = {name: np.full((draws, len(FIGURES)), np.nan) for name in _FITTED}
    unfitted, one_sided = dict.fromkeys(_FITTED, 0), np.zeros(draws, bool)
    for draw in range(draws):
        drawn = np.zeros(n_groups, bool)
        drawn[rng.choice(n_groups, n_patients, replace=False)] = True
        inside = drawn[code]
        if reference[inside].all() or not reference[inside].any():
            one_sided[draw] = True
            continue
        rest = ~inside
        found["frozen"][draw] = _judged(reference[rest], images.calibrated[rest], images.threshold)
        fits: tuple[tuple[Fitted, Temperature | Platt | NoFit], ...] = (
            ("temperature", fit_temperature(images.label[inside], logs[inside])),
            ("platt", fit_platt(images.label[inside], logs[inside], images.positive)),
        )
        for name, fit in fits:
            unfitted[name] += isinstance(fit, NoFit)
            scaled = images.prob if isinstance(fit, NoFit) else softmax(fit.log_prob(logs), axis=1)
            score = scaled[:, images.positive]
            threshold = choose_threshold(reference[inside], score[inside], rule).threshold
            found[name][draw] = _judged(reference[rest], score[rest], threshold)
    n = int((~one_sided).sum())
    return [
        _RecalibrationDraws(
            n_patients,
            name,
            n,
            draws - n,
            unfitted[name],
            {figure: spread(found[name][:, k]) for k, figure in enumerate(FIGURES)},
        )
        for name in _FITTED
    ]


def spread(values: np.ndarray) -> _DrawSpread:
    """Return the median and the 2.5 and 97.5 % points of (B,) values; NaN are left out."""
    known = values[~np.isnan(values)]
    if not len(known):
        return _DrawSpread(None, None, None, 0)
    low, median, high = np.quantile(known, [ALPHA / 2, 0.5, 1 - ALPHA / 2]).tolist()
    return _DrawSpread(median, low, high, len(known))


def _judged(reference: np.ndarray, prob: np.ndarray, threshold: float | None) -> Sequence[float]:
    """Return ``FIGURES`` of (n,) probabilities at a threshold; NaN if one does not exist."""
    sensitivity = specificity = slope = ratio = float("nan")
    both = reference.any() and not reference.all()
    if threshold is not None and both:
        called = prob >= threshold
        sensitivity, specificity = float(called[reference].mean()), float((~called[~reference]).mean())
    pair = np.log(np.clip(np.stack([1 - prob, prob], axis=1), LOWEST_PROB, 1))
    odds = log_odds(pair, 1)
    if both and no_slope(reference, odds) is None:
        slope = logistic_fit(odds, reference.astype(np.float64))[0]
    if prob.sum() > 0:
        ratio = float(reference.sum() / prob.sum())
    return sensitivity, specificity, slope, ratio
