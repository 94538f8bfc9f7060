"""Nearest neighbours of embeddings: classification by k nearest neighbours and category-level retrieval.

All computations use float64 and batches of queries, so that 50,000 keys fit into memory.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from usvit.estimate import Estimate
from usvit.metrics.bootstrap import N_RESAMPLES, cluster_bootstrap
from usvit.metrics.checks import group_codes
from usvit.metrics.intervals import undefined, with_interval

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

K_CHOICES = (10, 15, 20, 25, 30)
"""Values of k to choose from (thesis, section 2.4.2)."""
SIGMA = 0.05
"""Temperature of the weights of neighbours, on the scale of the cosine (thesis, section 2.4.3)."""
SMALLEST_PROB = 1e-12
"""A probability of 0 is replaced by this before a logarithm is taken."""
_CELLS = 4_000_000  # of a block of similarities: 32 MB


def knn_probabilities(
    queries: ArrayLike,
    keys: ArrayLike,
    labels: ArrayLike,
    k: int,
    sigma: float = SIGMA,
    *,
    n_classes: int | None = None,
) -> Floats:
    """Compute class probabilities from the k nearest keys j: p(x, y) ~ sum over class y of exp(cos(x, x_j) / sigma).

    Args:
        queries: (n, D) float.
        keys: (m, D) float.
        labels: (m,) int, class of each key, from 0.
        k: neighbours, at most m; among equally near keys, the first ones are used.
        sigma: > 0; the smaller, the more the nearest key dominates.
        n_classes: K; by default the largest label + 1.

    Returns:
        (n, K) float64 in [0, 1], rows sum to one.

    Raises:
        ValueError: shapes or values that do not fit.

    Source: Touvron (2022), PhD thesis, eq. 2.6; Wu et al. (2018), Improving Generalization via Scalable Neighborhood
    Component Analysis.
    """
    asked, known, of_key = _unit(queries), _unit(keys), _labels(labels, n_classes)
    if len(known) != len(of_key):
        raise ValueError(f"{len(known)} keys and {len(of_key)} labels")
    if not 1 <= k <= len(known):
        raise ValueError(f"k = {k} neighbours of {len(known)} keys")
    if not sigma > 0:
        raise ValueError(f"sigma must be positive, not {sigma}")
    n_classes = n_classes or int(of_key.max()) + 1
    found = np.empty((len(asked), n_classes))
    for rows in _portions(len(asked), len(known)):
        found[rows] = _vote(asked[rows] @ known.T, of_key, k, sigma, n_classes)
    return found


def leave_one_out(
    keys: ArrayLike,
    labels: ArrayLike,
    ks: Sequence[int] = K_CHOICES,
    sigma: float = SIGMA,
    *,
    groups: ArrayLike | None = None,
    rows: Ints | None = None,
) -> dict[int, float]:
    """Compute the leave-one-out accuracy in [0, 1] of each k: every key is classified by all others.

    Args:
        keys: (m, D) float.
        labels: (m,) int, from 0.
        ks: values to try; those larger than the number of other keys are left out.
        sigma: as ``knn_probabilities``.
        groups: (m,) patients (or clusters of near-duplicates); keys of a query's own group are excluded.
        rows: (n,) keys to classify; None for all.

    Returns:
        {k: accuracy}; if every k is too large, only the largest possible k.

    Raises:
        ValueError: shapes or values that do not fit, or there is nothing to compare with.
    """
    known, of_key = _unit(keys), _labels(labels, None)
    n = len(known)
    group = np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1].ravel()
    if not n == len(of_key) == len(group):
        raise ValueError(f"{n} keys, {len(of_key)} labels and {len(group)} groups")
    most = n - int(np.bincount(group).max())
    if most < 1:
        raise ValueError("leave-one-out needs keys of at least two groups")
    ks = [k for k in ks if k <= most] or [most]
    n_classes, hits = int(of_key.max()) + 1, dict.fromkeys(ks, 0)
    asked = np.arange(n) if rows is None else rows
    for portion in _portions(len(asked), n):
        own = asked[portion]
        similar = known[own] @ known.T
        similar[group[own, None] == group[None]] = -np.inf
        for k in ks:
            hits[k] += int((_vote(similar, of_key, k, sigma, n_classes).argmax(1) == of_key[own]).sum())
    return {k: count / len(asked) for k, count in hits.items()}


def choose_k(accuracy: Mapping[int, float]) -> int:
    """Return the k with the best accuracy (``leave_one_out``); the smallest of equal ones."""
    return min(accuracy, key=lambda k: (-accuracy[k], k))


def average_precisions(
    queries: ArrayLike,
    keys: ArrayLike,
    query_labels: ArrayLike,
    key_labels: ArrayLike,
    *,
    coarse_prob: ArrayLike | None = None,
    key_coarse: ArrayLike | None = None,
) -> Floats:
    """Compute the average precision of all keys ranked by similarity to each query; keys of its class are relevant.

    Average precision is the mean, over the relevant keys, of the share of relevant keys among those ranked no lower.
    Keys of equal score share a rank, so the order of the keys does not matter.

    Args:
        queries: (n, D) float.
        keys: (m, D) float, the collection that is searched.
        query_labels, key_labels: (n,) and (m,) int, from 0.
        coarse_prob: (n, C) in [0, 1], a classifier's probabilities of each query's coarse class: they are added to the
            cosine as log(p / (1 - p)) of the key's coarse class (eq. 2.5). One-hot: the oracle.
        key_coarse: (m,) int, the known coarse class of each key.

    Returns:
        (n,) in [0, 1]; NaN for a query whose class no key has.

    Raises:
        ValueError: shapes or values that do not fit, or one of the coarse arguments without the other.

    Source: Touvron (2022), PhD thesis, section 2.3.2.
    """
    asked, known = _unit(queries), _unit(keys)
    of_query, of_key = _labels(query_labels, None), _labels(key_labels, None)
    if len(asked) != len(of_query) or len(known) != len(of_key):
        raise ValueError(f"{len(asked)} queries, {len(of_query)} labels; {len(known)} keys, {len(of_key)} labels")
    if (coarse_prob is None) != (key_coarse is None):
        raise ValueError("pass both coarse_prob and key_coarse, or neither")
    odds, coarse = None, None
    if coarse_prob is not None and key_coarse is not None:
        # Clip to just inside (0, 1): an oracle's certainty must outweigh every cosine and remain comparable.
        prob = np.clip(np.asarray(coarse_prob, dtype=np.float64), 1e-12, 1 - 1e-12)
        odds, coarse = np.log(prob / (1 - prob)), _labels(key_coarse, prob.shape[1])
    found = np.empty(len(asked))
    for rows in _portions(len(asked), len(known)):
        scores = asked[rows] @ known.T
        if odds is not None and coarse is not None:
            scores += odds[rows][:, coarse]
        found[rows] = average_precision(scores, of_query[rows, None] == of_key[None])
    return found


def own_ranks(queries: ArrayLike, keys: ArrayLike) -> Ints:
    """Compute the rank, from 1, of each query's own key by cosine; the own key of query i is key i.

    Among keys that are equally near, the own one comes last, so that embeddings that are all equal find nothing.

    Args:
        queries, keys: (n, D) float, pairs in the same order.

    Returns:
        (n,) int in [1, n]; the recall at k of query i is 1 if its rank is at most k.

    Raises:
        ValueError: shapes or values that do not fit.
    """
    asked, known = _unit(queries), _unit(keys)
    if len(asked) != len(known):
        raise ValueError(f"{len(asked)} queries and {len(known)} keys are no pairs")
    found = np.empty(len(asked), dtype=np.int64)
    for rows in _portions(len(asked), len(known)):
        similar = asked[rows] @ known.T
        own = np.take_along_axis(similar, np.arange(len(asked))[rows, None], axis=1)
        found[rows] = (similar >= own).sum(axis=1)
    return found


def mean_precisions(
    precisions: Mapping[str, Floats],
    groups: ArrayLike | None = None,
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> dict[str, Estimate]:
    """Compute mean average precisions with 95 % intervals; queries of a patient are resampled together.

    The searched collection is fixed, so an interval holds for other queries to the same keys. All rankings use the
    same draws.

    Args:
        precisions: name of a ranking -> (n,) from ``average_precisions``; all are NaN for the same queries.
        groups: (n,) patient (or cluster of near-duplicates) of each query; None if all are independent.
        n_resamples, seed: of the bootstrap (``bootstrap.cluster_bootstrap``).

    Raises:
        ValueError: lengths that differ, or a group is missing.
    """
    table = np.column_stack([np.asarray(one, dtype=np.float64) for one in precisions.values()])
    counts = ~np.isnan(table).all(axis=1)
    code, _ = group_codes(np.arange(len(table)) if groups is None else groups, len(table))
    if not counts.any():
        return {name: undefined("no key has the class of a query", 0) for name in precisions}
    code, n_groups = group_codes(code[counts], int(counts.sum()))
    sums = np.zeros((n_groups, table.shape[1] + 1))
    np.add.at(sums, code, np.column_stack([table[counts], np.ones(len(code))]))

    def means(drawn: Floats) -> dict[str, Floats]:
        total = drawn @ sums
        return dict(zip(precisions, (total[:, :-1] / total[:, -1:]).T, strict=True))

    found = cluster_bootstrap(means, n_groups, n_resamples=n_resamples, seed=seed)
    return {
        name: with_interval(
            one.value,
            one.ci95,
            method=f"cluster bootstrap of the queries, {one.method}, {n_resamples} resamples",
            n_groups=n_groups,
            reason=one.reason,
        )
        for name, one in found.items()
    }


def average_precision(scores: ArrayLike, relevant: ArrayLike) -> Floats:
    """Compute the (n,) average precision of each row of (n, m) scores, highest first; NaN if no key is relevant.

    Args:
        scores: (n, m) float.
        relevant: (n, m) bool.
    """
    values = np.asarray(scores, dtype=np.float64)
    n, m = values.shape
    order = np.argsort(-values, axis=1, kind="stable")
    ranked = np.take_along_axis(values, order, axis=1)
    right = np.take_along_axis(np.asarray(relevant, dtype=bool), order, axis=1)
    precision = right.cumsum(axis=1) / np.arange(1, m + 1)
    # All members of a run of equal scores get the precision at its end.
    last = np.concatenate([ranked[:, 1:] != ranked[:, :-1], np.ones((n, 1), dtype=bool)], axis=1)
    ends = np.where(last, np.arange(m), m)
    ends = np.minimum.accumulate(ends[:, ::-1], axis=1)[:, ::-1]
    total, count = (np.take_along_axis(precision, ends, axis=1) * right).sum(axis=1), right.sum(axis=1)
    return np.divide(total, count, out=np.full(n, np.nan), where=count > 0)


def _vote(similar: Floats, labels: Ints, k: int, sigma: float, n_classes: int) -> Floats:
    """Compute (n, K) probabilities from (n, m) similarities."""
    kth = np.partition(similar, similar.shape[1] - k, axis=1)[:, [-k]]
    above, level = similar > kth, similar == kth
    chosen = above | (level & (level.cumsum(axis=1) <= k - above.sum(axis=1, keepdims=True)))
    columns = np.nonzero(chosen)[1].reshape(len(similar), k)
    near = np.take_along_axis(similar, columns, axis=1)
    weight = np.exp((near - near.max(axis=1, keepdims=True)) / sigma)
    cell = np.arange(len(similar))[:, None] * n_classes + labels[columns]
    votes = np.bincount(cell.ravel(), weight.ravel(), len(similar) * n_classes).reshape(-1, n_classes)
    return votes / votes.sum(axis=1, keepdims=True)


def _portions(n: int, m: int) -> Iterator[slice]:
    step = max(1, _CELLS // m)
    return (slice(start, start + step) for start in range(0, n, step))


def _unit(vectors: ArrayLike) -> Floats:
    values = np.asarray(vectors, dtype=np.float64)
    if values.ndim != 2 or not values.size:
        raise ValueError(f"embeddings have shape {values.shape}, expected (n, D)")
    if not np.isfinite(values).all():
        raise ValueError(f"embedding {int((~np.isfinite(values)).any(axis=1).argmax())} is not finite")
    length = np.linalg.norm(values, axis=1, keepdims=True)
    return values / np.where(length > 0, length, 1)


def _labels(labels: ArrayLike, n_classes: int | None) -> Ints:
    codes = np.asarray(labels)
    if codes.ndim != 1 or not len(codes) or codes.min() < 0 or (n_classes is not None and codes.max() >= n_classes):
        raise ValueError("labels must be class numbers, from 0")
    return codes.astype(np.int64)
