"""Distribution of the mean score of several networks if no image is new to all of them.

In a cross-validation, most networks were trained on each image, so their mean over it does not represent new images.
But each image is a test image of one network, and some are inner validation images of a second network that was not
trained on them. The distribution of the mean follows from single scores and such pairs, separately for each class.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm, rankdata

Float = NDArray[np.float64]

_N_DRAWS = 20_000
"""Draws for each class: the share above a threshold has a standard error of 0.002 at 0.9."""
MIN_PAIRS = 20
"""Minimum number of images of a class that two networks scored unseen. With 20, a correlation of 0.6 has a standard
error of 0.15, and the sensitivity at a threshold one of 0.02 (the table ``mean-threshold`` of benchmarks.coverage)."""


@dataclass(frozen=True)
class _MeanScores:
    """Draws of the mean score of all networks on images that none of them has seen."""

    positive: Float
    """(N_DRAWS,) draws for positive images."""
    negative: Float
    """(N_DRAWS,) draws for the other images."""
    correlation: tuple[float, float]
    """Correlation of two networks' normal scores on one image: for positive images, for the others."""
    n_pairs: tuple[int, int]
    """Images that at least two networks scored unseen: positive ones, others."""


def mean_scores(
    tested: Float, validated: Float, positive: NDArray[np.bool_], *, n_draws: int = _N_DRAWS, seed: int = 0
) -> _MeanScores | str:
    """Draw mean scores of K networks from their scores of images that they have not seen.

    Within a class, the scores of each network are distributed as on its test images, and the scores of two networks on
    one image are related by a Gaussian copula. Its correlation is estimated from all images that two or more networks
    scored unseen. Inner validation images are used for the correlation only, because they stopped the training.

    Args:
        tested: (n, K) probability of the positive class by the networks whose test image it is, NaN elsewhere.
        validated: (n, K) the same for the networks whose inner validation image it is.
        positive: (n,) bool.
        n_draws, seed: of the draws.

    Returns:
        The draws, or a sentence with the reason why there are none.

    Source: Nelsen (2006), An Introduction to Copulas, section 2.3; normal scores: van der Waerden (1952).
    """
    rng = np.random.default_rng(seed)
    drawn = {}
    for what, at in (("positive", positive), ("other", ~positive)):
        one = _of_class(tested[at], validated[at], n_draws, rng)
        if isinstance(one, str):
            return f"{what} images: {one}"
        drawn[what] = one
    up, down = drawn["positive"], drawn["other"]
    return _MeanScores(up[0], down[0], (up[1], down[1]), (up[2], down[2]))


def _of_class(
    tested: Float, validated: Float, n_draws: int, rng: np.random.Generator
) -> tuple[Float, float, int] | str:
    n_members = tested.shape[1]
    if np.isnan(tested).all(axis=0).any():
        return "the test images of a network contain none"
    own, inner = _normal_scores(tested), _normal_scores(validated)
    z = np.where(np.isnan(own), inner, own)
    z = z[(~np.isnan(z)).sum(axis=1) > 1]
    if len(z) < MIN_PAIRS:
        return f"{len(z)} were scored by two networks that had not seen them, {MIN_PAIRS} are needed"
    # Mean product over mean square, over all pairs of networks of an image.
    n, squares = (~np.isnan(z)).sum(axis=1), np.nansum(z**2, axis=1)
    products, scale = float((np.nansum(z, axis=1) ** 2 - squares).sum()), float((squares * (n - 1)).sum())
    correlation = float(np.clip(products / scale, 0, 1)) if scale > 0 else 1.0
    shared, single = rng.standard_normal((n_draws, 1)), rng.standard_normal((n_draws, n_members))
    level = norm.cdf(np.sqrt(correlation) * shared + np.sqrt(1 - correlation) * single)
    mean = np.zeros(n_draws)
    for k in range(n_members):
        values = np.sort(tested[~np.isnan(tested[:, k]), k])
        mean += np.interp(level[:, k], (np.arange(len(values)) + 1) / (len(values) + 1), values) / n_members
    return mean, correlation, len(z)


def _normal_scores(prob: Float) -> Float:
    """Convert the ranks of each column of (n, K) to quantiles of the standard normal distribution; NaN is kept."""
    ranks = rankdata(prob, axis=0, nan_policy="omit")
    return np.asarray(norm.ppf((ranks - 0.5) / np.maximum((~np.isnan(prob)).sum(axis=0), 1)))
