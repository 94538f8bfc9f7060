"""How many arbitrary halves of its classes a linear classifier separates in a network's features.

Source: Touvron (2022), PhD thesis, section 2.2.1, Table 2.1: "for each coarse label, we randomly and evenly split the
training images into two subcategories ... we sample 10 distinct splits ... we then compute the mean accuracy ... on the
training examples". Not stated there and chosen here: the classifier is a logistic regression with the weakest strength
of the linear probe; conditioning multiplies its probabilities by those of a logistic regression on the coarse classes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from usvit.seeding import derive_seed
from usvit.upstream.transfer_learning.affine import Affine
from usvit.upstream.transfer_learning.linear import fit_logistic

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _Separated:
    """Training images that were classified correctly after one random split, each of shape (n,)."""

    right: NDArray[np.bool_]
    conditioned: NDArray[np.bool_]
    """Conditioned on the predicted coarse class."""


def random_halves(coarse: Ints, seed: int, draw: int) -> Ints:
    """Split the images of each class at random into two halves of equal size, or of one image more in the first.

    Args:
        coarse: Class of each image, of shape (n,).
        seed: Seed of the run.
        draw: Number of the split, from 0.

    Returns:
        Shape (n,): 2 class + 0 or 1.
    """
    rng = np.random.default_rng(derive_seed(seed, "separability", draw))
    shuffled = rng.permutation(len(coarse))
    by_class = shuffled[np.argsort(coarse[shuffled], kind="stable")]
    _, starts, counts = np.unique(coarse[by_class], return_index=True, return_counts=True)
    found = np.empty_like(coarse)
    found[by_class] = 2 * coarse[by_class] + (np.arange(len(coarse)) - np.repeat(starts, counts)) % 2
    return found


def separate(features: NDArray[np.floating], labels: Ints, of_coarse: Affine, n_coarse: int, l2: float) -> _Separated:
    """Fit a linear classifier to random labels, and classify the same images.

    Args:
        features: Shape (n, D).
        labels: Result of ``random_halves``.
        of_coarse: Classifier of the coarse classes.
        n_coarse: Number of coarse classes.
        l2: Strength of the regularisation.
    """
    log_prob = log_softmax(fit_logistic(features, labels, 2 * n_coarse, l2)(features), axis=1)
    given = log_prob + np.repeat(log_softmax(of_coarse(features), axis=1), 2, axis=1)
    return _Separated(log_prob.argmax(axis=1) == labels, given.argmax(axis=1) == labels)
