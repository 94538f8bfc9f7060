"""Lesions, breasts and exams of a phantom patient, and which of them each view shows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from usvit.data.phantom.spec import PhantomSpec

_MALIGNANT_BESIDE = 0.3
"""Probability that a further lesion of a patient with a malignant one is malignant, too."""


@dataclass(frozen=True)
class ViewedUnit:
    """What one view shows; the defaults are those of a patient without ids of units."""

    lesion: int = 0
    """Number of the lesion of the patient, from 0."""
    label: str = ""
    """Class of the lesion; empty for that of the patient."""
    side: str = ""
    exam: int = 0
    """Number of the exam of the patient, from 0."""
    shows_signs: bool = True
    """False if a malignant lesion looks benign in this view."""


NO_UNIT = ViewedUnit()


def viewed_units(spec: PhantomSpec, label: str, n: int, rng: np.random.Generator) -> list[ViewedUnit]:
    """Draw what each of the ``n`` views of a patient of a class shows.

    Each lesion has a class and a side. The views are dealt to the lesions in turn, so that none is without a view, and
    the exams divide the views in their order. A patient of class normal has no lesion, and views of both breasts.
    """
    if not spec.views:
        return [NO_UNIT] * n
    lesions = int(rng.integers(1, min(spec.lesions, n) + 1)) if label != "normal" else 1
    exams = int(rng.integers(1, min(spec.exams, n) + 1))
    beside = rng.random(lesions) < _MALIGNANT_BESIDE
    classes = [
        "benign" if label == "malignant" and number and not beside[number] else label for number in range(lesions)
    ]
    sides = rng.choice(["left", "right"], n if label == "normal" else lesions).tolist()
    shown = [view % lesions for view in range(n)]
    signs = {view for number in range(lesions) for view in _with_signs(spec, [*range(number, n, lesions)], rng)}
    return [
        ViewedUnit(
            lesion=shown[view],
            label=classes[shown[view]],
            side=sides[view if label == "normal" else shown[view]],
            exam=view * exams // n,
            shows_signs=classes[shown[view]] != "malignant" or view in signs,
        )
        for view in range(n)
    ]


def _with_signs(spec: PhantomSpec, views: list[int], rng: np.random.Generator) -> list[int]:
    """Return the views of a lesion that show its signs if it is malignant."""
    order = rng.permutation(views).tolist()
    return order[: spec.sign_views] if spec.sign_views else order


def first_views(units: Sequence[ViewedUnit]) -> list[int]:
    """Return, for each view of a patient, the first view that shows the same lesion, both counted from 0."""
    first: dict[int, int] = {}
    return [first.setdefault(unit.lesion, view) for view, unit in enumerate(units)]


def unit_columns(patient_id: str, unit: ViewedUnit) -> dict[str, str | bool]:
    """Return the columns of ``phantom.csv`` for what a view shows; no columns without ids of units."""
    if unit == NO_UNIT:
        return {}
    return {
        "lesion_id": "" if unit.label == "normal" else f"{patient_id}-l{unit.lesion + 1}",
        "side": unit.side,
        "exam_id": f"{patient_id}-e{unit.exam + 1}",
        "shows_signs": unit.shows_signs,
    }
