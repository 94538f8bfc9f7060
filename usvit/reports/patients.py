"""The results by patient, for the page, for Markdown and for the terminal."""

from collections.abc import Iterator
from dataclasses import dataclass

from usvit.estimate import Estimate
from usvit.figure_table import BY_PATIENT
from usvit.records import MetricsRecord
from usvit.wording import counted, listed, plural

TITLES = {"mean": "mean of the images", "max": "maximum of the images"}
"""How the probabilities of a patient's images become one."""


@dataclass(frozen=True)
class _PatientFigure:
    """One figure of one row per patient."""

    probability: str
    """One of ``TITLES``."""
    name: str
    """Key of one of ``figure_table.BY_PATIENT``."""
    headline: Estimate
    """The mean within folds."""
    pooled: Estimate


def patient_figures(metrics: MetricsRecord) -> Iterator[_PatientFigure]:
    """Return the figures of the patients, by rule; none if there are no patients."""
    patients, positive = metrics.patients, metrics.positive_class
    if patients.headline is None:
        return
    for how, title in TITLES.items():
        headline, pooled = getattr(patients.headline, how), getattr(patients, how)
        for row in BY_PATIENT:
            yield _PatientFigure(title, row.key, getattr(headline, row.key), pooled.figure(row.key, positive))


def patients_sentence(metrics: MetricsRecord) -> str:
    """Describe the patients and their labels, or why there are none."""
    patients = metrics.patients
    if patients.n_patients is None:
        return f"No figures by patient: {patients.reason}."
    words = f"One row per patient: {plural(patients.n_patients, 'patient')}"
    words += f" ({counted(patients.class_patients or {})}), {plural(patients.n_images or 0, 'image')}"
    if patients.n_images_without_id:
        words += f"; {plural(patients.n_images_without_id, 'image')} without an identifier are left out"
    order = ", ".join(patients.label_order or [])
    several = f"{plural(patients.n_mixed or 0, 'patient')} here" if patients.n_mixed else "none here"
    return (
        f"{words}. The label of a patient is that of the images; of several labels ({several}) it is the first of "
        f"{order} that one of the images has."
    )


def patients_headline_sentence(metrics: MetricsRecord) -> str:
    """Say what the figures by patient are, and give their training share."""
    found = metrics.patients.headline
    if not found or len(metrics.folds) < 2:
        return ""
    shares = [
        f"{headline.training_share.value:.2f} ({TITLES[how]})"
        for how, headline in (("mean", found.mean), ("max", found.max))
        if headline.training_share and headline.training_share.value is not None
    ]
    assumed = any(one.training_share and one.training_share.reason for one in (found.mean, found.max))
    said = "Quote the mean over folds, with an interval as that of the images; its training share is "
    said += f"{listed(shares)}{', the largest, because it could not be estimated' if assumed else ''}. "
    return (
        said + "The pooled figures rank patients of different models against each other; their interval ignores this."
    )
