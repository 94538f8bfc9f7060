"""Operating points: a threshold chosen on some images, and what it does on images that had no part in the choice.

An image is called positive where its score is at least the threshold. A threshold that is chosen and
judged on the same images looks better than it is; here each fold is judged by a threshold that it
did not help to choose ("nested"), and every fold is shown, since a mean hides how they differ.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from usvit.errors import LeakageError
from usvit.metrics.checks import check_positive, check_score, group_codes
from usvit.metrics.points import Value
from usvit.metrics.proportions import ShareInterval, share
from usvit.metrics.rows import Rows, rows_of


@dataclass(frozen=True)
class Rule:
    """How a threshold is found.

    Attributes:
        kind: "sensitivity" or "specificity" (at least ``target``, and then the other as high as can
            be), "youden" (sensitivity + specificity - 1 as high as can be) or "fixed" (``target``).
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
            raise ValueError(f"a target {self.kind} lies above 0 and up to 1, not at {self.target}")

    @property
    def name(self) -> str:
        """In words, such as ``sensitivity >= 0.9``."""
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


@dataclass(frozen=True)
class Outcome:
    """What decisions did to a set of images; each proportion with the groups that it rests on."""

    n_images: int
    n_groups: int
    true_positive: int
    false_positive: int
    true_negative: int
    false_negative: int
    sensitivity: Value
    specificity: Value
    ppv: Value
    npv: Value


@dataclass(frozen=True)
class FoldPoint:
    """One fold under one rule."""

    fold: int
    threshold: float | None
    reason: str | None
    """Why there is no threshold; None where there is one."""
    chosen_on: Outcome | None
    """The images that the threshold was chosen on, in-sample: for comparison, never as a result. None where fixed."""
    on_test: Outcome | None
    """The fold's test images, which had no part in the choice."""
    target_reached: bool | None
    """On the test images; None where the rule has no target or the figure is undefined."""


@dataclass(frozen=True)
class OperatingPoint:
    """One rule over all folds."""

    rule: str
    source: str
    """Which images chose the thresholds, in words."""
    folds: tuple[FoldPoint, ...]
    pooled: Outcome | None
    """All test images, each decided by its own fold's threshold; None where a fold has none."""
    reason: str | None
    """Why nothing is pooled; None where it is."""
    n_below_target: int | None
    """Folds whose test images miss the target (of those where it is defined); None without a target."""


def choose_threshold(positive: ArrayLike, score: ArrayLike, rule: Rule) -> Choice:
    """The threshold of a rule on one set of images.

    It stands half-way between two neighbouring scores, as in pROC, so that the last bit of a score,
    which differs between devices, decides nothing. Among thresholds that serve a rule equally well:
    for a target, the one that is best in the other figure, then in the target's own; for Youden, the most
    sensitive. The comparison is made in whole counts.

    Args:
        positive: (n,) bool.
        score: (n,) finite float, higher for positive; ties are never divided.
        rule: see ``Rule``.

    Returns:
        No threshold, with the reason, where a class is absent; where the target is reached only by
        giving up the other figure altogether (specificity or sensitivity 0); or where no threshold
        has a Youden index above 0. A fixed threshold needs no images and is always there.

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

    # Candidate j calls the images with the j + 1 lowest different scores negative, all others positive. To call
    # everything positive, or nothing, is no decision and no candidate.
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
    best = int(candidates[np.lexsort([key[candidates] for key in order])[-1]])  # the last key is the first to count
    below, above = float(levels[best]), float(levels[best + 1])
    middle = below / 2 + above / 2
    return Choice(middle if below < middle <= above else above)


def outcome(
    positive: ArrayLike, called: ArrayLike, group: ArrayLike, *, interval: ShareInterval | None = None
) -> Outcome:
    """Counts and proportions of decisions on n >= 1 images.

    Args:
        positive: (n,) bool, the reference.
        called: (n,) bool, the decision.
        group: (n,) the patient of each image.
        interval: gives each proportion its ``ci95``.

    Returns:
        Each proportion is undefined, with the reason, where its denominator is 0.

    Raises:
        ValueError: as ``checks.check_positive`` and ``checks.group_codes``; the lengths differ.
    """
    reference, decided, groups = check_positive(positive), check_positive(called), np.asarray(group)
    if len(decided) != len(reference):
        raise ValueError(f"{len(decided)} decisions on {len(reference)} images")
    n_groups = group_codes(groups, len(reference))[1]

    def among(images: np.ndarray, hits: np.ndarray, of: str) -> Value:
        return share(hits[images], groups[images], of=of, interval=interval)

    return Outcome(
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


def operating_points(
    table: pd.DataFrame, *, positive: str, rules: Sequence[Rule] = RULES, interval: ShareInterval | None = None
) -> list[OperatingPoint]:
    """Each rule's threshold by fold, and what it does on that fold's test images.

    The threshold of fold k comes from the inner validation images of fold k, scored by the same
    model. Those have already stopped the training, so their scores are a little too good. Where any
    fold lacks them, the test images of the other folds choose for every fold: no image of fold k
    takes part, but the scores come from other models, of which each was trained on images of fold k.

    Args:
        table: a predictions table; rows of parts test and (if there are any) val count. The score is
            the probability of ``positive``, against all other classes.
        positive: one of the classes.
        rules: the operating points wanted.
        interval: gives each proportion its ``ci95``; it takes the threshold as given.

    Raises:
        UsvitError: see ``rows_of``; ``positive`` is no class.
        LeakageError: a group stands both where a threshold is chosen and where it is judged (not of fixed rules alone).

    Source: Leeflang et al. (2008), Clinical Chemistry 54:729 (what an in-sample threshold does to both figures).
    """
    test = rows_of(table, "test")
    k = test.index(positive)
    folds = [int(fold) for fold in np.unique(test.fold)]
    source, chooser = choosing_rows(table)
    if any(rule.kind != "fixed" for rule in rules):
        for fold in folds:
            _refuse_leak(chooser[fold], test[test.fold == fold], fold)
    return [_operating_point(rule, source, folds, chooser, test, k, interval) for rule in rules]


def choosing_rows(table: pd.DataFrame) -> tuple[str, dict[int, Rows]]:
    """The images that choose each fold's threshold (``operating_points``), and in words which they are.

    Raises:
        UsvitError: see ``rows_of``.
    """
    test, val = rows_of(table, "test"), rows_of(table, "val")
    folds = [int(fold) for fold in np.unique(test.fold)]
    if set(folds) <= set(val.fold.tolist()):
        return "inner validation images of the same fold", {fold: val[val.fold == fold] for fold in folds}
    return "test images of the other folds", {fold: test[test.fold != fold] for fold in folds}


def _operating_point(
    rule: Rule,
    source: str,
    folds: list[int],
    chooser: dict[int, Rows],
    test: Rows,
    k: int,
    interval: ShareInterval | None,
) -> OperatingPoint:
    points, called = [], np.zeros(len(test), dtype=bool)
    for fold in folds:
        rows, at = chooser[fold], test.fold == fold
        chosen_on = on_test = reached = None
        if rule.kind == "fixed":
            choice = Choice(rule.target)
        elif not len(rows):
            choice = Choice(None, "there is one fold and it has no inner validation images to choose a threshold on")
        else:
            choice = choose_threshold(rows.label == k, rows.prob[:, k], rule)
        if choice.threshold is not None:
            if rule.kind != "fixed":
                chosen_on = outcome(rows.label == k, rows.prob[:, k] >= choice.threshold, rows.group)
            called[at] = test.prob[at, k] >= choice.threshold
            on_test = outcome(test.label[at] == k, called[at], test.group[at], interval=interval)
            if rule.kind in ("sensitivity", "specificity"):
                figure = on_test.sensitivity if rule.kind == "sensitivity" else on_test.specificity
                reached = None if figure["value"] is None else bool(figure["value"] >= rule.target)
        points.append(FoldPoint(fold, choice.threshold, choice.reason, chosen_on, on_test, reached))

    without = [f"fold {point.fold}: {point.reason}" for point in points if point.reason]
    return OperatingPoint(
        rule=rule.name,
        source="none: fixed beforehand" if rule.kind == "fixed" else source,
        folds=tuple(points),
        pooled=None if without else outcome(test.label == k, called, test.group, interval=interval),
        reason=f"no threshold in {'; '.join(without)}" if without else None,
        n_below_target=sum(point.target_reached is False for point in points)
        if rule.kind in ("sensitivity", "specificity")
        else None,
    )


def _refuse_leak(rows: Rows, judged: Rows, fold: int) -> None:
    both = sorted(set(rows.group.tolist()) & set(judged.group.tolist()), key=str)
    if both:
        more = f" (and {len(both) - 1} more)" if len(both) > 1 else ""
        raise LeakageError(
            f"Fold {fold}: group '{both[0]}'{more} stands among the images that choose its threshold and among its "
            "test images. Split the data by group_id and predict again."
        )
