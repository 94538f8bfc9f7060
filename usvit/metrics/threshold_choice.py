"""Thresholds of a score: how one is chosen, and which decisions follow from it.

An image is called positive if its score is at least the threshold. A threshold that is chosen and judged on the same
images looks better than it is; ``usvit.evaluation.thresholds`` judges each fold by a threshold from other images.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from usvit.estimate import Estimate
from usvit.metrics.checks import check_positive, check_score, group_codes
from usvit.metrics.proportions import ShareInterval, share
from usvit.records import OutcomeRecord


@dataclass(frozen=True)
class Rule:
    """A rule by which a threshold is chosen.

    Attributes:
        kind: "sensitivity" or "specificity" (at least ``target`` on the images that choose, and nearest to it on new
            ones), "youden" (sensitivity + specificity - 1 as high as possible) or "fixed" (``target``).
        target: in (0, 1] for the first two, any finite number for "fixed", None for "youden".

    Raises:
        ValueError: the target does not fit the kind.
    """

    kind: Literal["sensitivity", "specificity", "youden", "fixed"]
    target: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("sensitivity", "specificity", "youden", "fixed"):
            raise ValueError(f"kind must be sensitivity, specificity, youden or fixed, not {self.kind!r}")
        if self.kind == "youden":
            if self.target is not None:
                raise ValueError("Youden's index has no target")
        elif self.target is None or not np.isfinite(self.target):
            raise ValueError(f"{self.kind} needs a finite target, not {self.target}")
        elif self.kind != "fixed" and not 0 < self.target <= 1:
            raise ValueError(f"a target {self.kind} must be above 0 and at most 1, not {self.target}")

    @property
    def name(self) -> str:
        """The rule as text, such as ``sensitivity >= 0.9``."""
        if self.kind == "youden":
            return "Youden's index"
        return f"threshold {self.target:g}" if self.kind == "fixed" else f"{self.kind} >= {self.target:g}"


RULES = (
    *(Rule("sensitivity", 0.90), Rule("sensitivity", 0.95), Rule("specificity", 0.90), Rule("specificity", 0.95)),
    *(Rule("youden"), Rule("fixed", 0.5)),
)


@dataclass(frozen=True)
class Choice:
    """A threshold, or the reason why there is none."""

    threshold: float | None
    reason: str | None = None


def choose_threshold(positive: ArrayLike, score: ArrayLike, rule: Rule) -> Choice:
    """Choose the threshold of a rule on one set of images, for new images.

    The threshold is half-way between two neighbouring scores, as in pROC, so that the last bit of a score, which
    differs between devices, has no effect. For Youden it is the most sensitive one of those with the highest index.

    A target is reached on the images that choose, and, unless they are too few, on average on new ones. The k lowest
    scores of n positive images divide the distribution of positive images into shares of 1 / (n + 1) on average, not
    of 1 / n, so that a threshold just below score k + 1 misses a share (k + 1) / (n + 1) of new ones. Between two
    scores of the class, the share is taken to grow with the number of images of the other class below the threshold.
    Of the thresholds that reach the target, the one whose share is nearest to 1 - ``target`` is chosen. With fewer than
    1 / (1 - ``target``) images of the class, it is the one with the best other figure that misses no image, and new
    images can attain less than the target.

    Args:
        positive: (n,) bool.
        score: (n,) finite float, higher for positive; equal scores are never separated.
        rule: see ``Rule``.

    Returns:
        No threshold, with the reason, if a class is absent, if the target is reached only with a specificity or
        sensitivity of 0, or if no threshold has a Youden index above 0. A fixed threshold always exists.

    Raises:
        ValueError: as ``checks.check_positive`` and ``checks.check_score``.

    Source: Youden (1950), Cancer 3:32; Robin et al. (2011), BMC Bioinformatics 12:77 (half-way thresholds); Weibull
    (1939), as Hyndman & Fan (1996), American Statistician 50:361, definition 6 (shares of 1 / (n + 1)).
    """
    reference = check_positive(positive)
    values = check_score(score, len(reference))
    if rule.kind == "fixed":
        return Choice(rule.target)
    if reason := why_no_threshold(reference):
        return Choice(None, reason)
    threshold = float(chosen_thresholds(reference, values, np.ones((1, len(values)), dtype=np.int64), rule)[0])
    if not np.isnan(threshold):
        return Choice(threshold)
    if rule.kind == "youden":
        return Choice(None, "no threshold separates the classes better than chance")
    other = "specificity" if rule.kind == "sensitivity" else "sensitivity"
    return Choice(None, f"{rule.kind} {rule.target:g} is reached only at {other} 0")


def why_no_threshold(positive: np.ndarray) -> str | None:
    """Return the reason why (n,) bool images cannot choose a threshold: a class is absent; None if both are there."""
    if positive.any() and not positive.all():
        return None
    return f"no {'negative' if positive.any() else 'positive'} image to choose a threshold on"


def chosen_thresholds(positive: np.ndarray, score: np.ndarray, counts: np.ndarray, rule: Rule) -> np.ndarray:
    """Choose the threshold of a rule on B sets of images at once, such as the resamples of a bootstrap.

    Args:
        positive: (n,) bool.
        score: (n,) finite float.
        counts: (B, n) integers >= 0, how often each set contains each image.
        rule: any rule except a fixed one.

    Returns:
        (B,) the threshold of ``choose_threshold`` for the repeated images; NaN if there is none.
    """
    order = np.argsort(score, kind="stable")
    levels, first = np.unique(score[order], return_index=True)
    if len(levels) < 2:
        return np.full(len(counts), np.nan)
    drawn = counts[:, order].astype(np.float64)
    total = np.add.reduceat(drawn, first, axis=1)  # (B, L) images at each score
    positives = np.add.reduceat(drawn * positive[order], first, axis=1)
    n_positive = positives.sum(axis=1, keepdims=True)
    n_negative = total.sum(axis=1, keepdims=True) - n_positive

    # Candidate j calls everything up to level j negative. It counts only if level j and some higher one were drawn:
    # to call all images positive, or none, is not a candidate.
    true_positive = n_positive - positives.cumsum(axis=1)
    true_negative = (total - positives).cumsum(axis=1)
    above = np.flip(np.minimum.accumulate(np.flip(np.where(total > 0, np.arange(len(levels)), len(levels)), 1), 1), 1)
    following = np.concatenate([above[:, 1:], np.full((len(total), 1), len(levels))], axis=1)  # next drawn level
    able = (total > 0) & (following < len(levels)) & (n_positive > 0) & (n_negative > 0)
    radix = float(total.sum(axis=1).max(initial=0)) + 1  # both keys are integers, so one float64 orders them
    if rule.kind == "youden":
        gain = true_positive * n_negative - (n_negative - true_negative) * n_positive  # J * positives * negatives
        able &= gain > 0
        key = gain * radix + true_positive
    else:
        if rule.target is None:
            raise ValueError(f"rule '{rule.name}' has no target")
        own, size, other = (
            (true_positive, n_positive, true_negative)
            if rule.kind == "sensitivity"
            else (true_negative, n_negative, true_positive)
        )
        missed = size - own
        way = slice(None, None, 1 if rule.kind == "sensitivity" else -1)  # along it, ever more of the class are missed
        place = missed + _place(missed[:, way], other[:, way])[:, way]
        with np.errstate(invalid="ignore"):
            able &= (own / size >= rule.target) & (other > 0)
        distance = np.where(able, np.abs(place - np.maximum((1 - rule.target) * (size + 1), 1)), np.inf)
        able &= distance < distance.min(axis=1, keepdims=True) + 1e-9
        key = other * radix + own
    key = np.where(able, key, -1.0)
    best = key.argmax(axis=1)
    found = np.take_along_axis(key, best[:, None], 1)[:, 0] >= 0
    below = levels[best]
    over = levels[np.minimum(np.take_along_axis(following, best[:, None], 1)[:, 0], len(levels) - 1)]
    middle = below / 2 + over / 2
    return np.where(found, np.where((below < middle) & (middle <= over), middle, over), np.nan)


def _place(missed: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the place of each candidate between two neighbouring scores of the class of the target, in (0, 1).

    Args:
        missed: (B, L) images of the class that a candidate misses, rising along L.
        other: (B, L) images of the other class that it decides rightly, rising along L.
    """
    begins = np.diff(missed, axis=1, prepend=-1.0) > 0
    ends = np.diff(missed, axis=1, append=np.inf) > 0
    lowest = np.maximum.accumulate(np.where(begins, other, -1.0), axis=1)
    highest = np.flip(np.minimum.accumulate(np.flip(np.where(ends, other, np.inf), 1), 1), 1)
    return (other - lowest + 0.5) / (highest - lowest + 1)


def outcome(
    positive: ArrayLike, called: ArrayLike, group: ArrayLike, *, interval: ShareInterval | None = None
) -> OutcomeRecord:
    """Compute counts and proportions of decisions on n >= 1 images.

    Args:
        positive: (n,) bool, the reference.
        called: (n,) bool, the decision.
        group: (n,) the patient of each image.
        interval: gives each proportion its ``ci95``.

    Returns:
        Each proportion is undefined, with the reason, if its denominator is 0.

    Raises:
        ValueError: as ``checks.check_positive`` and ``checks.group_codes``; the lengths differ.
    """
    reference, decided, groups = check_positive(positive), check_positive(called), np.asarray(group)
    if len(decided) != len(reference):
        raise ValueError(f"{len(decided)} decisions on {len(reference)} images")
    n_groups = group_codes(groups, len(reference))[1]

    def among(images: np.ndarray, hits: np.ndarray, of: str) -> Estimate:
        return share(hits[images], groups[images], of=of, interval=interval)

    return OutcomeRecord(
        n_images=len(reference),
        n_groups=n_groups,
        true_positive=int((reference & decided).sum()),
        false_positive=int((~reference & decided).sum()),
        true_negative=int((~reference & ~decided).sum()),
        false_negative=int((reference & ~decided).sum()),
        sensitivity=among(reference, decided, "positive images"),
        specificity=among(~reference, ~decided, "negative images"),
        ppv=among(decided, reference, "images called positive"),
        npv=among(~decided, ~reference, "images called negative"),
    )
