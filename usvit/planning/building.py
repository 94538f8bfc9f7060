"""From criteria to the record of a plan: design effect, whole patients, curve and warnings."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usvit import __version__
from usvit.config.planning import ComparisonTest
from usvit.files import OutputFolder
from usvit.metrics.influence import design_effect
from usvit.metrics.sample_size import LARGEST
from usvit.metrics.support import FEW_GROUPS
from usvit.planning.assumptions import ObservedRun, StudyClusters
from usvit.planning.pages import write_plan
from usvit.records import PlanDesign, PlanRecord
from usvit.records.plan import PlanAssumptions, PlanCriterion, PlanPoint, PlanTarget

_CURVE = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Sizes of the curve, relative to the planned one."""


def criterion_of(
    name: str,
    value: float | None,
    target: float,
    kind: PlanTarget,
    size: float | None,
    intraclass: float,
    clusters: StudyClusters,
) -> PlanCriterion:
    """Return the entry of plan.json: the size, multiplied by the design effect and rounded up to whole patients."""
    effect = design_effect(intraclass, clusters.images, clusters.variation)
    criterion = PlanCriterion(
        name=name,
        value=value,
        target=target,
        target_kind=kind,
        intraclass=intraclass,
        design_effect=effect,
        n_independent=None,
        n_images=None,
        n_patients=None,
        reason=None,
    )
    if size is None or not size * effect < LARGEST:
        return criterion.model_copy(update={"reason": f"more than {LARGEST:,.0f} images would be needed"})
    patients = max(2, _up(size * effect / clusters.images))
    n_images = max(patients, _up(patients * clusters.images))
    return criterion.model_copy(update={"n_independent": _up(size), "n_images": n_images, "n_patients": patients})


@dataclass(frozen=True)
class PlanDraft:
    """What a kind of plan has computed, from which the record is made."""

    design: PlanDesign
    prevalence: float
    assumed: Mapping[str, Any]
    """Other assumptions of the record that were stated or taken from a run."""
    criteria: Sequence[PlanCriterion]
    clusters: StudyClusters
    half_widths: Callable[[float], dict[str, float]]
    """Number of images -> half widths of the intervals."""
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    runs: Sequence[ObservedRun] = ()
    """Runs from which assumptions were taken."""
    power: Callable[[float], float] | None = None
    """Number of images -> power of the comparison."""
    test: ComparisonTest | None = None
    margin: float | None = None


def finish_plan(folder: OutputFolder, command: str, plan: PlanDraft) -> tuple[PlanRecord, Path]:
    """Create the record from the criteria, and write it with its page."""
    clusters, warnings, prevalence = plan.clusters, list(plan.warnings), plan.prevalence
    known = [one for one in plan.criteria if one.n_patients is not None]
    decisive = max(known, key=lambda one: one.n_patients or 0, default=None)
    patients = None if decisive is None else decisive.n_patients
    curve = []
    for size in sorted({max(2, round(factor * patients)) for factor in _CURVE}) if patients else []:
        n = size * clusters.images
        power = None if plan.power is None else plan.power(n)
        curve.append(PlanPoint(n_patients=size, n_images=_up(n), half_widths=plan.half_widths(n), power=power))
    if patients is not None and min(prevalence, 1 - prevalence) * patients < FEW_GROUPS:
        rarer = min(prevalence, 1 - prevalence) * patients
        warnings.append(
            f"The planned study has about {rarer:.0f} patients of the rarer class. Below {FEW_GROUPS}, intervals cover "
            "the truth less often than 95 %, so plan for more."
        )
    n_images = None if decisive is None else decisive.n_images
    record = PlanRecord(
        command=command or f"usvit.plan_{plan.design}(...)",
        usvit_version=__version__,
        design=plan.design,
        test=plan.test,
        margin=plan.margin,
        assumptions=PlanAssumptions(
            **{**_EMPTY, **plan.assumed},
            prevalence=prevalence,
            images_per_patient=clusters.images,
            images_cv=clusters.variation,
            icc=clusters.icc,
            like=[run.name for run in plan.runs],
            unit=plan.runs[0].unit if plan.runs else None,
            notes=[*plan.notes, *clusters.notes],
        ),
        criteria=list(plan.criteria),
        decisive=None if decisive is None else decisive.name,
        n_patients=patients,
        n_images=n_images,
        n_positive_images=None if n_images is None else round(prevalence * n_images),
        curve=curve,
        warnings=warnings,
    )
    write_plan(folder, record)
    return record, folder.path


_EMPTY: dict[str, None] = dict.fromkeys(
    (
        *("positive_class", "auc", "auc_b", "sensitivity", "specificity", "threshold", "correlation"),
        *("linear_predictor", "linear_predictor_mean", "linear_predictor_sd"),
    )
)


def _up(size: float) -> int:
    """Round up, except for what is only rounding error above an integer."""
    return math.ceil(size - 1e-6)
