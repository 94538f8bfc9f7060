"""Patients with unequal numbers of images, for every benchmark of coverage; the number may go with the difficulty.

Equal numbers are the easy case: the effective number of patients is then their number, and no patient determines the
variance. The numbers here are uniform on 1 to 20, and a patient's deviation may be correlated with them
("informative"), as if difficult patients were imaged more often.
"""

from collections.abc import Callable

import numpy as np
from scipy.stats import norm

LARGEST = 20
INFORMATIVE = 0.5
"""Correlation of a patient's number of images and deviation in the rows "informative"."""


def uneven_patients(
    rng: np.random.Generator, n_patients: int, *, informative: float = 0.0, largest: int = LARGEST
) -> tuple[np.ndarray, np.ndarray]:
    """Draw (G,) numbers of images and (G,) deviations with mean 0, variance 1 and this correlation with the number."""
    images = rng.integers(1, largest + 1, n_patients)
    return images, informative * _standard(images, largest) + np.sqrt(1 - informative**2) * rng.normal(size=n_patients)


def mean_over_images(of_patient: Callable[[np.ndarray], np.ndarray], largest: int = LARGEST) -> float:
    """Return the mean over images of a figure that depends on the patient's (20,) number of images."""
    images = np.arange(1, largest + 1)
    return float(images @ of_patient(images) / images.sum())


def true_share_above(
    threshold: float, *, mean: float, rho: float, informative: float = 0.0, largest: int = LARGEST
) -> float:
    """Return the share of images whose score is above a threshold.

    A score is ``mean`` plus sqrt(rho) times the patient's deviation plus sqrt(1 - rho) times the image's own.
    """
    spread = np.sqrt(1 - rho * informative**2)

    def above(images: np.ndarray) -> np.ndarray:
        middle = mean + np.sqrt(rho) * informative * _standard(images, largest)
        return np.asarray(norm.sf((threshold - middle) / spread))

    return mean_over_images(above, largest)


def _standard(images: np.ndarray, largest: int) -> np.ndarray:
    """Return numbers of images with mean 0 and variance 1."""
    return np.asarray((images - (largest + 1) / 2) / np.sqrt((largest**2 - 1) / 12))
