"""Who is in the set: patients, their views and classes, before a pixel is drawn."""

import dataclasses

import numpy as np

from usvit.data.phantom.render import Patient, sample_patient
from usvit.data.phantom.spec import CLASS_SHARE, PhantomSpec

MAX_VIEWS = 3
# Streams of the whole set; patients have streams of their own (render.py), which are told apart
# by the length of their spawn key.
CLASSES, VIEWS, DUPLICATES, TEXT, CALIPERS, COMPONENT = range(6)

# Share of malignant among the lesions, for lesions that are drawn from the class-free mixture.
MALIGNANT_SHARE = CLASS_SHARE["malignant"] / (CLASS_SHARE["benign"] + CLASS_SHARE["malignant"])


@dataclasses.dataclass(frozen=True)
class PlannedView:
    """One image to be made. ``source_view`` is the view that it copies, or its own number."""

    number: int  # of the patient
    patient_id: str
    label: str
    view: int
    source_view: int
    text: bool
    calipers: bool

    @property
    def image_id(self) -> str:
        return f"{self.patient_id}-v{self.view}"

    @property
    def duplicate_of(self) -> str:
        """The image that this one copies; empty for an original."""
        return "" if self.source_view == self.view else f"{self.patient_id}-v{self.source_view}"


def plan_patients(spec: PhantomSpec) -> list[list[PlannedView]]:
    """The views of every patient, in the order of their ids; exactly ``spec.n`` views in all.

    Half as many patients as images; the rest are second and third views, spread at random.
    Classes follow CLASS_SHARE to within one patient, over all patients and among those with the
    same number of views, so that the number of views does not tell the class. The order does
    not either. Labels, duplicates, text and calipers have streams of their own: asking for one
    changes none of the others.
    """
    views = _views_per_patient(spec)
    labels = _labels(views, _generator(spec, CLASSES))
    offsets = np.concatenate(([0], np.cumsum(views)))
    copies = _marked(spec, DUPLICATES, spec.near_duplicates, np.setdiff1d(np.arange(spec.n), offsets[:-1]))
    text = _marked(spec, TEXT, spec.text, np.arange(spec.n))
    calipers = _marked(spec, CALIPERS, spec.calipers, np.arange(spec.n))
    digits = max(3, len(str(len(views))))
    return [
        [
            PlannedView(
                number=number,
                patient_id=f"p{number:0{digits}d}",
                label=labels[number - 1],
                view=i + 1,
                source_view=1 if offsets[number - 1] + i in copies else i + 1,
                text=offsets[number - 1] + i in text,
                calipers=offsets[number - 1] + i in calipers,
            )
            for i in range(views[number - 1])
        ]
        for number in range(1, len(views) + 1)
    ]


def draw_patient(spec: PhantomSpec, number: int, label: str) -> Patient:
    """The patient with a number, as the spec's ablation lets the class shape the lesion."""
    component = np.random.default_rng(np.random.SeedSequence(spec.seed, spawn_key=(COMPONENT, number)))
    malignant = bool(component.random() < MALIGNANT_SHARE)
    if spec.ablate == "none" and label != "normal":
        malignant = label == "malignant"
    return sample_patient(spec.seed, number, malignant)


def has_lesion(spec: PhantomSpec, label: str) -> bool:
    return label != "normal" and spec.ablate != "lesion"


def _generator(spec: PhantomSpec, purpose: int) -> np.random.Generator:
    return np.random.default_rng(np.random.SeedSequence(spec.seed, spawn_key=(purpose,)))


def _views_per_patient(spec: PhantomSpec) -> list[int]:
    patients = max(len(CLASS_SHARE), spec.n // 2)
    seats = np.repeat(np.arange(patients), MAX_VIEWS - 1)
    taken = _generator(spec, VIEWS).choice(seats, spec.n - patients, replace=False)
    return (1 + np.bincount(taken, minlength=patients)).tolist()


def _labels(views: list[int], rng: np.random.Generator) -> list[str]:
    """Deal the classes out by the largest deficit, patients with equally many views in a row."""
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
    """Positions of the images that a fraction asks for, drawn without regard to the class."""
    count = min(round(fraction * spec.n), candidates.size)
    return set(_generator(spec, purpose).permutation(candidates)[:count].tolist())
