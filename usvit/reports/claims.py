"""Claims of non-inferiority and equivalence as lines of a table."""

from collections.abc import Iterator
from dataclasses import dataclass

from usvit.estimate_text import clear_of
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
    """A dash if the figure is not the primary one."""


def claim_lines(record: CompareRecord) -> list[ClaimLine]:
    """Return every claim of every pair, those about the primary figure first; of non-inferiority in both directions."""
    found = []
    margin = record.non_inferiority_margin or record.equivalence_margin or 0.0

    def shown(number: float) -> str:
        return clear_of(number, -margin, margin, sign="+")

    for pair in record.pairs:
        for figure, both in _both_ways(pair):
            for runs, one in ((f"{pair.a} against {pair.b}", both.a_vs_b), (f"{pair.b} against {pair.a}", both.b_vs_a)):
                limits = f"no bound: {one.reason}" if one.bound is None else f"bound {shown(one.bound)}"
                found.append(
                    ClaimLine(runs, figure, limits, one.p, one.p_holm, _verdict(one.verdict, one.bound, one.reason))
                )
        for figure, claim in _equivalences(pair):
            ends = claim.ci90
            limits = (
                f"no interval: {claim.reason}"
                if ends is None
                else f"90 % interval {shown(ends[0])} to {shown(ends[1])}"
            )
            verdict = _verdict(claim.verdict, ends, claim.reason)
            found.append(ClaimLine(f"{pair.a} and {pair.b}", figure, limits, claim.p, claim.p_holm, verdict))
    return sorted(found, key=lambda one: one.figure != record.primary_figure)


def _verdict(verdict: str | None, limits: object, reason: str | None) -> str:
    """Return the verdict, with the reason if the limits alone would say otherwise."""
    if verdict is None:
        return "–"
    return verdict if limits is None or not reason else f"{verdict}: {reason}"


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
