"""The plan to measure sensitivity and specificity with a stated precision."""

from pathlib import Path

from usvit.config.keywords import takes_settings
from usvit.config.planning import AccuracyPlanSettings
from usvit.metrics.influence import design_effect
from usvit.metrics.sample_size import SharePrecision
from usvit.planning.assumptions import StudyClusters, observe, share_of
from usvit.planning.building import PlanDraft, criterion_of, finish_plan
from usvit.planning.pages import checked_folder
from usvit.records import PlanRecord


@takes_settings
def plan_accuracy(
    *, settings: AccuracyPlanSettings, out: str | Path = "plan", command: str = ""
) -> tuple[PlanRecord, Path]:
    """Plan a study whose sensitivity and specificity have 95 % intervals of a stated half width.

    Args:
        settings: see ``AccuracyPlanSettings``.
        out, command: as ``plan_validation``.

    Returns:
        As ``plan_validation``.

    Raises:
        UsvitError: as ``plan_validation``.

    Source: Buderer (1996), Academic Emergency Medicine 3:895, with Wilson's interval.

    Example:
        >>> import usvit
        >>> plan, _ = usvit.plan_accuracy(sensitivity=0.9, specificity=0.8, prevalence=0.3, out="accuracy-plan")
        >>> plan.decisive, plan.n_images
        ('sensitivity', 470)
    """
    folder = checked_folder(out)
    run = None if settings.like is None else observe(settings.like, settings)
    share = share_of(settings.prevalence, "--prevalence", run, lambda one: one.prevalence)
    expected = {
        "sensitivity": share_of(
            settings.sensitivity, "--sensitivity", run, lambda one: float(one.called[one.positive].mean())
        ),
        "specificity": share_of(
            settings.specificity, "--specificity", run, lambda one: float((~one.called[~one.positive]).mean())
        ),
    }
    halves = {
        "sensitivity": settings.sensitivity_half_width or settings.half_width,
        "specificity": settings.specificity_half_width or settings.half_width,
    }
    clusters = StudyClusters.of([] if run is None else [run], settings)
    criteria, effects, figures = [], {}, {}
    for name, of_all in (("sensitivity", share), ("specificity", 1 - share)):
        half = halves[name]
        figures[name] = SharePrecision(expected[name], of_all)
        intraclass = figures[name].influence.intraclass(clusters.icc)
        effects[name] = design_effect(intraclass, clusters.images, clusters.variation)
        criteria.append(
            criterion_of(name, expected[name], half, "half width", figures[name].size(half), intraclass, clusters)
        )

    def half_widths(n_images: float) -> dict[str, float]:
        return {name: figure.half_width(n_images / effects[name]) for name, figure in figures.items()}

    assumed = {"positive_class": None if run is None else run.positive_class, **expected}
    return finish_plan(
        folder,
        command,
        PlanDraft("accuracy", share, assumed, criteria, clusters, half_widths, runs=() if run is None else (run,)),
    )
