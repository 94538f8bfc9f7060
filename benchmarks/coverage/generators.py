"""Patients with one, several or unequal numbers of images, and the scores of their images."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.stats import norm

from benchmarks.coverage.harness import Row

LARGEST = 20
INFORMATIVE = 0.5
"""Correlation of a patient's number of images and deviation in the rows "informative"."""


def uneven_patients(
    rng: np.random.Generator, n_patients: int, *, informative: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Draw (G,) numbers of images and (G,) deviations with mean 0, variance 1 and this correlation with the number.

    Equal numbers of images are the easy case: the effective number of patients is then their number, and no patient
    determines the variance. These are uniform on 1 to 20, and the deviation may go with them ("informative"), as if
    difficult patients were imaged more often.
    """
    images = rng.integers(1, LARGEST + 1, n_patients)
    return images, informative * _standard(images) + np.sqrt(1 - informative**2) * rng.normal(size=n_patients)


def true_share_above(threshold: float, *, mean: float, rho: float, informative: float = 0.0) -> float:
    """Return the share of images whose score is above a threshold.

    A score is ``mean`` plus sqrt(rho) times the patient's deviation plus sqrt(1 - rho) times the image's own.
    """
    images = np.arange(1, LARGEST + 1)
    middle = mean + np.sqrt(rho) * informative * _standard(images)
    above = norm.sf((threshold - middle) / np.sqrt(1 - rho * informative**2))
    return float(images @ above / images.sum())


def _standard(images: np.ndarray) -> np.ndarray:
    """Return numbers of images with mean 0 and variance 1."""
    return np.asarray((images - (LARGEST + 1) / 2) / np.sqrt((LARGEST**2 - 1) / 12))


@dataclass(frozen=True)
class Cohort(Row):
    """Patients with given numbers of images, how many are positive, and whether labels are by patient or by image."""

    title: str
    images: tuple[int, ...]
    n_positive: int
    by_image: bool = False

    def __str__(self) -> str:
        return self.title

    @cached_property
    def patient(self) -> np.ndarray:
        """The (n,) patient of each image."""
        return np.repeat(np.arange(len(self.images)), self.images)

    def labels(self, rng: np.random.Generator) -> np.ndarray:
        """Draw (n,) labels."""
        groups = len(self.images)
        if self.by_image:
            return rng.random(len(self.patient)) < self.n_positive / groups
        return (rng.permutation(groups) < self.n_positive)[self.patient]


def deviations(patient: np.ndarray, rho: float, rng: np.random.Generator) -> np.ndarray:
    """Draw (n,) deviations of variance 1, of which rho is the patient's."""
    own = rng.normal(size=int(patient.max()) + 1)[patient]
    return np.sqrt(rho) * own + np.sqrt(1 - rho) * rng.normal(size=len(patient))


def _drawn(n_patients: int) -> tuple[int, ...]:
    return tuple(np.random.default_rng(0).integers(1, LARGEST + 1, n_patients).tolist())


COHORTS = (
    Cohort("1,064 patients x 1 to 2 images, 342 positive", (2,) * 811 + (1,) * 253, 342),
    Cohort("38 patients x 18, 13 positive", (18,) * 38, 13),
    Cohort("38 patients x 18, labels by image", (18,) * 38, 13, by_image=True),
    Cohort("74 patients x 1 to 20, 22 positive", _drawn(74), 22),
    Cohort("23 patients x 1 to 20, 7 positive", _drawn(23), 7),
    Cohort("23 patients x 1 to 20, labels by image", _drawn(23), 7, by_image=True),
)
"""The first two have the numbers of BUS-BRA and BUS-UCLM."""


@dataclass(frozen=True)
class Correlated(Row):
    """A cohort and the correlation of the scores of two images of one patient and class."""

    cohort: Cohort
    rho: float

    def deviations(self, rng: np.random.Generator) -> np.ndarray:
        return deviations(self.cohort.patient, self.rho, rng)

    def pair(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Draw labels and the deviations of two models, which share half of their variance."""
        positive, common = self.cohort.labels(rng), self.deviations(rng)
        a, b = ((common + self.deviations(rng)) / np.sqrt(2) for _ in range(2))
        return positive, a, b


CORRELATED = tuple(Correlated(cohort, rho) for cohort in COHORTS for rho in (0.5, 0.8))
