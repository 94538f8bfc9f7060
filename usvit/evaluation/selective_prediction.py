"""Section ``selective`` of metrics.json: the model abstains where it is uncertain, or rules patients out.

Each curve is about test images. The cuts of ``deferral`` and ``rule_out`` are quantiles of the images that choose the
thresholds of operating points (inner validation), so that a share which is asked for is only roughly attained.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from usvit.errors import LeakageError
from usvit.estimate import Estimate
from usvit.evaluation.prediction_arrays import Rows, rows_of
from usvit.evaluation.thresholds import choosing_rows, refuse_leak
from usvit.metrics.basic import decide
from usvit.metrics.checks import group_codes
from usvit.metrics.proportions import clustered_share, share
from usvit.metrics.selective import risk_coverage
from usvit.records import DeferralPoint, RuleOutPoint, SelectiveRecord

_DEFERRED = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5)
_NOT_READ = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""Shares of the inner validation images, or patients, from which the cuts are taken."""


def selective_section(table: pd.DataFrame, positive: str) -> SelectiveRecord:
    """Compute the risk-coverage curve, the deferral curve and the rule-out curve of the test images.

    Args:
        table: a predictions table.
        positive: one of the classes.

    Returns:
        ``risk_coverage``; and ``deferral`` and ``rule_out``, whose points are empty with a ``reason`` if nothing can
        choose the cuts.
    """
    test = rows_of(table, "test")
    wrong = decide(test.prob) != test.label
    source, chooser = choosing_rows(table)
    reason = _unusable(test, chooser)
    return SelectiveRecord(
        risk_coverage=risk_coverage(test.prob.max(axis=1), wrong, test.group),
        source=source,
        reason=reason,
        deferral=[] if reason else _deferral(test, chooser, positive),
        rule_out=[] if reason else _rule_out(test, chooser, positive),
    )


def _unusable(test: Rows, chooser: Mapping[int, Rows]) -> str | None:
    for fold, rows in chooser.items():
        if not len(rows):
            return "there is one fold and it has no inner validation images to choose a cut on"
        try:
            refuse_leak(rows, test[test.fold == fold], fold)
        except LeakageError as error:
            return str(error)
    return None


def _deferral(test: Rows, chooser: Mapping[int, Rows], positive: str) -> list[DeferralPoint]:
    """Defer the images with the lowest confidence to a reader, and judge the decisions that remain."""
    k = test.index(positive)
    confidence, decided = test.prob.max(axis=1), decide(test.prob)
    reference, called = test.label == k, decided == k
    group = group_codes(test.group, len(test))[0]  # of numbers, groups are found faster than of names
    points = []
    for target in _DEFERRED:
        cut = {fold: float(np.quantile(rows.prob.max(axis=1), target)) for fold, rows in chooser.items()}
        kept = confidence >= np.array([cut[int(fold)] for fold in test.fold])

        def among(at: np.ndarray, hits: np.ndarray, of: str) -> Estimate:
            return share(hits[at], group[at], of=of, interval=clustered_share)

        points.append(
            DeferralPoint(
                target=target,
                deferred=among(np.ones_like(kept), ~kept, "images"),
                error=among(kept, decided != test.label, "images that are not deferred"),
                sensitivity=among(kept & reference, called, "positive images that are not deferred"),
                specificity=among(kept & ~reference, ~called, "negative images that are not deferred"),
                positives_deferred=among(reference, ~kept, "positive images"),
            )
        )
    return points


def _rule_out(test: Rows, chooser: Mapping[int, Rows], positive: str) -> list[RuleOutPoint]:
    """Do not read patients whose images are all below a cut, and count what that saves and what it misses."""
    k = test.index(positive)
    score, ill, fold = _patients(test, k)
    points = []
    for target in _NOT_READ:
        cut = {one: float(np.quantile(_patients(rows, k)[0], target)) for one, rows in chooser.items()}
        left = score < np.array([cut[int(one)] for one in fold])
        names = np.arange(len(score))

        def among(at: np.ndarray, hits: np.ndarray, of: str, names: np.ndarray = names) -> Estimate:
            return share(hits[at], names[at], of=of, interval=clustered_share)

        missed, spared = int((left & ill).sum()), int((left & ~ill).sum())
        points.append(
            RuleOutPoint(
                target=target,
                not_read=among(np.ones_like(left), left, "patients"),
                false_omission=among(left, ill, "patients that are not read"),
                sensitivity_lost=among(ill, left, "positive patients"),
                rest_not_read=among(~ill, left, "patients without a positive image"),
                n_missed=missed,
                n_spared=spared,
                spared_per_missed=spared / missed if missed else None,
            )
        )
    return points


def _patients(rows: Rows, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the highest probability of class k of each patient, whether an image is of class k, and the fold."""
    code, names = pd.factorize(rows.group, sort=True)
    score, ill = np.zeros(len(names)), np.zeros(len(names), dtype=bool)
    fold = np.zeros(len(names), dtype=np.int64)
    np.maximum.at(score, code, rows.prob[:, k])
    np.logical_or.at(ill, code, rows.label == k)
    fold[code] = rows.fold
    return score, ill, fold
