"""Reader studies: intervals that count readers and patients, beside those that ignore one of them.

Ratings are those of Roe and Metz: the condition, and normal effects of readers, cases and their combinations, in two
modalities. The true AUC of a modality is the mean over all readers that could be drawn. A model has no reader effect.

Source: Roe & Metz (1997), Academic Radiology 4:298.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from scipy.stats import norm

from benchmarks.coverage.harness import Interval, Outcome, Row, Table, interval
from usvit.estimate import Estimate
from usvit.metrics.agreement import gwet_ac1, rater_icc, repeat_kappa, weighted_kappa
from usvit.metrics.reader_courses import change_over_readers, rank_errors, reader_means, reader_slopes
from usvit.metrics.reader_study import INFERENCES, ReaderNumbers, mean_over_readers, reader_parts

_CASES = {"high": (0.3, 0.3, 0.2, 0.2), "low": (0.1, 0.1, 0.2, 0.6)}
"""Correlation of the ratings of a case -> variances of case, modality x case, reader x case, and the rest."""


@dataclass(frozen=True)
class ReaderStudy(Row):
    """Readers, cases (half of them positive), cases of a patient, and what makes ratings vary."""

    readers: int
    cases: int
    images: int = 1
    correlation: str = "high"
    reader_variance: float = 0.03
    mu: float = 1.5
    gain: float = 0.3
    """How much larger ``mu`` is in the second modality."""

    def truth(self, mu: float) -> float:
        """Mean AUC of all readers that could be drawn."""
        return float(norm.cdf(mu / np.sqrt(2 + 4 * self.reader_variance)))

    @property
    def icc(self) -> float:
        """ICC(2,1) of the ratings in the first modality."""
        case, modality_case, reader_case, rest = _CASES[self.correlation]
        between = case + modality_case + self.mu**2 / 4
        return between / (between + 2 * self.reader_variance + reader_case + rest)

    def draw(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Draw (n,) positive, (n,) patient, (2, J, n) ratings, and (n,) scores of a model."""
        n, j = self.cases, self.readers
        positive, patient = np.arange(n) < n // 2, np.arange(n) // self.images
        case, modality_case, reader_case, rest = (np.sqrt(one) for one in _CASES[self.correlation])

        def effects(*shape: int) -> np.ndarray:
            """Draw effects of cases, half of whose variance is the patient's."""
            own, shared = rng.normal(size=(*shape, n)), rng.normal(size=(*shape, int(patient.max()) + 1))
            return own if self.images == 1 else np.sqrt(0.5) * (own + shared[..., patient])

        readers = np.sqrt(self.reader_variance) * rng.normal(size=(2, 1, j, 2))
        readers = readers + np.sqrt(self.reader_variance) * rng.normal(size=(2, 2, j, 2))
        at = positive.astype(int)
        rating = readers[0][..., at] + np.array([self.mu, self.mu + self.gain])[:, None, None] * positive
        rating = rating + case * (shared := effects()) + modality_case * effects(2)[:, None]
        rating = rating + reader_case * effects(j)[None] + rest * rng.normal(size=(2, j, n))
        model = self.mu * positive + case * shared + np.sqrt(1 - case**2) * effects()
        return positive, patient, rating, model


def reader_study(row: ReaderStudy, k: int) -> Outcome:
    """Mean AUC of a modality, the difference of both, and a model less the readers; each with three intervals."""
    positive, patient, rating, model = row.draw(np.random.default_rng([k, 31]))
    first, second, own = (reader_parts(positive, one, patient) for one in (*rating, model[None]))
    assert first is not None and second is not None and own is not None
    low, high, alone = row.truth(row.mu), row.truth(row.mu + row.gain), float(norm.cdf(row.mu / np.sqrt(2)))
    asked = {
        "AUC": (ReaderNumbers.of(first), low),
        "second minus first": (ReaderNumbers.of(second, first), high - low),
        "model minus readers": (ReaderNumbers.of(own, first), alone - low),
    }
    found = {}
    for name, (numbers, truth) in asked.items():
        for across in INFERENCES:
            value, _ = mean_over_readers(numbers, across)
            found[f"{name}, {across}"] = Interval(*(value.ci95 or (np.nan, np.nan)), truth)
    return found


@cache
def _agreement_of_many(row: ReaderStudy) -> tuple[float, float]:
    """Weighted kappa and AC1 of the first four readers of 40,000 other cases."""
    _, patient, rating, _ = replace(row, cases=40_000).draw(np.random.default_rng(8))
    return _agreement(rating[0], patient)[0].value or 0.0, _agreement(rating[0], patient)[1].value or 0.0


def _agreement(rating: np.ndarray, patient: np.ndarray) -> tuple[Estimate, Estimate]:
    return weighted_kappa([*np.round(2 * rating)], patient), gwet_ac1([*(rating >= 1)], patient)


@cache
def _repeats_of_many(row: ReaderStudy) -> float:
    """Weighted kappa of first and second ratings of 40,000 other cases."""
    rng = np.random.default_rng(9)
    _, patient, rating, _ = replace(row, cases=40_000).draw(rng)
    return repeat_kappa(*_read_again(rng, rating[0]), patient).value or 0.0


def _read_again(rng: np.random.Generator, rating: np.ndarray) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return ratings, and second ratings of a third of the cases, other ones of each reader."""
    again = np.round(2 * (rating + 0.5 * rng.normal(size=rating.shape)))
    return [*np.round(2 * rating)], [*np.where(rng.random(rating.shape) < 1 / 3, again, np.nan)]


def agreement(row: ReaderStudy, k: int) -> Outcome:
    """Agreement of readers: weighted kappa of ratings and AC1 of decisions, the ICC, and kappa within readers."""
    rng = np.random.default_rng([k, 32])
    _, patient, rating, _ = row.draw(rng)
    named = zip(("weighted kappa", "AC1"), _agreement(rating[0], patient), _agreement_of_many(row), strict=True)
    found = {name: interval(value, truth) for name, value, truth in named}
    found["ICC(2,1)"] = interval(rater_icc([*rating[0]], patient), row.icc)
    again = _read_again(rng, rating[0])
    return found | {"kappa within readers": interval(repeat_kappa(*again, patient), _repeats_of_many(row))}


def courses(row: ReaderStudy, k: int) -> Outcome:
    """Times of two modalities, courses of a session of random order, and the ICC between readers.

    The logarithm of a time has normal effects of case, reader, reader x modality and reading; that of the first
    modality falls by 0.4 within a session, and not equally for each reader.
    """
    rng = np.random.default_rng([k, 33])
    positive, patient, rating, _ = row.draw(rng)
    n, j = row.cases, row.readers
    place = np.stack([rng.permutation(n) for _ in range(j)]) / (n - 1)
    case = 0.2 * (rng.normal(size=n) + rng.normal(size=int(patient.max()) + 1)[patient])
    slope = -0.4 + 0.15 * rng.normal(size=(j, 1))
    logs = case + 0.3 * rng.normal(size=(j, 1)) + 0.1 * rng.normal(size=(2, j, 1)) + 0.4 * rng.normal(size=(2, j, n))
    logs[0] += slope * place
    logs[1] += slope * place - 0.3
    strata = [positive.astype(int)] * j
    errors = np.stack([rank_errors(positive, one) for one in rating[0]])
    time, error = (reader_slopes(place, one, strata, patient) for one in (logs[0], errors))
    assert time is not None and error is not None
    asked = {
        "ratio of times": (reader_means(logs[1] - logs[0], patient), float(np.exp(-0.3)), True),
        "time, end against start": (time, float(np.exp(-0.4)), True),
        "rank error, end less start": (error, 0.0, False),
    }
    found = {
        f"{name}, {across}": interval(change_over_readers(numbers, across, logarithms=logs_), truth)
        for name, (numbers, truth, logs_) in asked.items()
        for across in INFERENCES
    }
    found["ICC(2,1)"] = interval(rater_icc([*rating[0]], patient), row.icc)
    return found


TABLES = {
    "reader-courses": Table(
        (ReaderStudy(3, 100), ReaderStudy(5, 200, images=2), ReaderStudy(10, 60, correlation="low")),
        courses,
        500,
    ),
    "mrmc": Table(
        (
            ReaderStudy(3, 100),
            ReaderStudy(5, 200),
            ReaderStudy(10, 60),
            ReaderStudy(5, 200, images=2),
            ReaderStudy(4, 101, images=3, correlation="low"),
            ReaderStudy(5, 200, correlation="low", reader_variance=0.0055),
            ReaderStudy(5, 200, mu=2.5, gain=0.0),
        ),
        reader_study,
        1000,
    ),
    "agreement": Table(
        (
            ReaderStudy(3, 100, reader_variance=0.0),
            ReaderStudy(5, 200, images=2, reader_variance=0.0),
            ReaderStudy(4, 61, images=3, correlation="low", reader_variance=0.0),
            ReaderStudy(2, 40, reader_variance=0.0, mu=2.5),
        ),
        agreement,
        1000,
    ),
}
