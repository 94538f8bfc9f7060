"""The share of the variance between folds that is due to chance in training, which correlates their errors."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import rankdata

from usvit.records import TrainingShareRecord

MIN_PAIRS = 50
"""Fewer pairs of predictions of one group by two models are not enough to estimate their agreement."""
WHOLE_SHARE = 1.0
"""Training share that is assumed if it cannot be estimated: its maximum."""


def training_share(
    positive: np.ndarray, scores: Sequence[np.ndarray], code: np.ndarray, fold: np.ndarray, n_groups: int
) -> TrainingShareRecord:
    """Estimate the share of the folds' variance due to chance in training, from models that score the same group.

    Two models were trained on sets that share a fraction r of their images. On images that neither has seen, their
    scores have a correlation c = 1 - (1 - r) s within a class, where s is the share of the variance of the scores that
    depends on the training set. Hence s = (1 - c) / (1 - r). Such images are the test images of other repeats, and the
    inner validation images of a fold, which are test images of another fold. Disagreement due to random seeds is
    included in s, so s is too large rather than too small.

    Args:
        positive: (n,) bool, for all rows that a model scored without having trained on them: splits test and val
            of all folds and repeats.
        scores: one (n,) float for the share of one model's figures; two, of models A and B on the same rows, for
            that of their difference. Only the order of the scores matters.
        code: (n,) int in 0 ... n_groups - 1.
        fold: (n,) int, numbered through all repeats.
        n_groups: G.

    Returns:
        ``WHOLE_SHARE``, with the reason, if there are fewer than ``MIN_PAIRS`` pairs.
    """
    models, row = np.unique(fold, return_inverse=True)
    seen = np.ones((len(models), n_groups), bool)
    seen[row, code] = False
    size = np.maximum(seen.sum(axis=1), 1)
    common = (seen.astype(float) @ seen.T) / np.sqrt(np.outer(size, size))
    agreed = spread = pairs = shared = 0.0
    for stratum in (positive, ~positive):
        there = np.zeros((len(models), n_groups), bool)
        there[row[stratum], code[stratum]] = True
        z = _standardised(row[stratum], code[stratum], scores[0][stratum], there)
        if len(scores) == 2:
            z = _scaled(z - _standardised(row[stratum], code[stratum], scores[1][stratum], there), there)
        count = there.astype(float) @ there.T
        n = np.maximum(there.sum(axis=1), 1)
        # Even equal models give a group unequal ranks among unequal other groups: this correlation would remain.
        ranks = np.sqrt(np.maximum(n * n - 1, 1))
        kept = (np.outer(n - 1, n - 1) + 2 * np.maximum(count - 1, 0)) / np.outer(ranks, ranks)
        use = np.triu((count > 0) & (n[:, None] > 2) & (n[None, :] > 2), 1)
        agreed += float(((z @ z.T)[use] / kept[use]).sum())
        squares = (z * z) @ there.T.astype(float)  # of one model's ranks, over the groups that the other scored as well
        spread += float(np.sqrt(squares * squares.T)[use].sum())
        pairs += float(count[use].sum())
        shared += float((common * count)[use].sum())
    if pairs < MIN_PAIRS:
        why = "no image was scored by two models that did not see it: there are no repeats and no inner validation rows"
        return TrainingShareRecord(
            value=WHOLE_SHARE,
            n_pairs=int(pairs),
            reason=why if not pairs else f"only {int(pairs)} pairs of predictions",
        )
    apart = 1 - shared / pairs
    if apart <= 0:
        return TrainingShareRecord(
            value=WHOLE_SHARE, n_pairs=int(pairs), reason="the models were trained on the same images"
        )
    correlation = agreed / spread if spread else 1.0
    return TrainingShareRecord(value=float(np.clip((1 - correlation) / apart, 0.0, 1.0)), n_pairs=int(pairs))


def _standardised(row: np.ndarray, code: np.ndarray, score: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Compute (models, G) ranks of the mean scores of the groups for each model, with mean 0 and variance 1."""
    shape = there.shape
    cell = row * shape[1] + code
    count = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    mean = np.bincount(cell, score, shape[0] * shape[1]).reshape(shape) / np.maximum(count, 1)
    ranks = np.zeros(shape)
    for k in range(shape[0]):
        ranks[k, there[k]] = rankdata(mean[k, there[k]])
    return _scaled(ranks, there)


def _scaled(values: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Scale each row to mean 0 and variance 1 over the present cells; the other cells are 0."""
    n = np.maximum(there.sum(axis=1, keepdims=True), 1)
    centred = np.where(there, values - (values * there).sum(axis=1, keepdims=True) / n, 0.0)
    spread = np.sqrt((centred**2).sum(axis=1, keepdims=True) / np.maximum(n - 1, 1))
    return np.divide(centred, spread, out=np.zeros_like(centred), where=spread > 1e-12)
