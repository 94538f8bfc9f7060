"""Sample sizes of 'usvit plan': the width that studies of the planned size have, and how often they make the claim."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm
from sklearn.linear_model import LogisticRegression

from benchmarks.coverage.fixed import called_non_inferior
from benchmarks.coverage.generators import deviations
from benchmarks.coverage.harness import Outcome, Row, Spread, Table, rejects
from benchmarks.coverage.trained import area_of
from usvit.config.planning import ComparisonTest
from usvit.metrics.comparison_power import ObservedComparison
from usvit.metrics.fold_difference import difference_limits, difference_within_folds
from usvit.metrics.fold_figures import area_figure
from usvit.metrics.influence import LinearPredictor, binormal_placements, design_effect
from usvit.metrics.margin_tests import equivalence
from usvit.metrics.sample_size import (
    AreaPrecision,
    CalibrationSlope,
    NetBenefit,
    ObservedExpected,
    PreciseFigure,
    difference_intraclass,
)

THRESHOLD = 0.2
WIDTHS = {"O/E": 0.3, "slope": 0.3, "AUC": 0.1, "net benefit": 0.2}


@dataclass(frozen=True)
class Validation(Row):
    """A figure, and the AUC, prevalence, images of a patient, their coefficient of variation, and correlation."""

    name: str
    area: float
    share: float
    images: float
    variation: float
    rho: float

    @cached_property
    def patients(self) -> int:
        """The planned number of patients."""
        predictor = LinearPredictor.by_class(self.area, self.share)
        figures: dict[str, PreciseFigure] = {
            "O/E": ObservedExpected(self.share),
            "slope": CalibrationSlope(predictor),
            "AUC": AreaPrecision(self.area, self.share, predictor),
            "net benefit": NetBenefit(*predictor.called(THRESHOLD), self.share, THRESHOLD),
        }
        figure = figures[self.name]
        effect = design_effect(figure.influence.intraclass(self.rho), self.images, self.variation)
        return round(figure.size(WIDTHS[self.name]) * effect / self.images)

    def __str__(self) -> str:
        return f"{super().__str__()}: {self.patients:,} patients"

    def sizes(self, rng: np.random.Generator) -> np.ndarray:
        """Draw numbers of images from three values, with the stated mean and coefficient of variation."""
        away = self.images * self.variation
        low, high = max(1, int(np.floor(self.images - away))), int(np.ceil(self.images + away))
        if low == high:
            return np.full(self.patients, low)
        ends = away**2 / ((self.images - low) * (high - self.images)) if away else 0.0
        p_low, p_high = (ends * side / (high - low) for side in (high - self.images, self.images - low))
        return rng.choice([low, round(self.images), high], self.patients, p=[p_low, 1 - p_low - p_high, p_high])


def planned(row: Validation, k: int) -> Outcome:
    """The estimate of a calibrated model; 3.92 SDs are the width that is planned as 0.3 (O/E, slope), 0.1 or 0.2."""
    rng = np.random.default_rng([0, list(WIDTHS).index(row.name), k])
    patient = np.repeat(np.arange(row.patients), row.sizes(rng))
    positive = (rng.random(row.patients) < row.share)[patient]
    spread = float(np.sqrt(2) * norm.ppf(row.area))
    odds = (
        float(logit(row.share)) + np.where(positive, 0.5, -0.5) * spread**2 + spread * deviations(patient, row.rho, rng)
    )
    share = positive.mean()
    if row.name == "O/E":
        return {"estimate": Spread(float(share / expit(odds).mean()))}
    if row.name == "slope":
        return {"estimate": Spread(LogisticRegression(C=np.inf, tol=1e-8).fit(odds[:, None], positive).coef_[0, 0])}
    if row.name == "AUC":
        return {"estimate": Spread(area_of(positive, odds))}
    called = odds >= logit(THRESHOLD)
    found, needless = (called & positive).mean(), (called & ~positive).mean()
    return {"estimate": Spread(float((found - needless * THRESHOLD / (1 - THRESHOLD)) / share))}


@dataclass(frozen=True)
class Claim(Row):
    """Two AUCs of a planned comparison, its test and margin, images of a patient and their correlation."""

    a: float
    b: float
    test: ComparisonTest
    margin: float = 0.0
    images: int = 1
    rho: float = 0.0

    @property
    def plan(self) -> ObservedComparison:
        """The plan for a prevalence of 0.4 and models whose scores have a correlation of 0.5."""
        return ObservedComparison(self.a, self.b, 0.4, 0.5, self.test, self.margin)

    @cached_property
    def patients(self) -> tuple[int, int]:
        """The numbers of patients of the symmetric formula and of the plan, for a power of 0.8."""
        one, other = binormal_placements(self.a, 0.4), binormal_placements(self.b, 0.4)
        effect = design_effect(difference_intraclass(one, other, 0.5, self.rho), self.images)
        sizes = [size for size in (self.plan.symmetric.size(0.8), self.plan.size(0.8)) if size is not None]
        symmetric, plan = (round(size * effect / self.images) for size in sizes)
        return symmetric, plan

    def __str__(self) -> str:
        return f"{super().__str__()}: {self.patients[0]} or {self.patients[1]} patients"


def power(row: Claim, k: int) -> Outcome:
    """Share of studies that make the claim, which is planned as 0.80, with both numbers of patients."""
    names = ("symmetric formula", "plan")
    return {name: _claimed(row, n, k) for name, n in zip(names, row.patients, strict=True)}


def _claimed(row: Claim, patients: int, k: int) -> bool:
    rng, patient = np.random.default_rng([0, k]), np.repeat(np.arange(patients), row.images)
    positive = (rng.random(patients) < 0.4)[patient]
    common = deviations(patient, row.rho, rng)
    figures = [
        area_figure(
            positive,
            (common + deviations(patient, row.rho, rng)) / np.sqrt(2) + np.sqrt(2) * norm.ppf(truth) * positive,
            patient,
            patients,
        )
        for truth in (row.a, row.b)
    ]
    value = difference_within_folds([figures[:1]], [figures[1:]], 0.0, absent="", n_groups=patients)
    if row.test == "difference":
        return rejects(value)
    limits = difference_limits(value)
    if row.test == "noninferiority":
        return called_non_inferior(limits, row.margin)
    return limits is not None and equivalence(limits, row.margin).verdict == "equivalent"


_STUDIES = ((0.9, 0.3, 1.0, 0.0, 0.0), (0.8, 0.1, 1.0, 0.0, 0.0), (0.9, 0.3, 3.0, 0.5, 0.5), (0.85, 0.4, 2.0, 0.4, 0.8))
TABLES = {
    "planned": Table(tuple(Validation(name, *study) for study in _STUDIES for name in WIDTHS), planned, 600),
    "power": Table(
        (
            *(Claim(0.9, 0.85, "difference", 0.0, images, rho) for images, rho in ((1, 0.0), (3, 0.5))),
            *(Claim(0.88, 0.88, "noninferiority", 0.05, images, rho) for images, rho in ((1, 0.0), (3, 0.5))),
            Claim(0.88, 0.88, "equivalence", 0.05, 3, 0.5),
            Claim(0.97, 0.97, "noninferiority", 0.03),
            *(Claim(0.98, 0.98, "noninferiority", 0.03, images, rho) for images, rho in ((1, 0.0), (3, 0.5))),
            Claim(0.98, 0.98, "equivalence", 0.03),
            Claim(0.99, 0.99, "noninferiority", 0.02),
            Claim(0.98, 0.95, "difference"),
        ),
        power,
        500,
    ),
}
