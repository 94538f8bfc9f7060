"""The plan to measure sensitivity and specificity with a stated precision."""

from pathlib import Path

from usvit.arguments import checked_arguments
from usvit.metrics.influence import design_effect
from usvit.metrics.sample_size import SharePrecision
from usvit.planning.assumptions import StudyClusters, observe, refuse_unless, share_of
from usvit.planning.building import criterion_of, finish_plan
from usvit.planning.pages import checked_folder
from usvit.records import PlanRecord

DEFAULT_HALF_WIDTH = 0.05


@checked_arguments
def plan_accuracy(
    *,
    sensitivity: float | None = None,
    specificity: float | None = None,
    prevalence: float | None = None,
    like: str | Path | None = None,
    positive: str | None = None,
    half_width: float = DEFAULT_HALF_WIDTH,
    sensitivity_half_width: float | None = None,
    specificity_half_width: float | None = None,
    images: float | None = None,
    images_cv: float | None = None,
    icc: float | None = None,
    out: str | Path = "plan",
    command: str = "",
) -> tuple[PlanRecord, Path]:
    """Plan a study whose sensitivity and specificity have 95 % intervals of a stated half width.

    Args:
        sensitivity, specificity: expected figures; None takes those of the most probable class of ``like``.
        half_width: half the width of both intervals, such as 0.05.
        sensitivity_half_width, specificity_half_width: for one of them, instead of ``half_width``.
        prevalence, like, positive, images, images_cv, icc, out, command: as ``plan_validation``.

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
    run = None if like is None else observe(like, positive)
    share = share_of(prevalence, "--prevalence", run, lambda one: one.prevalence)
    expected = {
        "sensitivity": share_of(sensitivity, "--sensitivity", run, lambda one: float(one.called[one.positive].mean())),
        "specificity": share_of(
            specificity, "--specificity", run, lambda one: float((~one.called[~one.positive]).mean())
        ),
    }
    halves = {
        "sensitivity": half_width if sensitivity_half_width is None else sensitivity_half_width,
        "specificity": half_width if specificity_half_width is None else specificity_half_width,
    }
    clusters = StudyClusters.of([] if run is None else [run], images, images_cv, icc)
    criteria, effects, figures = [], {}, {}
    for name, of_all in (("sensitivity", share), ("specificity", 1 - share)):
        half = halves[name]
        refuse_unless(0 < half < 0.5, "--half-width", half, "half the width of a 95 % interval, above 0 and below 0.5")
        figures[name] = SharePrecision(expected[name], of_all)
        intraclass = figures[name].influence.intraclass(clusters.icc)
        effects[name] = design_effect(intraclass, clusters.images, clusters.variation)
        criteria.append(
            criterion_of(name, expected[name], half, "half width", figures[name].size(half), intraclass, clusters)
        )

    def half_widths(n_images: float) -> dict[str, float]:
        return {name: figure.half_width(n_images / effects[name]) for name, figure in figures.items()}

    assumed = {"positive_class": None if run is None else run.positive_class, "prevalence": share, **expected}
    return finish_plan(folder, "accuracy", command, assumed, criteria, clusters, share, half_widths, [], [], run)
