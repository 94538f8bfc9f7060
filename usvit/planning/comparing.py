"""The plan to compare the AUCs of two models: a difference, non-inferiority or equivalence."""

from pathlib import Path

from usvit.config.keywords import takes_settings
from usvit.config.planning import ComparisonPlanSettings, ComparisonTest
from usvit.errors import UsvitError
from usvit.metrics.comparison_power import ObservedComparison
from usvit.metrics.influence import binormal_placements, design_effect
from usvit.metrics.margin_tests import check_margin
from usvit.metrics.sample_size import difference_intraclass
from usvit.planning.assumptions import StudyClusters, area_of, observe, score_correlation, share_of
from usvit.planning.building import PlanDraft, criterion_of, finish_plan
from usvit.planning.pages import checked_folder
from usvit.records import PlanRecord


@takes_settings
def plan_comparison(
    *, settings: ComparisonPlanSettings, out: str | Path = "plan", command: str = ""
) -> tuple[PlanRecord, Path]:
    """Plan the comparison of the AUCs of two models on the same images.

    Args:
        settings: see ``ComparisonPlanSettings``.
        out, command: as ``plan_validation``.

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
    if len(settings.like) > 2:
        raise UsvitError(f"--like names {len(settings.like)} runs: a comparison has two models.")
    runs = [observe(path, settings) for path in settings.like]
    first, second = (runs[0] if runs else None), (runs[1] if len(runs) > 1 else None)
    share = share_of(settings.prevalence, "--prevalence", first, lambda one: one.prevalence)
    a, b = area_of(settings.auc, "--auc", first), area_of(settings.auc_b, "--auc-b", second)
    correlation = settings.correlation
    if correlation is None:
        if first is None or second is None:
            raise UsvitError(
                "--correlation is missing: state the correlation of the two models' scores within a class, such as "
                "0.5, or name two runs on the same images with --like. 0 is the safe assumption: it gives the largest "
                "study."
            )
        correlation = score_correlation(first, second)
        if correlation > 1 - 1e-9:
            raise UsvitError("The two runs of --like rank all images alike, so there is nothing to compare.")
    chosen = _test(settings.test, settings.margin, a, b)
    clusters = StudyClusters.of(runs, settings)
    one, other = binormal_placements(a, share), binormal_placements(b, share)
    figure = ObservedComparison(a, b, share, correlation, chosen, settings.margin or 0.0, settings.alpha)
    intraclass = difference_intraclass(one, other, correlation, clusters.icc)
    effect = design_effect(intraclass, clusters.images, clusters.variation)
    title = "difference of the AUCs"
    size = figure.size(settings.power)
    criteria = [criterion_of(title, a - b, settings.power, "power", size, intraclass, clusters)]
    assumed = {
        "positive_class": None if first is None else first.positive_class,
        "auc": a,
        "auc_b": b,
        "correlation": correlation,
    }
    plan = PlanDraft(
        design="comparison",
        prevalence=share,
        assumed=assumed,
        criteria=criteria,
        clusters=clusters,
        half_widths=lambda n: {title: figure.half_width(n / effect)},
        notes=[f"power {settings.power:g}; " + _level(chosen, settings.alpha), _TRAINED],
        runs=runs,
        power=lambda n: figure.power(n / effect),
        test=chosen,
        margin=settings.margin,
    )
    return finish_plan(folder, command, plan)


_TRAINED = (
    "the plan is for two trained models and test patients that neither has seen; to compare two ways of training by "
    "cross-validation takes more patients, often twice as many, because its test also counts chance in training"
)


def _test(test: ComparisonTest | None, margin: float | None, a: float, b: float) -> ComparisonTest:
    """Return the test of a comparison after a check that it fits the margin and the AUCs."""
    chosen: ComparisonTest = test or ("difference" if margin is None else "noninferiority")
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
