"""Interval of an operating point as a procedure: choose a threshold on some patients, then decide on new ones.

An interval that takes the thresholds as given ignores that other inner validation patients would give other
thresholds. Here, whole groups are resampled, the threshold of each fold is chosen again on the drawn inner validation
images, and the drawn test images are decided by it. docs/explanation/operating-points.md states the estimand and the
coverage of the interval.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from usvit.estimate import Estimate, Interval
from usvit.evaluation.prediction_arrays import Rows
from usvit.metrics.bootstrap import N_RESAMPLES
from usvit.metrics.fold_variation import METHOD as FOLDS_METHOD
from usvit.metrics.fold_variation import fold_variation_interval, mean_overlap
from usvit.metrics.intervals import ALPHA
from usvit.metrics.support import support_of
from usvit.metrics.threshold_choice import Rule, chosen_thresholds
from usvit.records import OutcomeRecord, ProcedureRecord

PROPORTIONS = ("sensitivity", "specificity", "ppv", "npv")
_MAX_WITHOUT = 0.2
"""There is no interval above this share of resamples in which some fold has no threshold. It is larger than
``bootstrap.MAX_UNDEFINED``: with 10 positive inner validation images per fold, coverage is still 0.9 or more."""
CELLS = 2_000_000
"""Resamples x images in memory at once: 16 MB of float64."""


def draw_procedure(
    test: Rows,
    chooser: Mapping[int, Rows],
    k: int,
    rules: Sequence[Rule],
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> np.ndarray:
    """Compute sensitivity, specificity, PPV and NPV of each rule in resamples of whole groups.

    A group is drawn with all its images in all folds: test images and images that choose a threshold.

    Args:
        test: the test images, each decided by the threshold of its fold.
        chooser: fold -> the images that choose its threshold, disjoint in groups from the fold's test images.
        k: index of the positive class.
        rules: rules that are not fixed.
        n_resamples, seed: of the bootstrap.

    Returns:
        (B, R, 4), NaN if a fold has no threshold or a denominator is 0.
    """
    folds = sorted(chooser)
    parts = [test, *(chooser[fold] for fold in folds)]
    codes, names = pd.factorize(np.concatenate([one.group for one in parts]), sort=True)
    code = np.split(codes, np.cumsum([len(one) for one in parts])[:-1])
    n_groups, n_images = len(names), max(len(one) for one in parts)
    positive, score = test.label == k, test.prob[:, k]
    at = [np.flatnonzero(test.fold == fold) for fold in folds]
    rng = np.random.default_rng(seed)
    out = np.empty((n_resamples, len(rules), 4))
    step = max(1, CELLS // max(n_images, n_groups))
    for start in range(0, n_resamples, step):
        size = min(step, n_resamples - start)
        groups = rng.integers(0, n_groups, (size, n_groups)) + n_groups * np.arange(size)[:, None]
        drawn = np.bincount(groups.ravel(), minlength=size * n_groups).reshape(size, n_groups)
        tested = drawn[:, code[0]].astype(np.float64)  # (size, n)
        choosing = [drawn[:, one] for one in code[1:]]
        n_positive = tested @ positive
        n_negative = tested @ ~positive
        for r, rule in enumerate(rules):
            true_positive, false_positive, missing = np.zeros(size), np.zeros(size), np.zeros(size, dtype=bool)
            for fold, counts, own in zip(folds, choosing, at, strict=True):
                rows = chooser[fold]
                threshold = chosen_thresholds(rows.label == k, rows.prob[:, k], counts, rule)
                missing |= np.isnan(threshold)
                called = tested[:, own] * (score[own] >= threshold[:, None])
                true_positive += called @ positive[own]
                false_positive += called @ ~positive[own]
            with np.errstate(invalid="ignore", divide="ignore"):
                true_negative, false_negative = n_negative - false_positive, n_positive - true_positive
                found = np.stack(
                    [
                        true_positive / n_positive,
                        true_negative / n_negative,
                        true_positive / (true_positive + false_positive),
                        true_negative / (true_negative + false_negative),
                    ],
                    axis=1,
                )
            out[start : start + size, r] = np.where(missing[:, None], np.nan, found)
    return out


def why_no_bootstrap(rule: Rule, chooser: Mapping[int, Rows], k: int) -> str | None:
    """Return the reason if the bootstrap cannot show how much the thresholds of a rule vary; None if it can.

    With G groups of the class of the target, a rule may miss (1 - target) G of them. Below one, its threshold is the
    lowest score of the class (for a specificity, the highest), and the bootstrap of a minimum is inconsistent.

    Args:
        rule, chooser, k: as ``draw_procedure``.

    Source: Bickel & Freedman (1981), Annals of Statistics 9:1196, section 6 (the bootstrap of an extreme value fails).
    """
    if rule.kind not in ("sensitivity", "specificity") or rule.target is None:
        return None
    of_fold = {fold: support_of(_codes(_of_target(rule, rows, k))).effective for fold, rows in chooser.items()}
    fold = min(of_fold, key=lambda one: of_fold[one])
    if of_fold[fold] * (1 - rule.target) >= 1 - 1e-9:
        return None
    extreme, of = ("lowest", "positive") if rule.kind == "sensitivity" else ("highest", "negative")
    return (
        f"the threshold of fold {fold} is the {extreme} score of its {of_fold[fold]:.0f} {of} groups or near it, and a "
        "bootstrap does not show how much that varies"
    )


def procedure_from_folds(
    rule: Rule, why: str, pooled: OutcomeRecord, test: Rows, called: np.ndarray, chooser: Mapping[int, Rows], k: int
) -> ProcedureRecord:
    """Compute the figures of one rule with intervals from the variation between folds.

    Each interval is extended to the one that takes the thresholds as given.

    Args:
        rule, chooser, k: as ``draw_procedure``.
        why: from ``why_no_bootstrap``.
        pooled: counts and proportions of the test images, with intervals that take the thresholds as given.
        test: the test images.
        called: (n,) bool, their decisions.
    """
    overlap = mean_overlap([_of_target(rule, rows, k) for rows in chooser.values()])
    reference, values = test.label == k, {}
    for name, (images, hits) in _trials(reference, called).items():
        figure: Estimate = getattr(pooled, name)
        if figure.value is None:
            values[name] = figure
            continue
        folds = [images & (test.fold == fold) for fold in chooser]
        of_folds = [float(hits[at].mean()) for at in folds if at.any()]
        ends = fold_variation_interval(figure.value, of_folds, overlap)
        shown = "" if ends else f"; {len(of_folds)} fold(s), with {overlap:.0%} of the groups in common, do not show it"
        values[name] = _with_interval(figure, ends, FOLDS_METHOD, why + shown)
    return ProcedureRecord(**values)


def procedure_of(pooled: OutcomeRecord, drawn: np.ndarray) -> ProcedureRecord:
    """Compute the figures of one rule over all folds with intervals of the whole procedure.

    The interval contains the middle 95 % of the resamples, and the interval that takes the thresholds as given.

    Args:
        pooled: counts and proportions of the test images, with intervals that take the thresholds as given.
        drawn: (B, 4) from ``draw_procedure``.
    """
    return ProcedureRecord(
        **{name: _interval(getattr(pooled, name), drawn[:, j]) for j, name in enumerate(PROPORTIONS)}
    )


def _interval(figure: Estimate, drawn: np.ndarray) -> Estimate:
    if figure.value is None:
        return figure
    known = drawn[~np.isnan(drawn)]
    method = f"cluster bootstrap through the choice of the thresholds, percentile, {len(drawn)} resamples"
    n_missing = len(drawn) - len(known)
    note = f"the rule gives no figure in {n_missing} of {len(drawn)} resamples" if n_missing else ""
    if n_missing > _MAX_WITHOUT * len(drawn):
        return _with_interval(figure, None, method, note)
    low, high = np.quantile(known, [ALPHA / 2, 1 - ALPHA / 2])
    return _with_interval(figure, (float(low), float(high)), method, note)


def _with_interval(figure: Estimate, ends: Interval | None, method: str, reason: str) -> Estimate:
    """Return the figure with an interval of the procedure, extended to the one that it has for given thresholds."""
    given = figure.ci95
    if ends is not None and given is not None:
        ends = min(ends[0], given[0]), max(ends[1], given[1])
    value = figure.without("reason") if ends is not None else figure.without("reason", "warning")
    value = value.replace(ci95=ends, method=method)
    return value.replace(reason=reason) if reason else value


def _trials(reference: np.ndarray, called: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the images in the denominator of each proportion, (n,) bool, and its hits, (n,) bool."""
    images = (reference, ~reference, called, ~called)
    hits = (called, ~called, reference, ~reference)
    return dict(zip(PROPORTIONS, zip(images, hits, strict=True), strict=True))


def _of_target(rule: Rule, rows: Rows, k: int) -> np.ndarray:
    """Return the group of each image of the class of which the rule reaches a share."""
    return rows.group[(rows.label == k) == (rule.kind == "sensitivity")].astype(str)


def _codes(group: np.ndarray) -> np.ndarray:
    return np.unique(group, return_inverse=True)[1]
