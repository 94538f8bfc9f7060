"""The plan to compare the AUCs of two models: a difference, non-inferiority or equivalence."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.metrics.comparison_power import ObservedComparison
from usvit.metrics.influence import binormal_placements, design_effect
from usvit.metrics.margin_tests import check_margin
from usvit.metrics.sample_size import ComparisonTest, difference_intraclass
from usvit.planning.assumptions import StudyClusters, area_of, observe, refuse_unless, score_correlation, share_of
from usvit.planning.building import criterion_of, finish_plan
from usvit.planning.pages import checked_folder
from usvit.records import PlanRecord


@checked_arguments
def plan_comparison(
    *,
    auc: float | None = None,
    auc_b: float | None = None,
    correlation: float | None = None,
    prevalence: float | None = None,
    like: Sequence[str | Path] = (),
    positive: str | None = None,
    test: str | None = None,
    margin: float | None = None,
    power: float = 0.8,
    alpha: float = 0.05,
    images: float | None = None,
    images_cv: float | None = None,
    icc: float | None = None,
    out: str | Path = "plan",
    command: str = "",
) -> tuple[PlanRecord, Path]:
    """Plan the comparison of the AUCs of two models on the same images.

    Args:
        auc, auc_b: expected AUCs of the first and of the second model; None takes those of ``like``.
        correlation: of the scores of the two models on one image within a class, in (-1, 1); None takes that of two
            runs in ``like``.
        prevalence: share of positive images; None takes that of ``like``.
        like: up to two runs on the same images, whose predictions are typical.
        positive: positive class of ``like``; None takes its own.
        test: ``difference`` shows that the AUCs differ; ``noninferiority`` that the first is not worse than the second
            by ``margin`` or more; ``equivalence`` that they differ by less than ``margin`` either way. None takes
            ``difference``, or ``noninferiority`` if there is a margin.
        margin: in (0, 0.5).
        power: probability that the study shows what is true.
        alpha: two-sided level of a difference. For non-inferiority the one-sided level is half of it; equivalence has
            two one-sided tests at it.
        images, images_cv, icc, out, command: as ``plan_validation``.

    Returns:
        As ``plan_validation``.

    Raises:
        UsvitError: as ``plan_validation``; the test contradicts the margin or the AUCs.

    Source: after Obuchowski & McClish (1997), Statistics in Medicine 16:1529; a larger size if the interval of ``usvit
    compare`` needs it (``metrics.comparison_power``).

    Example:
        >>> import usvit
        >>> plan, _ = usvit.plan_comparison(
        ...     auc=0.9, auc_b=0.85, correlation=0.5, prevalence=0.3, out="comparison-plan"
        ... )
        >>> plan.test, plan.n_patients == plan.criteria[0].n_independent
        ('difference', True)
    """
    folder = checked_folder(out)
    if len(like) > 2:
        raise UsvitError(f"--like names {len(like)} runs: a comparison has two models.")
    runs = [observe(path, positive) for path in like]
    first, second = (runs[0] if runs else None), (runs[1] if len(runs) > 1 else None)
    share = share_of(prevalence, "--prevalence", first, lambda one: one.prevalence)
    a, b = area_of(auc, "--auc", first), area_of(auc_b, "--auc-b", second)
    if correlation is None:
        if first is None or second is None:
            raise UsvitError(
                "--correlation is missing: state the correlation of the two models' scores within a class, such as "
                "0.5, or name two runs on the same images with --like. 0 is the safe assumption: it gives the largest "
                "study."
            )
        correlation = score_correlation(first, second)
    refuse_unless(-1 < correlation < 1, "--correlation", correlation, "a number above -1 and below 1, such as 0.5")
    refuse_unless(0.5 <= power < 1, "--power", power, "a probability from 0.5 to below 1, such as 0.8")
    refuse_unless(0 < alpha <= 0.2, "--alpha", alpha, "a level above 0 and at most 0.2, such as 0.05")
    chosen = _test(test, margin, a, b)
    clusters = StudyClusters.of(runs, images, images_cv, icc)
    one, other = binormal_placements(a, share), binormal_placements(b, share)
    figure = ObservedComparison(a, b, share, correlation, chosen, margin or 0.0, alpha)
    intraclass = difference_intraclass(one, other, correlation, clusters.icc)
    effect = design_effect(intraclass, clusters.images, clusters.variation)
    title = "difference of the AUCs"
    criteria = [criterion_of(title, a - b, power, "power", figure.size(power), intraclass, clusters)]
    assumed = {
        "positive_class": None if first is None else first.positive_class,
        "prevalence": share,
        "auc": a,
        "auc_b": b,
        "correlation": correlation,
    }
    return finish_plan(
        folder,
        "comparison",
        command,
        assumed,
        criteria,
        clusters,
        share,
        lambda n: {title: figure.half_width(n / effect)},
        [f"power {power:g}; " + _level(chosen, alpha), _TRAINED],
        [],
        *runs,
        power=lambda n: figure.power(n / effect),
        more={"test": chosen, "margin": margin},
    )


_TRAINED = (
    "the plan is for two trained models and test patients that neither has seen; to compare two ways of training by "
    "cross-validation takes more patients, often twice as many, because its test also counts chance in training"
)


def _test(test: str | None, margin: float | None, a: float, b: float) -> ComparisonTest:
    """Return the test of a comparison after a check that it fits the margin and the AUCs."""
    name = test or ("difference" if margin is None else "noninferiority")
    known = {one: one for one in get_args(ComparisonTest)}
    if name not in known:
        raise UsvitError(f"--test {name}: give {', '.join(known)}.")
    chosen: ComparisonTest = known[name]
    if chosen == "difference":
        if margin is not None:
            raise UsvitError("--margin belongs to --test noninferiority or equivalence.")
        if a == b:
            raise UsvitError(
                "The two AUCs are equal, so no study shows a difference. To show that one model is not worse, give "
                "--margin."
            )
        return chosen
    if margin is None:
        raise UsvitError(f"--test {chosen} needs a --margin, such as 0.05: the difference that would not matter.")
    check_margin(margin)
    if a - b <= -margin or (chosen == "equivalence" and a - b >= margin):
        truth = "the first model is worse" if chosen == "noninferiority" else "the models are not equivalent"
        raise UsvitError(
            f"The expected AUCs differ by {a - b:+.3g}, which is not within the margin of {margin:g}: {truth}, and no "
            "study shows the opposite."
        )
    return chosen


def _level(test: ComparisonTest, alpha: float) -> str:
    if test == "difference":
        return f"two-sided level {alpha:g}"
    if test == "noninferiority":
        return f"one-sided level {alpha / 2:g} (the lower end of the two-sided {100 * (1 - alpha):g} % interval)"
    return f"two one-sided tests at {alpha:g} (the two-sided {100 * (1 - 2 * alpha):g} % interval)"
