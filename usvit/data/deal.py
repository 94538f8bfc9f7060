"""Dealing whole groups into parts, every stratum in proportion."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def deal(
    groups: ArrayLike,
    strata: ArrayLike,
    fractions: Sequence[float],
    seed: int,
    *,
    classes: ArrayLike | None = None,
    fixed: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Deal whole groups into parts of given sizes, every stratum in proportion.

    Groups are shuffled, then dealt from the one with the most uneven class counts to the
    least, each to the part where the shares of the strata stay most alike. With equal
    fractions this is scikit-learn's ``StratifiedGroupKFold``; unequal ones serve hold-outs.
    A class that has just enough groups left for the parts that still lack it goes to those:
    where every group is of one class, a class of k groups reaches all of k parts.

    Args:
        groups: (n,) the group of each image.
        strata: (n,) the stratum of each image.
        fractions: (k,) share of each part, summing to 1.
        seed: of the shuffle.
        classes: (n,) the class of each image, none of which a part should lack; by default the strata.
        fixed: (n,) the part that an image has already, or -1; one part within a group.

    Returns:
        (n,) the part of each image, in [0, k).
    """
    share = np.asarray(fractions, dtype=np.float64)
    _, group_of = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    counts = _counts(group_of, strata)  # (groups, strata)
    holds = _counts(group_of, strata if classes is None else classes) > 0  # (groups, classes)
    wanted = share[:, None] * counts.sum(axis=0)  # (k, strata)

    shuffled = np.random.default_rng(seed).permutation(len(counts))
    order = shuffled[np.argsort(-counts[shuffled].std(axis=1), kind="stable")]
    given = np.full(len(counts), -1)
    if fixed is not None:
        np.maximum.at(given, group_of, fixed)
        order = np.concatenate([order[given[order] >= 0], order[given[order] < 0]])
    dealt = np.zeros_like(wanted)
    lacks = np.ones((len(share), holds.shape[1]), dtype=bool)
    left = holds.sum(axis=0)
    part_of = np.zeros(len(counts), dtype=np.int64)
    one_more = np.eye(len(share))[:, :, None]
    for group in order:
        scarce = holds[group] & (left <= lacks.sum(axis=0))
        allowed = np.flatnonzero(lacks[:, scarce].all(axis=1)) if scarce.any() else np.arange(len(share))
        allowed = allowed if len(allowed) else np.flatnonzero(lacks[:, scarce].any(axis=1))
        # Alike in every stratum first; among equals the part that is emptiest for its size.
        unlike = ((dealt + one_more * counts[group]) / wanted).std(axis=1).mean(axis=1).round(9)
        fullness = (dealt.sum(axis=1) + counts[group].sum()) / share
        best = given[group] if given[group] >= 0 else min(allowed, key=lambda part: (unlike[part], fullness[part]))
        dealt[best] += counts[group]
        lacks[best] &= ~holds[group]
        left -= holds[group]
        part_of[group] = best
    return part_of[group_of]


def _counts(group_of: NDArray[np.int64], kinds: ArrayLike) -> NDArray[np.float64]:
    """(groups, kinds) images of each kind in each group."""
    _, kind_of = np.unique(np.asarray(kinds, dtype=str), return_inverse=True)
    counts = np.zeros((group_of.max() + 1, kind_of.max() + 1))
    np.add.at(counts, (group_of, kind_of), 1)
    return counts
