"""Sections of compare.json about decisions, non-inferiority, equivalence and subgroups, pair by pair.

Decisions in a cross-validation are compared fold by fold: a threshold is chosen on few images, and it shifts all
decisions of its fold. A test that takes the thresholds and models as given, such as McNemar's, counts these shifts as
evidence, and finds differences between two equal ways of training (docs/explanation/intervals.md). The differences of
the folds contain the shifts. With one fold there is no such sample, and the models and thresholds are taken as given.

Every p-value of a section is corrected (Holm) for all p-values of that section over all pairs, because they are read
together in one table.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Literal, TypeVar

import numpy as np
import pandas as pd

from usvit.config.comparison import MarginTest
from usvit.errors import UsvitError, unknown
from usvit.estimate import Difference
from usvit.evaluation.decisions import MOST_PROBABLE, Decided
from usvit.evaluation.subgroups import NOT_RECORDED, levels_of
from usvit.metrics.basic import decide
from usvit.metrics.checks import group_codes
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.cross_validation import with_skipped_folds
from usvit.metrics.fold_difference import difference_limits
from usvit.metrics.intervals import ALPHA, undefined
from usvit.metrics.margin_tests import (
    NO_INTERVAL,
    DifferenceLimits,
    StudentLimits,
    equivalence,
    non_inferiority,
)
from usvit.metrics.paired_tests import PairedShares, corrected_t, holm, paired_difference
from usvit.records import (
    BothWays,
    DecisionDifference,
    DecisionEquivalence,
    DecisionNonInferiority,
    Equivalence,
    EquivalenceClaim,
    NonInferiority,
    Pair,
    SubgroupDifference,
    Verdict,
)

Figure = Literal["sensitivity", "specificity", "accuracy"]
Repeats = Sequence[Decided]
"""The decisions of one model, of each repeat of the cross-validation."""

FIGURES: tuple[Figure, ...] = ("sensitivity", "specificity")
Section = Literal["non_inferiority", "equivalence"]
Claim = Verdict | EquivalenceClaim

AREA = "AUC"
"""Name of the headline among the figures that a claim can be about."""


def _figure_name(figure: Figure, rule: str) -> str:
    """Return the name of a figure of decisions, such as ``sensitivity, most probable class``; tables print it."""
    return figure if figure == "accuracy" else f"{figure}, {rule}"


def decision_difference(a: Repeats, b: Repeats, figure: Figure, rule: str, test_over_train: float) -> Difference:
    """Compute the difference of a share of right decisions, A minus B, with its interval and "p".

    Args:
        a, b: of the same images in the same order.
        figure: the sensitivity or specificity at ``rule``, or the accuracy of the most probable class.
        rule: a rule by which both decide in every repeat.
        test_over_train: test images over training images of a fold.

    Returns:
        With several folds, the mean of their differences with ``paired_tests.corrected_t``, over the folds of all
        repeats; folds without an image that the figure looks at are left out. With one fold,
        ``paired_tests.paired_difference``.
    """
    pairs = list(_pairs(a, b, figure, rule))
    rows = a[0].rows
    if len(pairs) == 1 and len(np.unique(rows.fold)) == 1:
        one, other, at = pairs[0]
        of = {"sensitivity": "positive images", "specificity": "negative images", "accuracy": "images"}[figure]
        return Difference.of(paired_difference(one[at], other[at], rows.group[at], of=of))
    differences, n_skipped = [], 0
    for decided, (one, other, at) in zip(a, pairs, strict=True):
        for fold in np.unique(decided.rows.fold):
            own = at & (decided.rows.fold == fold)
            if own.any():
                differences.append(float(one[own].mean() - other[own].mean()))
            else:
                n_skipped += 1
    n_groups = len(set(rows.group[pairs[0][2]].tolist()))
    if not differences:
        return Difference.of(undefined("no fold has an image that the figure looks at", n_groups))
    return with_skipped_folds(corrected_t(differences, test_over_train).replace(n_groups=n_groups), n_skipped)


def compare_decisions(a: Repeats, b: Repeats, test_over_train: float) -> list[DecisionDifference]:
    """Compute the differences of sensitivity and specificity for each decision rule, A minus B.

    Args:
        a, b, test_over_train: as ``decision_difference``.

    Returns:
        One entry per rule; the two differences are None, with a reason, if one of the two has no such decision.
    """
    found = []
    every = [*a, *b]
    for rule in dict.fromkeys(rule for one in every for rule in (*one.called, *one.reasons)):
        values: dict[str, Difference | None] = dict.fromkeys(FIGURES)
        reason = None
        if all(rule in one.called for one in every):
            values = {name: decision_difference(a, b, name, rule, test_over_train) for name in FIGURES}
        else:
            reasons = (one.reasons[rule] for one in every if one.reasons.get(rule))
            reason = next(reasons, "one of the two has no such operating point")
        found.append(DecisionDifference(rule=rule, **values, reason=reason))
    return found


def compare_accuracy(a: Repeats, b: Repeats, test_over_train: float) -> Difference:
    """Compute the difference of the shares of images whose most probable class is right, A minus B."""
    return decision_difference(a, b, "accuracy", MOST_PROBABLE, test_over_train)


def _pairs(a: Repeats, b: Repeats, figure: Figure, rule: str) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield for each repeat whether A and B are right, and which images count, each (n,) bool."""
    for one, other in zip(a, b, strict=True):
        if figure == "accuracy":
            right = [decide(run.rows.prob) == run.rows.label for run in (one, other)]
            yield right[0], right[1], np.ones(len(one.rows), dtype=bool)
        else:
            right = [run.called[rule] == run.reference for run in (one, other)]
            yield right[0], right[1], one.reference if figure == "sensitivity" else ~one.reference


def compare_subgroups(
    a: Decided,
    b: Decided,
    test: pd.DataFrame,
    columns: pd.DataFrame | None,
    by: Mapping[str, Sequence[float] | None],
) -> list[SubgroupDifference]:
    """Compute the difference of AUCs, A minus B, within each subgroup.

    Args:
        a, b: of the same images in the same order.
        test: the rows of these images in the predictions table, in that order.
        columns: more columns of the images, such as the manifest.
        by: column -> limits that cut it, or None; columns that cannot be used are left out.
    """
    found = []
    k = a.rows.index(a.positive)
    for name, limits in by.items():
        there = columns if columns is not None and name in columns else test
        if name not in there:
            continue
        try:
            level = levels_of(test, name, columns=columns, limits=limits)
        except UsvitError:
            continue
        names = [one for one in dict.fromkeys(sorted(level.tolist())) if one != NOT_RECORDED]
        if len(names) < 2:
            continue
        for one in names:
            at = level == one
            group = a.rows.group[at]
            value = clustered_difference(a.reference[at], a.rows.prob[at, k], b.rows.prob[at, k], group)
            found.append(
                SubgroupDifference(
                    by=name,
                    level=str(one),
                    n_images=int(at.sum()),
                    n_groups=len(set(group.tolist())),
                    auc=Difference.of(value),
                )
            )
    return found


def correct_section(
    pairs: Sequence[Pair], section: Literal["decisions", "subgroups"], figures: Sequence[str]
) -> list[Pair]:
    """Return all pairs with ``p_holm`` for each p of a section, corrected for all of them together."""
    sections = [getattr(pair, section) for pair in pairs]
    entries = {(number, k): entry for number, one in enumerate(sections) for k, entry in enumerate(one)}
    values = {(*at, name): getattr(entry, name) for at, entry in entries.items() for name in figures}
    adjusted = holm({at: one.p for at, one in values.items() if one is not None and one.p is not None})
    corrected = {at: values[at].replace(p_holm=p_holm) for at, p_holm in adjusted.items()}

    def entry_of(number: int, k: int) -> DecisionDifference | SubgroupDifference:
        found = {name: corrected[number, k, name] for name in figures if (number, k, name) in corrected}
        return entries[number, k].model_copy(update=found)

    return [
        pair.model_copy(update={section: [entry_of(number, k) for k in range(len(sections[number]))]})
        for number, pair in enumerate(pairs)
    ]


def judge_margin(a: Repeats, b: Repeats, pair: Pair, margin: float, test: MarginTest) -> NonInferiority | Equivalence:
    """Test non-inferiority or equivalence of a pair, figure by figure, each claim at its own level.

    ``correct_claims`` then leaves verdicts for one figure only, which the error rate holds for.

    Args:
        a, b: of the same images in the same order.
        pair: the differences.
        margin: in (0, 0.5).
        test: which claim.
    """
    if test == "noninferiority":
        return _judged(a, b, pair, margin, non_inferiority, NonInferiority, DecisionNonInferiority)
    return _judged(a, b, pair, margin, equivalence, Equivalence, DecisionEquivalence)


Judged = TypeVar("Judged", NonInferiority, Equivalence)


def _judged(
    a: Repeats,
    b: Repeats,
    pair: Pair,
    margin: float,
    judge: Callable[..., BothWays | EquivalenceClaim],
    section: type[Judged],
    decision: type[DecisionNonInferiority | DecisionEquivalence],
) -> Judged:
    def of_share(value: Difference, figure: Figure, rule: str) -> BothWays | EquivalenceClaim:
        return judge(_share_limits(value, a, b, figure, rule), margin, reason=value.reason or NO_INTERVAL)

    decisions = []
    for one in pair.decisions:
        up, down = one.sensitivity, one.specificity
        if up is not None and down is not None and up.value is not None and down.value is not None:
            sides = {"sensitivity": of_share(up, "sensitivity", one.rule)}
            sides["specificity"] = of_share(down, "specificity", one.rule)
            decisions.append(decision.model_validate({"rule": one.rule, **sides}))
    auc = judge(difference_limits(pair.headline), margin, reason=pair.headline.reason or NO_INTERVAL)
    accuracy = of_share(pair.accuracy, "accuracy", MOST_PROBABLE)
    return section.model_validate({"margin": margin, "auc": auc, "accuracy": accuracy, "decisions": decisions})


def _share_limits(value: Difference, a: Repeats, b: Repeats, figure: Figure, rule: str) -> DifferenceLimits | None:
    """Return the limits of a ``decision_difference``; None without an interval."""
    if value.ci95 is None:
        return None
    if value.error is not None:
        return StudentLimits.of(value)
    ((one, other, at),) = _pairs(a, b, figure, rule)
    return PairedShares.of(one[at], other[at], group_codes(a[0].rows.group[at], int(at.sum()))[0])


def correct_claims(pairs: Sequence[Pair], section: Section, primary: str) -> tuple[list[Pair], str]:
    """Add ``p_holm`` to each claim of all pairs, and leave verdicts for the primary figure only.

    p is corrected for the claims about the primary figure of all pairs, or for all claims about other figures. Of the
    two directions of non-inferiority of a pair at most one can be wrong, so they count once. A claim about the primary
    figure is shown if the corrected p is below its level; there is then no wrong claim in the whole comparison with a
    probability of 97.5 % (non-inferiority) or 95 % (equivalence).

    Args:
        pairs: each with the section, from ``judge_margin``.
        section: "non_inferiority" or "equivalence".
        primary: the figure that was declared beforehand: "AUC", "accuracy", or as ``_figure_name``; "sensitivity" and
            "specificity" alone are those of the most probable class.

    Returns:
        The pairs, and the name of the primary figure.

    Raises:
        UsvitError: no pair has such a figure.
    """
    level = ALPHA / 2 if section == "non_inferiority" else ALPHA
    claims = {(number, *at): one for number, pair in enumerate(pairs) for at, one in _claims(getattr(pair, section))}
    name = primary_name(primary, [figure for _, figure, _ in claims])
    corrected: dict[tuple[int, str, str], Claim] = {}
    for own in (True, False):
        family = {at: claim for at, claim in claims.items() if (at[1] == name) == own}
        exclusive: dict[tuple[int, str, str], Hashable] = {at: at[:2] for at in family}
        for at, adjusted in holm({at: claim.p for at, claim in family.items()}, exclusive).items():
            claim = family[at]
            changes: dict[str, float | str | None] = {"p_holm": adjusted}
            if not own:
                changes["verdict"] = None
            elif adjusted is not None and claim.p is not None and adjusted >= level and claim.p < level:
                changes["verdict"] = f"not shown to be {claim.verdict}"
                changes["reason"] = f"p after Holm's correction is not below {level:g}"
            corrected[at] = claim.model_copy(update=changes)
    return [
        pair.model_copy(update={section: _with_claims(getattr(pair, section), number, corrected)})
        for number, pair in enumerate(pairs)
    ], name


def primary_name(given: str, known: Sequence[str]) -> str:
    """Return the figure in ``known`` that a user has named.

    Raises:
        UsvitError: there is none; the figures are listed.
    """
    names = {one.lower(): one for one in known}
    wanted = given.strip().lower()
    for one in (wanted, f"{wanted}, {MOST_PROBABLE}"):
        if one in names:
            return names[one]
    raise unknown("primary figure", given, dict.fromkeys(known))


def _claims(section: NonInferiority | Equivalence) -> Iterator[tuple[tuple[str, str], Claim]]:
    """Yield (figure, direction) and each claim of a pair."""
    figures: list[tuple[str, BothWays | EquivalenceClaim]] = [(AREA, section.auc), ("accuracy", section.accuracy)]
    figures += [(_figure_name(name, one.rule), getattr(one, name)) for one in section.decisions for name in FIGURES]
    for name, figure in figures:
        if isinstance(figure, BothWays):
            yield (name, "a_vs_b"), figure.a_vs_b
            yield (name, "b_vs_a"), figure.b_vs_a
        else:
            yield (name, ""), figure


def _with_claims(
    section: NonInferiority | Equivalence, number: int, claims: Mapping[tuple[int, str, str], Claim]
) -> NonInferiority | Equivalence:
    """Return the section of the pair of this number with other claims."""

    def of(name: str, figure: BothWays | EquivalenceClaim) -> BothWays | Claim:
        if isinstance(figure, BothWays):
            return figure.model_copy(update={side: claims[number, name, side] for side in ("a_vs_b", "b_vs_a")})
        return claims[number, name, ""]

    decisions = [
        one.model_copy(update={name: of(_figure_name(name, one.rule), getattr(one, name)) for name in FIGURES})
        for one in section.decisions
    ]
    update = {"auc": of(AREA, section.auc), "accuracy": of("accuracy", section.accuracy), "decisions": decisions}
    return section.model_copy(update=update)
