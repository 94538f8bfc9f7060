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

CURVE = (0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0)
"""Sizes of the curve, relative to the planned one."""


def criterion_of(
    name: str,
    value: float | None,
    target: float,
    kind: str,
    size: float | None,
    intraclass: float,
    clusters: StudyClusters,
) -> dict[str, Any]:
    """Return the entry of plan.json: the size, multiplied by the design effect and rounded up to whole patients."""
    effect = design_effect(intraclass, clusters.images, clusters.variation)
    entry: dict[str, Any] = {
        "name": name,
        "value": value,
        "target": target,
        "target_kind": kind,
        "intraclass": intraclass,
        "design_effect": effect,
    }
    if size is None or not size * effect < LARGEST:
        reason = f"more than {LARGEST:,.0f} images would be needed"
        return {**entry, "n_independent": None, "n_images": None, "n_patients": None, "reason": reason}
    patients = max(2, _up(size * effect / clusters.images))
    n_images = max(patients, _up(patients * clusters.images))
    return {**entry, "n_independent": _up(size), "n_images": n_images, "n_patients": patients, "reason": None}


@dataclass(frozen=True)
class PlanDraft:
    """What a kind of plan has computed, from which the record is made."""

    design: PlanDesign
    assumed: Mapping[str, Any]
    """Assumptions of the record; ``prevalence`` is one of them."""
    criteria: Sequence[Mapping[str, Any]]
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
    clusters, warnings, prevalence = plan.clusters, list(plan.warnings), plan.assumed["prevalence"]
    known = [one for one in plan.criteria if one["n_patients"] is not None]
    decisive = max(known, key=lambda one: one["n_patients"]) if known else None
    patients = decisive["n_patients"] if decisive else None
    curve = []
    for size in sorted({max(2, round(factor * patients)) for factor in CURVE}) if patients else []:
        n = size * clusters.images
        point: dict[str, Any] = {"n_patients": size, "n_images": _up(n), "half_widths": plan.half_widths(n)}
        if plan.power is not None:
            point["power"] = plan.power(n)
        curve.append(point)
    if patients is not None and min(prevalence, 1 - prevalence) * patients < FEW_GROUPS:
        rarer = min(prevalence, 1 - prevalence) * patients
        warnings.append(
            f"The planned study has about {rarer:.0f} patients of the rarer class. Below {FEW_GROUPS}, intervals cover "
            "the truth less often than 95 %, so plan for more."
        )
    content = {
        "command": command or f"usvit.plan_{plan.design}(...)",
        "usvit_version": __version__,
        "design": plan.design,
        "test": plan.test,
        "margin": plan.margin,
        "assumptions": {
            **_EMPTY,
            **plan.assumed,
            "images_per_patient": clusters.images,
            "images_cv": clusters.variation,
            "icc": clusters.icc,
            "like": [run.name for run in plan.runs],
            "notes": [*plan.notes, *clusters.notes],
        },
        "criteria": plan.criteria,
        "decisive": decisive["name"] if decisive else None,
        "n_patients": patients,
        "n_images": decisive["n_images"] if decisive else None,
        "n_positive_images": round(prevalence * decisive["n_images"]) if decisive else None,
        "curve": curve,
        "warnings": warnings,
    }
    return write_plan(folder, content), folder.path


_EMPTY: dict[str, None] = dict.fromkeys(
    (
        *("positive_class", "auc", "auc_b", "sensitivity", "specificity", "threshold", "correlation"),
        *("linear_predictor", "linear_predictor_mean", "linear_predictor_sd"),
    )
)


def _up(size: float) -> int:
    """Round up, except for what is only rounding error above an integer."""
    return math.ceil(size - 1e-6)
