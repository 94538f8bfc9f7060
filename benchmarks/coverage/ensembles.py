"""An ensemble of networks less one of its members, and recalibration on some patients of a site; scores are drawn."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import expit, logit, softmax
from sklearn.metrics import roc_auc_score

from benchmarks.coverage.fixed import SHIFT
from benchmarks.coverage.generators import COHORTS, CORRELATED, Cohort, Correlated, deviations
from benchmarks.coverage.harness import Interval, Outcome, Row, Table, interval
from benchmarks.coverage.trained import FOLDS, area_of
from usvit.evaluation import SiteImages, fit_temperature, recalibration_draws, size_problem
from usvit.evaluation.recalibration import NoFit, fit_platt
from usvit.metrics.calibration_statistics import LOWEST_PROB
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.fold_difference import difference_within_folds
from usvit.metrics.fold_figures import area_figure
from usvit.metrics.threshold_choice import Rule, choose_threshold

NETWORKS = 5
EXPECTED = 8000
"""Studies from which the expected difference of labels by image is computed; its Monte Carlo error is below 0.0002."""


def ensemble(row: Correlated, k: int) -> Outcome:
    """The AUC of an ensemble less that of a member, within folds and pooled, and on which side the interval misses."""
    positive, mean, member, fold = ensemble_study(row, np.random.default_rng([4, k]))
    patient, n = row.cohort.patient, len(row.cohort.images)
    a, b = (
        [area_figure(positive[fold == j], score[fold == j], patient[fold == j], n) for j in range(FOLDS)]
        for score in (mean, member)
    )
    within, pooled = _expected(row) if row.cohort.by_image else (gain(),) * 2
    found = interval(difference_within_folds([a], [b], 0.0, absent="no class", n_groups=n), within)
    return {
        "within folds": found,
        "too low": found.high < within,
        "too high": found.low > within,
        "pooled": interval(clustered_difference(positive, mean, member, patient), pooled),
    }


def ensemble_study(row: Correlated, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Draw labels, scores of the ensemble and of a member, and folds."""
    positive, patient = row.cohort.labels(rng), row.cohort.patient
    score = _networks(positive, np.array([row.deviations(rng) for _ in range(NETWORKS + 1)]))
    share = np.bincount(patient, positive) / np.bincount(patient)
    fold = np.empty(len(share), dtype=np.int64)
    fold[np.lexsort((rng.random(len(share)), share))] = np.arange(len(share)) % FOLDS
    return positive, score.mean(axis=0), score[0], fold[patient]


@cache
def _expected(row: Correlated) -> tuple[float, float]:
    """Return the mean difference within folds, and of the pooled AUCs, over other studies with labels by image.

    They are smaller than ``gain``, which is that of images of different patients: within folds, some of the pairs of a
    positive and a negative image are of one patient, whose scores have a part in common.
    """
    found = []
    for k in range(EXPECTED):
        positive, mean, member, fold = ensemble_study(row, np.random.default_rng([9, k]))
        parts = [fold == j for j in range(FOLDS)]
        both = [at for at in parts if 0 < positive[at].sum() < at.sum()]
        within = [area_of(positive[at], mean[at]) - area_of(positive[at], member[at]) for at in both]
        found.append((float(np.mean(within)), area_of(positive, mean) - area_of(positive, member)))
    within_folds, pooled = np.array(found).mean(axis=0)
    return float(within_folds), float(pooled)


def _networks(positive: np.ndarray, away: np.ndarray) -> np.ndarray:
    """Return (M, n) probabilities of M networks, which share the first of (M + 1, n) deviations, half the variance."""
    score = SHIFT * positive + (away[0] + away[1:]) / np.sqrt(2)
    return np.asarray(expit(SHIFT * (score - SHIFT / 2)))


@cache
def gain() -> float:
    """Return the true difference, from many independent images."""
    rng = np.random.default_rng(0)
    positive = np.arange(2_000_000) % 3 == 0
    score = _networks(positive, rng.normal(size=(NETWORKS + 1, len(positive))))
    return float(roc_auc_score(positive, score.mean(axis=0)) - roc_auc_score(positive, score[0]))


RULE = Rule("sensitivity", 0.9)


@dataclass(frozen=True)
class Site(Row):
    """Patients of a site, and how many of them recalibrate the model."""

    cohort: Cohort
    patients_recalibrate: int


def recalibration(row: Site, k: int) -> Outcome:
    """The range over draws of 'usvit study shift' and the figures that other patients of such a site attain."""
    share = row.cohort.n_positive / len(row.cohort.images)
    site, other = (_site(row.cohort, share, np.random.default_rng([seed, k])) for seed in (5, 6))
    future, outcome = _future(share), dict[str, Interval]()
    for drawn in recalibration_draws(site, row.patients_recalibrate, RULE, draws=100, seed=k)[1:]:
        attained = _recalibrated(other, future, row.patients_recalibrate, drawn.fitted, k)
        for name, value in (attained or {}).items():
            low, high = drawn.figures[name].low, drawn.figures[name].high
            if low is not None and high is not None:
                outcome[f"{drawn.fitted}: {name}"] = Interval(low, high, value)
    return outcome


def _site(cohort: Cohort, share: float, rng: np.random.Generator) -> SiteImages:
    """Draw a site where the model's log-odds are twice as large as they should be, and too high by 1."""
    positive = cohort.labels(rng)
    score = SHIFT * positive + deviations(cohort.patient, 0.5, rng)
    p = expit(1 + 2 * (logit(share) + SHIFT * (score - SHIFT / 2)))
    return SiteImages(positive.astype(np.int64), np.column_stack([1 - p, p]), p, 0.5, cohort.patient, 1)


@cache
def _future(share: float) -> SiteImages:
    return _site(Cohort("", (1,) * 30_000, round(share * 30_000)), share, np.random.default_rng(7))


def _recalibrated(site: SiteImages, future: SiteImages, size: int, method: str, seed: int) -> dict[str, float] | None:
    """Recalibrate on patients of a site, and return the figures of future patients; None without a threshold."""
    chosen = np.random.default_rng([8, seed]).choice(int(site.group.max()) + 1, size, replace=False)
    inside = np.isin(site.group, chosen)
    label, logs = site.label[inside], [np.log(np.maximum(one.prob, LOWEST_PROB)) for one in (site, future)]
    if len(np.unique(label)) < 2:
        return None
    fit = fit_temperature(label, logs[0][inside]) if method == "temperature" else fit_platt(label, logs[0][inside], 1)
    own, p = (
        one.prob[:, 1] if isinstance(fit, NoFit) else softmax(fit.log_prob(log), axis=1)[:, 1]
        for one, log in zip((site, future), logs, strict=True)
    )
    threshold = choose_threshold(label == 1, own[inside], RULE).threshold
    if threshold is None:
        return None
    up, called = future.label == 1, p >= threshold
    shares = {"sensitivity": float(called[up].mean()), "specificity": float((~called[~up]).mean())}
    return shares | {"observed_expected": float(up.sum() / p.sum())}


TABLES = {
    "ensemble": Table(CORRELATED, ensemble),
    "site-recalibration": Table(
        tuple(
            Site(cohort, size)
            for cohort in COHORTS[:2]
            for size in (10, 20, 50, 100)
            if not size_problem(size, len(cohort.images))
        ),
        recalibration,
        40,
    ),
}
