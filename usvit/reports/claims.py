"""Claims of non-inferiority and equivalence as lines of a table."""

from collections.abc import Iterator
from dataclasses import dataclass

from usvit.records import BothWays, CompareRecord, EquivalenceClaim, Pair


@dataclass(frozen=True)
class ClaimLine:
    """One claim about one figure of two runs."""

    runs: str
    """The two runs, in the direction of the claim."""
    figure: str
    limits: str
    """The bound of non-inferiority, or the 90 % interval of equivalence."""
    p: float | None
    p_holm: float | None
    verdict: str


def claims_title(record: CompareRecord) -> str:
    """Return what the claims of a comparison are; empty without a margin."""
    if record.non_inferiority_margin is not None:
        return (
            f"Non-inferiority with a margin of {record.non_inferiority_margin:g}, from the bound of the one-sided "
            "97.5 % interval:"
        )
    if record.equivalence_margin is not None:
        return (
            f"Equivalence with a margin of {record.equivalence_margin:g}: two one-sided tests at 5 %, which is the "
            "90 % interval:"
        )
    return ""


def claim_lines(record: CompareRecord) -> list[ClaimLine]:
    """Return every claim of every pair; of non-inferiority in both directions."""
    found = []
    for pair in record.pairs:
        for figure, both in _both_ways(pair):
            for runs, one in ((f"{pair.a} against {pair.b}", both.a_vs_b), (f"{pair.b} against {pair.a}", both.b_vs_a)):
                limits = "no bound" if one.bound is None else f"bound {one.bound:+.3f}"
                found.append(ClaimLine(runs, figure, limits, one.p, one.p_holm, one.verdict))
        for figure, claim in _equivalences(pair):
            limits = (
                "no interval" if claim.ci90 is None else f"90 % interval {claim.ci90[0]:+.3f} to {claim.ci90[1]:+.3f}"
            )
            runs = f"{pair.a} and {pair.b}"
            found.append(ClaimLine(runs, figure, limits, claim.p, claim.p_holm, claim.verdict))
    return found


def _both_ways(pair: Pair) -> Iterator[tuple[str, BothWays]]:
    if pair.non_inferiority is None:
        return
    yield "AUC", pair.non_inferiority.auc
    if pair.non_inferiority.accuracy is not None:
        yield "accuracy", pair.non_inferiority.accuracy
    for one in pair.non_inferiority.decisions:
        yield f"sensitivity, {one.rule}", one.sensitivity
        yield f"specificity, {one.rule}", one.specificity


def _equivalences(pair: Pair) -> Iterator[tuple[str, EquivalenceClaim]]:
    if pair.equivalence is None:
        return
    yield "AUC", pair.equivalence.auc
    yield "accuracy", pair.equivalence.accuracy
    for one in pair.equivalence.decisions:
        yield f"sensitivity, {one.rule}", one.sensitivity
        yield f"specificity, {one.rule}", one.specificity
