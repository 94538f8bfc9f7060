"""The plan to validate a model: O/E, calibration slope, AUC and net benefit (Riley et al. 2021)."""

from pathlib import Path

import numpy as np

from usvit.config.keywords import takes_settings
from usvit.config.planning import ValidationPlanSettings
from usvit.errors import UsvitError
from usvit.metrics.influence import LinearPredictor, design_effect
from usvit.metrics.sample_size import AreaPrecision, CalibrationSlope, NetBenefit, ObservedExpected, PreciseFigure
from usvit.planning.assumptions import StudyClusters, area_of, observe, share_of
from usvit.planning.building import PlanDraft, criterion_of, finish_plan
from usvit.planning.pages import checked_folder
from usvit.records import PlanRecord


@takes_settings
def plan_validation(
    *, settings: ValidationPlanSettings, out: str | Path = "plan", command: str = ""
) -> tuple[PlanRecord, Path]:
    """Plan the external validation of a model: the size at which its main figures are precise.

    Four figures each need a size, and the largest counts: the ratio of observed to expected positives (O/E), the
    calibration slope, the AUC and, with ``threshold``, the standardised net benefit. The model is taken to be
    calibrated in the planned population.

    Args:
        settings: see ``ValidationPlanSettings``.
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
    run = None if settings.like is None else observe(settings.like, settings)
    if settings.linear_predictor is not None and run is not None:
        raise UsvitError("--linear-predictor and --like both give the distribution of the log-odds: give one of them.")
    fixed = None if settings.linear_predictor is None else _distribution(settings.linear_predictor)
    share = share_of(settings.prevalence, "--prevalence", run, lambda one: one.prevalence)
    notes = []
    if run is not None:
        predictor = run.predictor(share)
        if settings.auc is not None:
            notes.append("the AUC is the given one; the log-odds are those of the run")
    if fixed is not None:
        predictor = fixed
        area = fixed.area if settings.auc is None else settings.auc
        if not 0.5 < area < 1:
            raise UsvitError(f"--linear-predictor has an AUC of {area:g}: give one above 0.5 and below 1 with --auc.")
    else:
        area = area_of(settings.auc, "--auc", run)
        if run is None:
            predictor = LinearPredictor.by_class(area, share)
    clusters = StudyClusters.of([] if run is None else [run], settings)
    wanted: list[tuple[str, PreciseFigure, float, float]] = [
        ("O/E", ObservedExpected(share, settings.oe), settings.oe_width, settings.oe),
        ("calibration slope", CalibrationSlope(predictor), settings.slope_width, 1.0),
        ("AUC", AreaPrecision(area, share, predictor), settings.auc_width, area),
    ]
    threshold, sensitivity, specificity = settings.threshold, settings.sensitivity, settings.specificity
    if threshold is not None:
        called = predictor.called(threshold)
        sensitivity = called[0] if sensitivity is None else sensitivity
        specificity = called[1] if specificity is None else specificity
        for option, value in (("--sensitivity", sensitivity), ("--specificity", specificity)):
            if not 0 < value < 1:
                raise UsvitError(f"{option} is {value:g} at this --threshold: give a number between 0 and 1.")
        benefit = NetBenefit(sensitivity, specificity, share, threshold)
        wanted.append(("standardised net benefit", benefit, settings.net_benefit_width, benefit.value))
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
        "auc": area,
        "sensitivity": sensitivity,
        "specificity": specificity,
        "threshold": threshold,
        "linear_predictor": predictor.says,
        "linear_predictor_mean": mean,
        "linear_predictor_sd": sd,
    }
    runs = () if run is None else (run,)
    plan = PlanDraft("validation", share, assumed, criteria, clusters, half_widths, notes, warnings, runs)
    return finish_plan(folder, command, plan)


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
