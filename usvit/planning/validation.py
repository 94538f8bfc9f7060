"""The plan to validate a model: O/E, calibration slope, AUC and net benefit (Riley et al. 2021)."""

from pathlib import Path

import numpy as np

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.metrics.influence import LinearPredictor, design_effect
from usvit.metrics.sample_size import AreaPrecision, CalibrationSlope, NetBenefit, ObservedExpected, PreciseFigure
from usvit.planning.assumptions import StudyClusters, area_of, observe, refuse_unless, share_of
from usvit.planning.building import criterion_of, finish_plan
from usvit.planning.pages import checked_folder
from usvit.records import PlanRecord

DEFAULT_WIDTH = 0.2
"""Width of the interval of O/E, slope and standardised net benefit in the papers' default."""
DEFAULT_AREA_WIDTH = 0.1


@checked_arguments
def plan_validation(
    *,
    auc: float | None = None,
    prevalence: float | None = None,
    like: str | Path | None = None,
    positive: str | None = None,
    linear_predictor: str | None = None,
    threshold: float | None = None,
    sensitivity: float | None = None,
    specificity: float | None = None,
    oe: float = 1.0,
    oe_width: float = DEFAULT_WIDTH,
    slope_width: float = DEFAULT_WIDTH,
    auc_width: float = DEFAULT_AREA_WIDTH,
    net_benefit_width: float = DEFAULT_WIDTH,
    images: float | None = None,
    images_cv: float | None = None,
    icc: float | None = None,
    out: str | Path = "plan",
    command: str = "",
) -> tuple[PlanRecord, Path]:
    """Plan the external validation of a model: the size at which its main figures are precise.

    Four figures each need a size, and the largest counts: the ratio of observed to expected positives (O/E), the
    calibration slope, the AUC and, with ``threshold``, the standardised net benefit. The model is taken to be
    calibrated in the planned population.

    Args:
        auc: AUC that the model is expected to have; None takes that of ``like``.
        prevalence: share of positive images; None takes that of ``like``.
        like: run or predictions table whose log-odds are typical; None takes scores that are normal in each class.
        positive: positive class of ``like``; None takes its own.
        linear_predictor: distribution of the log-odds over all images, as a paper reports it: ``normal:MEAN,SD``, or
            ``beta:A,B`` for the probabilities.
        threshold: threshold probability of the net benefit; None plans none.
        sensitivity, specificity: at that threshold; None takes those of the distribution.
        oe: expected ratio of observed to expected positives.
        oe_width, slope_width, auc_width, net_benefit_width: full widths of the 95 % intervals to reach.
        images: mean number of images of a patient; None takes that of ``like``, else 1.
        images_cv: coefficient of variation (SD / mean) of that number.
        icc: correlation of the scores of two images of one patient and class; None estimates it from ``like``, and
            is 1 without a run: further images then add nothing.
        out: folder to write plan.json and plan.html into.
        command: command line for the record.

    Returns:
        The content of plan.json (docs/reference/plan.schema.json), and the folder.

    Raises:
        UsvitError: a number is missing or out of range (the option is named), ``like`` cannot be read, or ``out`` holds
            other files.

    Source: Riley et al. (2021), Statistics in Medicine 40:4230; Riley et al. (2024), BMJ 384:e074821.

    Example:
        >>> import usvit
        >>> plan, folder = usvit.plan_validation(auc=0.9, prevalence=0.3, out="validation-plan")
        >>> plan.decisive, plan.n_patients == max(one.n_patients for one in plan.criteria)
        ('calibration slope', True)
    """
    folder = checked_folder(out)
    widths = {"--oe-width": oe_width, "--slope-width": slope_width, "--auc-width": auc_width}
    for option, width in [*widths.items(), ("--net-benefit-width", net_benefit_width)]:
        refuse_unless(0 < width <= 2, option, width, "the full width of a 95 % interval, above 0 and at most 2")
    refuse_unless(0 < oe <= 10, "--oe", oe, "a ratio above 0, such as 1")
    run = None if like is None else observe(like, positive)
    if linear_predictor is not None and run is not None:
        raise UsvitError("--linear-predictor and --like both give the distribution of the log-odds: give one of them.")
    fixed = None if linear_predictor is None else _distribution(linear_predictor)
    share = share_of(prevalence, "--prevalence", run, lambda one: one.prevalence)
    notes = []
    if run is not None:
        predictor = run.predictor(share)
        if auc is not None:
            notes.append("the AUC is the given one; the log-odds are those of the run")
    if fixed is not None:
        predictor = fixed
        area = area_of(auc if auc is not None else fixed.area, "--auc", None)
    else:
        area = area_of(auc, "--auc", run)
        if run is None:
            predictor = LinearPredictor.by_class(area, share)
    clusters = StudyClusters.of([] if run is None else [run], images, images_cv, icc)
    wanted: list[tuple[str, PreciseFigure, float, float]] = [
        ("O/E", ObservedExpected(share, oe), oe_width, oe),
        ("calibration slope", CalibrationSlope(predictor), slope_width, 1.0),
        ("AUC", AreaPrecision(area, share, predictor), auc_width, area),
    ]
    if threshold is not None:
        refuse_unless(0 < threshold < 1, "--threshold", threshold, "a threshold probability between 0 and 1")
        called = predictor.called(threshold)
        sensitivity = called[0] if sensitivity is None else sensitivity
        specificity = called[1] if specificity is None else specificity
        for option, value in (("--sensitivity", sensitivity), ("--specificity", specificity)):
            refuse_unless(0 < value < 1, option, value, "a number between 0 and 1 for this --threshold")
        benefit = NetBenefit(sensitivity, specificity, share, threshold)
        wanted.append(("standardised net benefit", benefit, net_benefit_width, benefit.value))
    elif sensitivity is not None or specificity is not None:
        raise UsvitError("--sensitivity and --specificity belong to a threshold of the net benefit: give --threshold.")
    criteria, effects = [], {}
    for name, figure, width, expected in wanted:
        intraclass = figure.influence.intraclass(clusters.icc)
        effects[name] = design_effect(intraclass, clusters.images, clusters.variation)
        criteria.append(criterion_of(name, expected, width, "width", figure.size(width), intraclass, clusters))
    mean, sd = predictor.moments

    def half_widths(n_images: float) -> dict[str, float]:
        return {name: figure.width(n_images / effects[name]) / 2 for name, figure, _, _ in wanted}

    warnings = []
    if fixed is not None and abs(fixed.prevalence - share) > 0.2 * share:
        warnings.append(
            f"The given distribution of the log-odds implies a prevalence of {fixed.prevalence:.3f} for a calibrated "
            f"model, and the study is planned at {share:.3f}."
        )
    if threshold is None:
        notes.append("the net benefit is not planned, because no threshold probability was given (--threshold)")
    assumed = {
        "positive_class": None if run is None else run.positive_class,
        "prevalence": share,
        "auc": area,
        "sensitivity": sensitivity,
        "specificity": specificity,
        "threshold": threshold,
        "linear_predictor": predictor.says,
        "linear_predictor_mean": mean,
        "linear_predictor_sd": sd,
    }
    return finish_plan(
        folder, "validation", command, assumed, criteria, clusters, share, half_widths, notes, warnings, run
    )


def _distribution(text: str) -> LinearPredictor:
    """Parse ``normal:-1.75,1.47`` or ``beta:0.5,0.5``."""
    kind, _, numbers = text.partition(":")
    try:
        one, other = (float(part) for part in numbers.split(","))
        if not np.isfinite([one, other]).all():
            raise ValueError
    except ValueError:
        kind = ""
        one = other = 0.0
    if kind == "normal" and 0 < other <= 20 and abs(one) <= 30:
        return LinearPredictor.normal(one, other)
    if kind == "beta" and 0.05 <= one <= 1000 and 0.05 <= other <= 1000:
        return LinearPredictor.of_beta(one, other)
    raise UsvitError(
        f"--linear-predictor is '{text}': give normal:MEAN,SD of the log-odds (SD above 0), or beta:A,B of the "
        "probabilities (0.05 to 1000 each), such as normal:-1.75,1.47."
    )
