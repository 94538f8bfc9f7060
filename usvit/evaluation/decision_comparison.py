"""Sections of compare.json about decisions, non-inferiority, equivalence and subgroups, pair by pair.

Every p-value of a section is corrected (Holm) for all p-values of that section over all pairs, because they are read
together in one table.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from usvit.errors import UsvitError
from usvit.evaluation.decisions import Decided
from usvit.evaluation.subgroups import NOT_RECORDED, levels_of
from usvit.metrics.basic import Value, decide
from usvit.metrics.checks import group_codes
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.fold_difference import difference_limits
from usvit.metrics.margin_tests import NO_INTERVAL, MarginTest, equivalence, non_inferiority
from usvit.metrics.paired_tests import PairedShares, holm, paired_difference

FIGURES = ("sensitivity", "specificity")


def compare_decisions(a: Decided, b: Decided) -> list[dict[str, Any]]:
    """Compute the differences of sensitivity and specificity for each decision rule, A minus B.

    Args:
        a, b: of the same images in the same order.

    Returns:
        One entry per rule: {"rule", "sensitivity": Value, "specificity": Value, "reason": None}; the Values are None,
        with a reason, if one of the two has no such decision.
    """
    found: list[dict[str, Any]] = []
    for rule in dict.fromkeys([*a.called, *a.reasons, *b.called, *b.reasons]):
        if rule not in a.called or rule not in b.called:
            reason = a.reasons.get(rule) or b.reasons.get(rule) or "one of the two has no such operating point"
            found.append({"rule": rule, "sensitivity": None, "specificity": None, "reason": reason})
            continue
        up, group = a.reference, a.rows.group
        one, other = a.called[rule], b.called[rule]
        sensitivity = paired_difference(one[up], other[up], group[up], of="positive images")
        specificity = paired_difference(~one[~up], ~other[~up], group[~up], of="negative images")
        found.append({"rule": rule, "sensitivity": sensitivity, "specificity": specificity, "reason": None})
    return found


def compare_subgroups(
    a: Decided,
    b: Decided,
    test: pd.DataFrame,
    columns: pd.DataFrame | None,
    by: Mapping[str, Sequence[float] | None],
) -> list[dict[str, Any]]:
    """Compute the difference of AUCs, A minus B, within each subgroup.

    Args:
        a, b: of the same images in the same order.
        test: the rows of these images in the predictions table, in that order.
        columns: more columns of the images, such as the manifest.
        by: column -> limits that cut it, or None; columns that cannot be used are left out.

    Returns:
        One entry per level: {"by", "level", "n_images", "n_groups", "auc": Value}.
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
                {
                    "by": name,
                    "level": one,
                    "n_images": int(at.sum()),
                    "n_groups": len(set(group.tolist())),
                    "auc": value,
                }
            )
    return found


def correct_section(pairs: Sequence[dict[str, Any]], section: str, figures: Sequence[str]) -> int:
    """Add ``p_holm`` to each p of a section of all pairs.

    Returns:
        The number of p-values that were corrected together.
    """
    values: dict[tuple[int, int, str], Value] = {
        (number, k, name): entry[name]
        for number, pair in enumerate(pairs)
        for k, entry in enumerate(pair[section])
        for name in figures
        if entry[name] is not None and entry[name].get("p") is not None
    }
    for key, adjusted in holm({key: value["p"] for key, value in values.items()}).items():
        values[key]["p_holm"] = adjusted
    return len(values)


def compare_accuracy(a: Decided, b: Decided) -> Value:
    """Compute the difference of the shares of images whose most probable class is right, A minus B."""
    one, other = (decide(run.rows.prob) == run.rows.label for run in (a, b))
    return paired_difference(one, other, a.rows.group, of="images")


def judge_margin(a: Decided, b: Decided, headline: Value, margin: float, test: MarginTest) -> dict[str, Any]:
    """Decide on non-inferiority or equivalence of a pair.

    The figures are the headline AUC, the accuracy, and sensitivity and specificity of each decision. Several verdicts
    are several claims. State in advance which one counts; the error rate holds for a single claim.

    Args:
        a, b: of the same images in the same order.
        headline: the difference of the headline AUCs, A minus B.
        margin: in (0, 0.5).
        test: which claim.

    Returns:
        {"margin", "auc", "accuracy", "decisions"}, each figure as ``margin_tests`` returns it.
    """
    judge = non_inferiority if test == "noninferiority" else equivalence

    def of_shares(one: np.ndarray, other: np.ndarray, group: np.ndarray) -> dict[str, Any]:
        return judge(PairedShares.of(one, other, group_codes(group, len(one))[0]), margin)

    up, group = a.reference, a.rows.group
    decisions = [
        {
            "rule": rule,
            "sensitivity": of_shares(one[up], b.called[rule][up], group[up]),
            "specificity": of_shares(~one[~up], ~b.called[rule][~up], group[~up]),
        }
        for rule, one in a.called.items()
        if rule in b.called and up.any() and not up.all()
    ]
    right = [decide(run.rows.prob) == run.rows.label for run in (a, b)]
    return {
        "margin": margin,
        "auc": judge(difference_limits(headline), margin, reason=headline.get("reason") or NO_INTERVAL),
        "accuracy": of_shares(right[0], right[1], group),
        "decisions": decisions,
    }


def correct_claims(pairs: Sequence[dict[str, Any]], section: str) -> None:
    """Add ``p_holm`` to each claim of all pairs: to those about the AUC, and to all others together."""
    areas = [claim for pair in pairs for claim in _claims(pair[section]["auc"])]
    others = [claim for pair in pairs for claim in _claims(pair[section]["accuracy"])]
    others += [
        claim
        for pair in pairs
        for decision in pair[section]["decisions"]
        for name in FIGURES
        for claim in _claims(decision[name])
    ]
    for family in (areas, others):
        for number, adjusted in holm({number: claim["p"] for number, claim in enumerate(family)}).items():
            family[number]["p_holm"] = adjusted


def _claims(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the claims about one figure: both directions of non-inferiority, or the one of equivalence."""
    return [found[side] for side in ("a_vs_b", "b_vs_a")] if "a_vs_b" in found else [found]
