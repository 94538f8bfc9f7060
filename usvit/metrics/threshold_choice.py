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
        kind: "sensitivity" or "specificity" (at least ``target``, and then the other as high as possible), "youden"
            (sensitivity + specificity - 1 as high as possible) or "fixed" (``target``).
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
    """Choose the threshold of a rule on one set of images.

    The threshold is half-way between two neighbouring scores, as in pROC, so that the last bit of a score, which
    differs between devices, has no effect. Several thresholds may satisfy a rule: for a target, the one with the best
    other figure is chosen, then the best of the target's own figure; for Youden, the most sensitive. The comparison
    uses integer counts.

    Args:
        positive: (n,) bool.
        score: (n,) finite float, higher for positive; equal scores are never separated.
        rule: see ``Rule``.

    Returns:
        No threshold, with the reason, if a class is absent, if the target is reached only with a specificity or
        sensitivity of 0, or if no threshold has a Youden index above 0. A fixed threshold always exists.

    Raises:
        ValueError: as ``checks.check_positive`` and ``checks.check_score``.

    Source: Youden (1950), Cancer 3:32; Robin et al. (2011), BMC Bioinformatics 12:77 (half-way thresholds).
    """
    reference = check_positive(positive)
    values = check_score(score, len(reference))
    if rule.kind == "fixed":
        return Choice(rule.target)
    target = np.nan if rule.target is None else rule.target
    n_positive = int(reference.sum())
    n_negative = len(reference) - n_positive
    if not n_positive or not n_negative:
        return Choice(None, f"no {'negative' if n_positive else 'positive'} image to choose a threshold on")

    # Candidate j calls the images with the j + 1 lowest distinct scores negative, all others positive. Calling
    # all images positive, or none, is not a candidate.
    levels, where = np.unique(values, return_inverse=True)
    positives = np.bincount(where, weights=reference, minlength=len(levels)).astype(np.int64)
    total = np.bincount(where, minlength=len(levels))
    false_negative = positives.cumsum()[:-1]
    true_negative = (total - positives).cumsum()[:-1]
    true_positive = n_positive - false_negative
    if rule.kind == "youden":
        gain = true_positive * n_negative - (n_negative - true_negative) * n_positive  # J * positives * negatives
        able, order = gain > 0, (true_positive, gain)
        none = "no threshold separates the classes better than chance"
    elif rule.kind == "sensitivity":
        able = (true_positive / n_positive >= target) & (true_negative > 0)
        order = (true_positive, true_negative)
        none = f"sensitivity {target:g} is reached only at specificity 0"
    else:
        able = (true_negative / n_negative >= target) & (true_positive > 0)
        order = (true_negative, true_positive)
        none = f"specificity {target:g} is reached only at sensitivity 0"
    if not able.any():
        return Choice(None, none)
    candidates = np.flatnonzero(able)
    best = int(candidates[np.lexsort([key[candidates] for key in order])[-1]])  # the last key has priority
    below, above = float(levels[best]), float(levels[best + 1])
    middle = below / 2 + above / 2
    return Choice(middle if below < middle <= above else above)


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
