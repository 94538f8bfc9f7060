"""Plan a phantom data set: patients, their views and classes, before any pixels are computed."""

import dataclasses

import numpy as np

from usvit.data.phantom.device import parse_scanner, with_settings
from usvit.data.phantom.render import Patient, sample_patient
from usvit.data.phantom.spec import CLASS_SHARE, PhantomSpec
from usvit.data.phantom.units import NO_UNIT, ViewedUnit, first_views, viewed_units

_MAX_VIEWS = 3
# Random streams of the whole set. Those of patients (render.py) differ in the length of their spawn key.
CLASSES, VIEWS, DUPLICATES, TEXT, CALIPERS, COMPONENT, UNITS, SENTENCES = range(8)

# Share of malignant lesions in the mixture from which signs are drawn without regard to the class.
_MALIGNANT_SHARE = CLASS_SHARE["malignant"] / (CLASS_SHARE["benign"] + CLASS_SHARE["malignant"])


@dataclasses.dataclass(frozen=True)
class PlannedView:
    """One image to generate. ``source_view`` is the view of which it is a near-duplicate, or ``view`` if it is none."""

    number: int  # of the patient
    patient_id: str
    label: str
    view: int
    source_view: int
    text: bool
    calipers: bool
    unit: ViewedUnit = NO_UNIT

    @property
    def image_id(self) -> str:
        return f"{self.patient_id}-v{self.view}"

    @property
    def duplicate_of(self) -> str:
        """Id of the image of which this one is a near-duplicate; empty for an original."""
        return "" if self.source_view == self.view else f"{self.patient_id}-v{self.source_view}"


def plan_patients(spec: PhantomSpec) -> list[list[PlannedView]]:
    """Return the views of each patient, in the order of their ids; there are exactly ``spec.n`` views.

    Without ``spec.views``, there are half as many patients as images; the other images are second and third views of
    random patients. Classes
    follow CLASS_SHARE to within one patient, over all patients and among those with the same number of views, so that
    neither the number of views nor the order depends on the class. Labels, near-duplicates, text and calipers have
    separate random streams, so that asking for one does not change the others.
    """
    views = _views_per_patient(spec)
    labels = _labels(views, _generator(spec, CLASSES))
    units = [
        viewed_units(
            spec, label, n, np.random.default_rng(np.random.SeedSequence(spec.seed, spawn_key=(UNITS, number)))
        )
        for number, (label, n) in enumerate(zip(labels, views, strict=True), start=1)
    ]
    offsets = np.concatenate(([0], np.cumsum(views)))
    sources = [source for of_patient in units for source in first_views(of_patient)]
    places = np.array(sources) == np.concatenate([np.arange(n) for n in views])
    near_duplicates = _marked(spec, DUPLICATES, spec.near_duplicates, np.flatnonzero(~places))
    text = _marked(spec, TEXT, spec.text, np.arange(spec.n))
    calipers = _marked(spec, CALIPERS, spec.calipers, np.arange(spec.n))
    digits = max(3, len(str(len(views))))
    planned = []
    for number, (label, of_patient) in enumerate(zip(labels, units, strict=True), start=1):
        start = int(offsets[number - 1])
        shown = [sources[start + i] if start + i in near_duplicates else i for i in range(len(of_patient))]
        planned.append(
            [
                PlannedView(
                    number=number,
                    patient_id=f"p{number:0{digits}d}",
                    label=of_patient[source].label or label,
                    view=i + 1,
                    source_view=source + 1,
                    text=start + i in text,
                    calipers=start + i in calipers,
                    unit=of_patient[source],
                )
                for i, source in enumerate(shown)
            ]
        )
    return planned


def draw_patient(spec: PhantomSpec, number: int, label: str, unit: ViewedUnit = NO_UNIT) -> Patient:
    """Draw the patient with a number, with the lesion that a view shows.

    ``spec.ablate`` decides whether the class affects the lesion, and ``spec.scanner`` fixes settings of the scanner.
    """
    component = np.random.default_rng(np.random.SeedSequence(spec.seed, spawn_key=(COMPONENT, number)))
    malignant = bool(component.random(unit.lesion + 1)[-1] < _MALIGNANT_SHARE)
    if spec.ablate == "none" and label != "normal":
        malignant = label == "malignant" and unit.shows_signs
    patient = sample_patient(spec.seed, number, malignant, unit.lesion)
    settings = parse_scanner(spec.scanner)
    return dataclasses.replace(patient, device=with_settings(patient.device, settings)) if settings else patient


def has_lesion(spec: PhantomSpec, label: str) -> bool:
    """Return whether images of a class show a lesion."""
    return label != "normal" and spec.ablate != "lesion"


def _generator(spec: PhantomSpec, purpose: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(spec.seed, spawn_key=(purpose,)))


def _views_per_patient(spec: PhantomSpec) -> list[int]:
    if spec.views:
        most = min(spec.views, spec.n // len(CLASS_SHARE))  # enough patients for all classes
        numbers = _generator(spec, VIEWS).integers(1, most + 1, spec.n)
        until = int(np.searchsorted(np.cumsum(numbers), spec.n))
        return [*numbers[:until].tolist(), spec.n - int(numbers[:until].sum())]
    patients = max(len(CLASS_SHARE), spec.n // 2)
    seats = np.repeat(np.arange(patients), _MAX_VIEWS - 1)
    taken = _generator(spec, VIEWS).choice(seats, spec.n - patients, replace=False)
    return (1 + np.bincount(taken, minlength=patients)).tolist()


def _labels(views: list[int], rng: np.random.Generator) -> list[str]:
    """Assign each patient the class with the largest deficit, in the order of their numbers of views."""
    order = rng.permutation(len(views))
    order = order[np.argsort(np.array(views)[order], kind="stable")]
    dealt = dict.fromkeys(CLASS_SHARE, 0)
    labels = [""] * len(views)
    for place, patient in enumerate(order):
        label = max(CLASS_SHARE, key=lambda name: CLASS_SHARE[name] * (place + 1) - dealt[name])
        dealt[label] += 1
        labels[patient] = label
    return labels


def _marked(spec: PhantomSpec, purpose: int, fraction: float, candidates: np.ndarray) -> set[int]:
    """Draw the positions of a fraction of the images, independently of the class."""
    count = min(round(fraction * spec.n), candidates.size)
    return set(_generator(spec, purpose).permutation(candidates)[:count].tolist())
