"""Sections of compare.json about decisions, non-inferiority and subgroups, pair by pair.

Every p-value of a section is corrected (Holm) for all p-values of that section over all pairs, because they are read
together in one table.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from usvit.errors import UsvitError
from usvit.evaluation.decisions import Decided
from usvit.evaluation.subgroups import NOT_RECORDED, levels_of
from usvit.metrics.basic import Value
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.paired_tests import holm, non_inferiority, paired_difference

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


def judge_non_inferiority(pair: Mapping[str, Any], headline: Value, margin: float) -> dict[str, Any]:
    """Decide on non-inferiority of a pair by the headline AUC, and by sensitivity and specificity of each decision.

    Several verdicts are several claims. State in advance which one counts; the error rate of 2.5 % holds for a single
    claim.
    """
    decisions = [
        {"rule": one["rule"], **{name: non_inferiority(one[name], margin) for name in FIGURES}}
        for one in pair["decisions"]
        if one["reason"] is None and all(one[name]["value"] is not None for name in FIGURES)
    ]
    return {"margin": margin, "auc": non_inferiority(headline, margin), "decisions": decisions}
