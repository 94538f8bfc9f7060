"""Operating points of cross-validations whose scores are drawn, and the threshold of the mean of several networks.

A score is D for a positive image and 0 for another, plus noise that all networks share and independent noise of each
network, whose log-odds are also shifted. 15 % of the patients are inner validation patients of a fold, as in
``usvit cv``. The true sensitivity and specificity of a threshold on new patients follow from the normal distribution.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.optimize import brentq
from scipy.special import expit, logit
from scipy.stats import norm

from benchmarks.coverage.generators import INFORMATIVE, true_share_above, uneven_patients
from benchmarks.coverage.harness import Interval, Outcome, Row, Spread, Table
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.threshold_procedure import draw_procedure, procedure_from_folds, procedure_of, why_no_bootstrap
from usvit.evaluation.thresholds import choosing_rows, operating_points
from usvit.metrics.ensemble_scores import mean_scores
from usvit.metrics.proportions import clustered_share
from usvit.metrics.threshold_choice import Rule, choose_threshold, outcome

K, D, SHARE, VAL, RESAMPLES = 5, 2.0, 0.27, 0.15, 250
RHO = 0.35
"""Correlation of the scores that one network gives two images of one patient and class."""


@dataclass(frozen=True)
class Procedure(Row):
    """A rule, patients and images of each (none stands for 1 to 20), and the SD over networks of the shift of log-odds.

    If informative, difficult patients, whose scores are on the wrong side, have more images.
    """

    rule: Rule
    patients: int
    images: int | None
    shift: float = 0.5
    informative: bool = False

    def attained(self, limit: float) -> tuple[float, float]:
        """Return the true sensitivity and specificity of a limit of the score."""
        if self.images:
            return float(norm.sf(limit - D)), float(norm.cdf(limit))
        up, down = (
            true_share_above(limit, mean=mean, rho=RHO, informative=sign * INFORMATIVE * self.informative)
            for mean, sign in ((D, -1), (0.0, 1))
        )
        return up, 1 - down

    def exact(self) -> tuple[float, float]:
        """Return the true sensitivity and specificity at exactly the target."""
        number = ("sensitivity", "specificity").index(self.rule.kind)
        target = self.rule.target or 0.0
        return self.attained(brentq(lambda limit: self.attained(limit)[number] - target, -10, 10))

    def draw(self, rng: np.random.Generator) -> tuple[pd.DataFrame, np.ndarray]:
        """Draw the predictions of all folds, and the shift of each fold."""
        n = self.patients
        ill = rng.permutation(n) < round(SHARE * n)
        fold = np.empty(n, dtype=int)
        for which in (True, False):
            own = rng.permutation(np.flatnonzero(ill == which))
            fold[own] = np.arange(len(own)) % K
        if self.images:
            patient, away = np.repeat(np.arange(n), self.images), rng.normal(size=n)
        else:
            images, away = uneven_patients(rng, n, informative=INFORMATIVE * self.informative)
            patient, away = np.repeat(np.arange(n), images), np.where(ill, -away, away)
        noise = np.sqrt(0.5) * away[patient] + np.sqrt(0.5) * rng.normal(size=len(patient))
        shifts, tables = rng.normal(0, self.shift, K), []
        for k in range(K):
            inner = [
                rng.permutation(np.flatnonzero((ill == which) & (fold != k)))[: round(VAL * (ill == which).sum())]
                for which in (True, False)
            ]
            for part, groups in (("test", np.flatnonzero(fold == k)), ("val", np.concatenate(inner))):
                at = np.flatnonzero(np.isin(patient, groups))
                positive = ill[patient[at]]
                score = D * positive + np.sqrt(0.7) * noise[at] + np.sqrt(0.3) * rng.normal(size=len(at))
                columns: dict[str, object] = {"image_id": at.astype(str), "group_id": patient[at].astype(str)}
                columns |= {"patient_id": None, "dataset": "x", "fold": k, "part": part}
                columns |= {"label": np.where(positive, "malignant", "benign")}
                prob = expit(shifts[k] + score)
                tables.append(pd.DataFrame(columns | {"prob_benign": 1 - prob, "prob_malignant": prob}))
        return pd.concat(tables, ignore_index=True), shifts


def procedure(row: Procedure, k: int) -> Outcome:
    """Sensitivity and specificity of chosen thresholds: the interval of the procedure, and that given the thresholds.

    The second coverage of "attained" is that of the mean over all studies, which the procedure attains; "exact" is the
    true value at exactly the target.
    """
    table, shifts = row.draw(np.random.default_rng([1, k]))
    test, chooser = rows_of(table, "test"), choosing_rows(table)[1]
    (point,) = operating_points(table, positive="malignant", rules=[row.rule])
    if point.pooled is None:
        return {}
    threshold = np.array([one.threshold for one in point.folds], dtype=np.float64)
    called = test.prob[:, 1] >= threshold[test.fold]
    pooled = outcome(test.label == 1, called, test.group, interval=clustered_share)
    if why := why_no_bootstrap(row.rule, chooser, 1):
        whole = procedure_from_folds(row.rule, why, pooled, test, called, chooser, 1)
    else:
        drawn = draw_procedure(test, chooser, 1, [row.rule], n_resamples=RESAMPLES, seed=k)[:, 0]
        whole = procedure_of(pooled, drawn)
    true = np.mean([row.attained(limit) for limit in logit(threshold) - shifts], axis=0)
    found: dict[str, Interval] = {}
    for name, attained, exact in zip(("sensitivity", "specificity"), true, row.exact(), strict=True):
        for how, of in (("", whole), (", given thresholds", pooled)):
            low, high = getattr(of, name).ci95 or (np.nan, np.nan)
            found[f"{name} attained{how}"] = Interval(low, high, attained)
            found[f"exact {name}{how}"] = Interval(low, high, exact)
    return found


@dataclass(frozen=True)
class Networks(Row):
    """Images, the correlation of two networks' noise, and the SD of the shift of their log-odds.

    On 30 % of the images, networks disagree by the factor ``contested`` more than on others.
    """

    images: int
    correlation: float
    shift: float
    contested: float = 1.0

    def draw(self, rng: np.random.Generator, positive: np.ndarray, shifts: np.ndarray) -> np.ndarray:
        """Draw (n, K) probabilities."""
        n = len(positive)
        own = rng.normal(size=(n, K)) * np.where(rng.random((n, 1)) < 0.3, self.contested, 1.0)
        own /= np.sqrt(0.3 * self.contested**2 + 0.7)
        noise = np.sqrt(self.correlation) * rng.normal(size=(n, 1)) + np.sqrt(1 - self.correlation) * own
        return np.asarray(expit(shifts + 1.5 * (1.5 * positive[:, None] + noise) - 1.6))


def mean_threshold(row: Networks, k: int) -> Outcome:
    """What thresholds attain for the mean of five networks: chosen on single networks, and for the mean."""
    rng, new, n = np.random.default_rng([2, k]), np.arange(20_000) < 10_000, row.images
    shifts, positive = rng.normal(0, row.shift, K), rng.random(n) < SHARE
    prob = row.draw(rng, positive, shifts)
    later = row.draw(rng, new, shifts).mean(axis=1)
    fold = rng.permutation(n) % K
    tested, validated = np.full((n, K), np.nan), np.full((n, K), np.nan)
    tested[np.arange(n), fold] = prob[np.arange(n), fold]
    for j in range(K):
        own = rng.permutation(np.flatnonzero(fold != j))[: round(VAL * n)]
        validated[own, j] = prob[own, j]
    drawn = mean_scores(tested, validated, positive, n_draws=10_000)
    found: dict[str, Spread] = {}
    if isinstance(drawn, str):
        return found
    single, mean = prob[np.arange(n), fold], np.concatenate([drawn.positive, drawn.negative])
    for rule in (Rule("sensitivity", 0.9), Rule("specificity", 0.95), Rule("youden")):
        for how, label, score in (("single", positive, single), ("mean", new, mean)):
            limit = choose_threshold(label, score, rule).threshold
            if limit is not None:
                found[f"{rule.name}, {how}: sensitivity"] = Spread(float((later[new] >= limit).mean()))
                found[f"{rule.name}, {how}: specificity"] = Spread(float((later[~new] < limit).mean()))
    return found


RULES = Rule("sensitivity", 0.9), Rule("specificity", 0.9)
TABLES = {
    "thresholds": Table(
        tuple(Procedure(rule, *shape) for shape in ((240, 1), (780, 1, 0.0), (780, 1), (390, 2)) for rule in RULES)
        + tuple(
            Procedure(rule, n, None, informative=informative)
            for n in (40, 74, 237)
            for informative in (False, True)
            for rule in RULES
        )
        + tuple(Procedure(RULES[0], n, m) for n, m in ((170, 1), (220, 1), (270, 1), (340, 1), (220, 2)))
        + tuple(
            Procedure(Rule("sensitivity", 0.95), n, m) for n, m in ((240, 1), (470, 1), (490, 1), (520, 1), (390, 2))
        ),
        procedure,
        150,
    ),
    "mean-threshold": Table(
        (
            *(
                Networks(780, correlation, shift)
                for correlation, shift in ((0.3, 0.0), (0.3, 0.7), (0.6, 0.7), (0.9, 0.7))
            ),
            Networks(240, 0.5, 0.5),
            Networks(780, 0.5, 0.5, contested=3.0),
        ),
        mean_threshold,
        150,
    ),
}
"""Positive inner validation patients of a fold around the limit of 10 (0.9) or 20 (0.95) below which the variation
between the folds is used: 7, 9, 11, 14 and 9 (with 2 images); 10, 19, 20, 21 and 16 (with 2 images)."""
