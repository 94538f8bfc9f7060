"""Tables of scores that are drawn: no model is trained, so that only the sampling of patients varies.

A score is a shift for a positive image and 0 for another, plus the patient's deviation (variance rho) and the image's
(1 - rho). rho is the correlation of two images of one patient and class. With a shift of 2, the AUC for images of
different patients is Phi(2 / sqrt 2) = 0.921, and sensitivity and specificity at a threshold of 1 are Phi(1) = 0.841.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from benchmarks.coverage.generators import (
    CORRELATED,
    INFORMATIVE,
    Correlated,
    deviations,
    true_share_above,
    uneven_patients,
)
from benchmarks.coverage.harness import Interval, Outcome, Row, Table, interval, rejects
from usvit.evaluation.subgroup_differences import FIGURES, level_differences
from usvit.metrics.bootstrap import figure_values
from usvit.metrics.clustered import area_covariance, area_parts, clustered_auc, clustered_difference
from usvit.metrics.figures import matthews
from usvit.metrics.fold_difference import difference_limits, difference_within_folds
from usvit.metrics.fold_figures import area_figure
from usvit.metrics.intervals import logit_interval
from usvit.metrics.margin_tests import DifferenceLimits, equivalence, non_inferiority
from usvit.metrics.paired_tests import PairedShares, paired_difference
from usvit.metrics.prevalence import predictive_values
from usvit.metrics.proportions import clustered_share
from usvit.metrics.shift import independent_change, mean_area_of_folds, mean_area_of_networks, observed_to_expected
from usvit.models.ood import Observed, fit_ood_detector

SHIFT, PREVALENCE = 2.0, 0.3


def scores(row: Correlated, k: int) -> Outcome:
    """AUC, sensitivity, PPV and NPV at one threshold, and the difference of two equal models; by patient and by image.

    PPV and NPV at any other prevalence are ascending functions of the same ratios.
    """
    rng, patient = np.random.default_rng([0, k]), row.cohort.patient
    positive = row.cohort.labels(rng)
    a, b = (SHIFT * positive + row.deviations(rng) for _ in range(2))
    called, share = a > SHIFT / 2, float(norm.cdf(SHIFT / 2))
    outcome: dict[str, Interval | float] = {}
    for name, group in (("", patient), (", by image", np.arange(len(a)))):
        outcome[f"AUC{name}"] = interval(clustered_auc(positive, a, group), norm.cdf(SHIFT / np.sqrt(2)))
        outcome[f"sensitivity{name}"] = interval(clustered_share(called[positive], group[positive]), share)
        outcome[f"p < 0.05{name}"] = rejects(clustered_difference(positive, a, b, group))
    return outcome | predicted(positive, called, patient, share, share)


def predicted(
    positive: np.ndarray, called: np.ndarray, patient: np.ndarray, sensitivity: float, specificity: float
) -> dict[str, Interval]:
    """Return the intervals of PPV and NPV at the prevalence."""
    found = predictive_values(positive, called, patient, PREVALENCE)
    up, down = PREVALENCE * sensitivity, (1 - PREVALENCE) * specificity
    ppv, npv = up / (up + 1 - PREVALENCE - down), down / (down + PREVALENCE - up)
    return {"PPV": interval(found.ppv, ppv), "NPV": interval(found.npv, npv)}


@dataclass(frozen=True)
class TwoClasses(Row):
    """Numbers of patients of both classes, images per patient, and the correlation of a patient's images."""

    positives: int
    negatives: int
    images: int = 1
    rho: float = 0.0
    area: float = 0.0
    """True AUC, where it is not that of the shift."""
    sd_of_positives: float = 1.0

    def draw(self, k: int, shift: float) -> tuple[np.ndarray, ...]:
        """Draw labels, patients, and scores of two models with one truth, which share half of their deviations."""
        rng = np.random.default_rng(k)
        patient = np.repeat(np.arange(self.positives + self.negatives), self.images)
        positive = patient < self.positives
        common, stretch = deviations(patient, self.rho, rng), np.where(positive, self.sd_of_positives, 1.0)
        a, b = (
            shift * positive + stretch * (common + deviations(patient, self.rho, rng)) / np.sqrt(2) for _ in range(2)
        )
        return positive, patient, a, b


def near_one(row: TwoClasses, k: int) -> Outcome:
    """The AUC near 1 with few positives, and the logit scale that usvit does not use there."""
    positive, patient, score, _ = row.draw(k, float(norm.ppf(row.area) * np.sqrt(1 + row.sd_of_positives**2)))
    parts = area_parts(positive, score, patient, row.positives + row.negatives)
    assert parts is not None
    value = clustered_auc(positive, score, patient)
    low, high = logit_interval(parts.value, area_covariance(parts, parts)) or value.ci95 or (np.nan, np.nan)
    return {
        "logit scale": Interval(low, high, row.area),
        "score interval": interval(value, row.area),
        "perfect samples": parts.value == 1,
    }


def decisions(row: TwoClasses, k: int) -> Outcome:
    """Sensitivity, PPV and NPV at two thresholds, and tests of equal and unequal sensitivities."""
    positive, patient, a, b = row.draw(k, SHIFT)
    group, outcome = patient[positive], dict[str, Interval | float]()
    up, other, loss = a[positive], b[positive], 0.5
    outcome["sensitivity 0.841"] = interval(clustered_share(up > 1, group), norm.cdf(1))
    for threshold in (1.0, 2.0):
        truth = float(norm.sf(threshold - SHIFT)), float(norm.cdf(threshold))
        for name, held in predicted(positive, a > threshold, patient, *truth).items():
            outcome[f"{name}, threshold {threshold:g}"] = held
    for extra in (0.0, loss):
        truth_of_difference = float(norm.cdf(1) - norm.cdf(1 - extra))
        value = paired_difference(up > 1, other > 1 + extra, group, of="images")
        outcome[f"difference {truth_of_difference:.3f}"] = interval(value, truth_of_difference)
        outcome[f"p < 0.05, difference {truth_of_difference:.3f}"] = rejects(value)
    shares = PairedShares.of(up > 1 + loss, other > 1, np.unique(group, return_inverse=True)[1])
    margin = float(norm.cdf(1) - norm.cdf(1 - loss))
    return outcome | {"worse by the margin, called non-inferior": called_non_inferior(shares, margin)}


def called_non_inferior(limits: DifferenceLimits | None, margin: float) -> bool:
    return limits is not None and non_inferiority(limits, margin).a_vs_b.verdict == "non-inferior"


AREA, AREA_MARGIN = 0.9, 0.05
SENSITIVITY, SHARE_MARGIN = 0.841, 0.1


def margins(row: Correlated, k: int) -> Outcome:
    """Model A is worse by exactly the margin (0.05 of the AUC, 0.1 of the sensitivity): each claim is an error."""
    positive, a, b = row.pair(np.random.default_rng([0, k]))
    patient, groups = row.cohort.patient, len(row.cohort.images)
    one, other = (
        area_figure(positive, away + np.sqrt(2) * norm.ppf(area) * positive, patient, groups)
        for away, area in ((a, AREA - AREA_MARGIN), (b, AREA))
    )
    hits = [away[positive] > norm.isf(share) for away, share in ((a, SENSITIVITY - SHARE_MARGIN), (b, SENSITIVITY))]
    area = difference_limits(difference_within_folds([[one]], [[other]], 0.0, absent="", n_groups=groups))
    share = PairedShares.of(hits[0], hits[1], np.unique(patient[positive], return_inverse=True)[1])
    outcome: dict[str, Interval | float] = {}
    found: tuple[tuple[str, DifferenceLimits | None, float], ...]
    found = (("AUC", area, AREA_MARGIN), ("sensitivity", share, SHARE_MARGIN))
    for name, limits, margin in found:
        for alpha in (0.05, 0.1):
            ends = (np.nan, np.nan) if limits is None else limits.interval(alpha)
            outcome[f"{name}, {1 - alpha:.0%}"] = Interval(*ends, -margin)
        outcome[f"{name}: called non-inferior"] = called_non_inferior(limits, margin)
        outcome[f"{name}: called equivalent"] = (
            limits is not None and equivalence(limits, margin).verdict == "equivalent"
        )
    return outcome


def subgroups(row: Correlated, k: int) -> Outcome:
    """The difference of two subgroups, which is 0; half of the patients, or of the images, are in either."""
    positive, away, _ = row.pair(np.random.default_rng([0, k]))
    patient, n = row.cohort.patient, len(row.cohort.images)
    shift = np.sqrt(2) * norm.ppf(AREA)
    prob = expit(away + shift * positive - shift / 2)
    levels = {"patient": np.random.default_rng([0, 1]).permutation(n)[patient], "image": np.arange(len(patient))}
    outcome: dict[str, Interval | float] = {}
    for by, number in levels.items():
        level, both = (number % 2).astype(str), np.stack([1 - prob, prob], axis=1)
        (found,) = level_differences(positive.astype(int), both, patient, level, positive=1)
        for name in FIGURES:
            outcome[f"{name}, levels by {by}"] = interval(getattr(found, name), 0.0)
    return outcome


@dataclass(frozen=True)
class Decided(Row):
    """Numbers of patients of each class, and a threshold. In rows "by image" a patient has images of both classes."""

    positives: int
    negatives: int
    threshold: float
    uneven: bool = False
    informative: bool = False
    by_image: bool = False

    def true(self) -> tuple[float, float]:
        """Return sensitivity and specificity; difficult patients, with scores on the wrong side, have more images."""
        if not self.uneven:
            return float(norm.sf(self.threshold - SHIFT)), float(norm.cdf(self.threshold))
        up, down = (
            true_share_above(self.threshold, mean=mean, rho=0.5, informative=sign * INFORMATIVE * self.informative)
            for mean, sign in ((SHIFT, -1), (0.0, 1))
        )
        return up, 1 - down

    def draw(self, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw labels, decisions and patients."""
        rng = np.random.default_rng([k, self.positives, self.negatives])
        groups = self.positives + self.negatives
        images, own = np.ones(groups, int), rng.normal(size=groups)
        if self.uneven:
            images, own = uneven_patients(rng, groups, informative=INFORMATIVE * self.informative)
        patient = np.repeat(np.arange(groups), images)
        positive = (np.arange(groups) < self.positives)[patient]
        if self.by_image:
            positive = rng.random(len(patient)) < self.positives / groups
        away = np.where(positive, -1.0, 1.0) * own[patient] + rng.normal(size=len(patient))
        return positive.astype(int), (SHIFT * positive + away / np.sqrt(2) > self.threshold).astype(int), patient

    def truths(self) -> dict[str, float]:
        """Return the true figures; classes have the study's share of the images."""
        (up, down), share = self.true(), self.positives / (self.positives + self.negatives)
        table = np.array([[(1 - share) * down, (1 - share) * (1 - down)], [share * (1 - up), share * up]])
        f1 = [2 * table[j, j] / (table[j].sum() + table[:, j].sum()) for j in (0, 1)]
        predicted = {"ppv": table[1, 1] / table[:, 1].sum(), "npv": table[0, 0] / table[:, 0].sum()}
        whole = {"accuracy": np.trace(table), "balanced_accuracy": (up + down) / 2, "f1_macro": np.mean(f1)}
        of_class = {"sensitivity": up, "specificity": down, **predicted, "f1": f1[1]}
        return of_class | whole | {"mcc": matthews(table[None])[0]}


def shares(row: Decided, k: int) -> Outcome:
    """Shares and figures made of them, with small classes and unequal numbers of images."""
    label, called, patient = row.draw(k)
    found = figure_values(
        label, np.eye(2)[called], patient, classes=("benign", "malignant"), ranked=False, n_resamples=2
    )
    values = {name: found.figure(name, "malignant") for name in row.truths()}
    true = dict(zip(("true sensitivity", "true specificity"), row.true(), strict=True))
    return true | {
        name: interval(values[name], truth) for name, truth in row.truths().items() if values[name].value is not None
    }


NOVELTY = ((19, 1), (19, 3), (30, 1), (60, 1), (60, 3))
"""Inner validation patients, and images of each."""


def novelty(row: tuple[int, int], k: int) -> Outcome:
    """Images like the training images above the out-of-distribution limit, by (validation patients, images of each)."""
    rng = np.random.default_rng(k)

    def observed(patients: int, images: int) -> Observed:
        own, n = rng.normal(size=(patients, 1)).repeat(images, 0), patients * images
        layers = (rng.normal(size=(n, width)) + own / 2 for width in (16, 23))
        return Observed(*(layer.astype("f4") for layer in layers))

    train, val, new = observed(80, 1), observed(*row), observed(200, 1)
    fitted = fit_ood_detector(train, np.zeros(80, int), val, np.arange(row[0]).repeat(row[1]))
    assert not isinstance(fitted, str)
    return {"promised": fitted.rate, "flagged": float((fitted.of(new) > 1).mean())}


@dataclass(frozen=True)
class TwoSets(Row):
    """Patients of each set and their images (1 or 2 if ``images`` is 2), networks, and the skill in each set."""

    patients: int
    images: int
    networks: int
    inside: float
    outside: float

    def draw(self, rng: np.random.Generator, skill: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw labels, scores and patients."""
        n, most = self.patients, self.images
        images = np.full(n, most) if most > 2 else rng.integers(1, most + 1, n)
        patient = np.repeat(np.arange(self.patients), images)
        positive = (rng.random(self.patients) < 0.27)[patient]
        return positive, skill * positive + deviations(patient, 0.5, rng), patient


def change(row: TwoSets, k: int) -> Outcome:
    """The change of the AUC between two sets of patients, and O:E of odds that are 1.6 times too large.

    Each of several networks adds noise of its own; inside, an image is scored by the network of its fold.
    """
    rng, noise = np.random.default_rng([18, k]), 0.5
    spread = np.sqrt(2 * (1 + noise**2 * (row.networks > 1)))
    positive, score, patient = row.draw(rng, row.inside)
    if row.networks > 1:
        score = score + noise * rng.normal(size=len(score))
    before = mean_area_of_folds(positive, score, patient, patient % row.networks)
    positive, score, patient = row.draw(rng, row.outside)
    away = noise * rng.normal(size=(row.networks, len(score))) if row.networks > 1 else np.zeros((1, len(score)))
    value = independent_change(mean_area_of_networks(positive, score + away, patient), before)
    ratio = observed_to_expected(positive, _probability(score, row.outside), patient)
    truth = norm.cdf(row.outside / spread) - norm.cdf(row.inside / spread)
    return {"change of the AUC": interval(value, truth), "O:E": interval(ratio, _ratio(row.outside))}


def _probability(score: np.ndarray, skill: float) -> np.ndarray:
    return np.asarray(expit(logit(0.27) + skill * score - skill**2 / 2 + np.log(1.6)))


@cache
def _ratio(skill: float) -> float:
    """Return the true O:E, from many patients."""
    positive, score, _ = TwoSets(4_000_000, 1, 1, skill, skill).draw(np.random.default_rng(0), skill)
    return float(positive.mean() / _probability(score, skill).mean())


CLUSTERS = ((1, 0.0), (3, 0.5))
"""Images per patient, and their correlation."""
TABLES = {
    "scores": Table(CORRELATED, scores, 1000),
    "near-one": Table(
        tuple(
            TwoClasses(n, 100, *cluster, area, sd)
            for area in (0.95, 0.99)
            for sd in (1.0, 2.0)
            for n in (10, 20, 30)
            for cluster in CLUSTERS
        ),
        near_one,
        1000,
    ),
    "decisions": Table(
        tuple(TwoClasses(n, m, *cluster) for n, m in ((20, 60), (60, 200)) for cluster in CLUSTERS)
        + tuple(TwoClasses(n, 10, 3, 0.5) for n in (10, 20, 30, 50, 100)),
        decisions,
        1000,
    ),
    "margins": Table(CORRELATED, margins, 1000),
    "subgroups": Table(CORRELATED, subgroups, 1000),
    "shares": Table(
        (
            *(Decided(n, 400 - n, 2.0) for n in (9, 12, 24, 39)),
            *(Decided(n, 400 - n, 3.0) for n in (12, 39)),
            Decided(11, 60, 1.0, uneven=True),
            *(
                Decided(n, m, threshold, True, informative)
                for n, m in ((13, 27), (22, 52))
                for threshold, informative in ((1.0, False), (1.0, True), (2.0, True))
            ),
            Decided(4, 7, 1.0, uneven=True, by_image=True),
            Decided(13, 27, 2.0, uneven=True, by_image=True),
        ),
        shares,
    ),
    "novelty": Table(NOVELTY, novelty, 500),
    "change": Table(
        tuple(
            TwoSets(n, images, networks, *skills)
            for n, images in ((38, 18), (100, 2), (300, 1), (1064, 2))
            for networks in (1, 5)
            for skills in ((1.5, 1.5), (2.0, 1.0))
        ),
        change,
        1000,
    ),
}
