"""A random search over settings, simulated from trainings that were all made: the best of k random ones.

Source: Steiner et al. (2022), How to train your ViT?, Figure 2, right, where 1,000 random samples are drawn. Here all
sets of k settings are counted exactly.
"""

from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

_COVERAGE = 0.9
"""Share of the searches between ``low`` and ``high`` (Steiner et al. 2022, Figure 2)."""


class _RandomSearch(NamedTuple):
    """Test figures of random searches with the same number of trials."""

    mean: float
    median: float
    low: float
    """5 % quantile."""
    high: float
    """95 % quantile."""


def best_of_random(validation: ArrayLike, test: ArrayLike, n_trials: int) -> _RandomSearch:
    """Return the test figure of the best of k settings on validation images, over all sets of k of the n settings.

    The setting with the r-th worst validation figure is the best of a set with probability C(r - 1, k - 1) / C(n, k).
    A quantile is the smallest test figure whose cumulative probability reaches it.

    Args:
        validation: Validation figure of each of the n settings, of shape (n,); larger is better. NaN (a training that
            diverged) is worse than all others. Of equal ones, the first is better.
        test: Test figure of each setting, of shape (n,).
        n_trials: Number k of settings in a set, from 1 to n, drawn without replacement.

    Raises:
        ValueError: The arrays have different shapes, or k is not from 1 to n.
    """
    chosen_on, figure = np.asarray(validation, dtype=np.float64), np.asarray(test, dtype=np.float64)
    n = len(figure)
    if chosen_on.shape != (n,) or figure.shape != (n,):
        raise ValueError(f"{chosen_on.shape} validation figures and {figure.shape} test figures")
    if not 1 <= n_trials <= n:
        raise ValueError(f"{n_trials} trials of {n} settings")
    best_first = np.argsort(-np.nan_to_num(chosen_on, nan=-np.inf), kind="stable")
    sets = comb(n, n_trials)
    probability = np.zeros(n)
    probability[best_first] = [comb(n - 1 - place, n_trials - 1) / sets for place in range(n)]
    ascending = np.argsort(figure, kind="stable")
    cumulative = np.cumsum(probability[ascending])

    def quantile(share: float) -> float:
        # Rounding of the sums must not move a quantile that is reached exactly.
        return float(figure[ascending][min(int(np.searchsorted(cumulative, share - 1e-12)), n - 1)])

    tail = (1 - _COVERAGE) / 2
    return _RandomSearch(float(probability @ figure), quantile(0.5), quantile(tail), quantile(1 - tail))
