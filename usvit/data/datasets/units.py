"""Units of which a patient's images are views: lesion, breast, exam and patient; their ids, checks and counts."""

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

import pandas as pd

from usvit.config.sections import Unit
from usvit.records.audit import UnitCount

UNIT_KEYS: dict[Unit, tuple[str, ...]] = {
    "image": ("dataset", "image_id"),
    "lesion": ("dataset", "lesion_id"),
    "breast": ("dataset", "patient_id", "side"),
    "exam": ("dataset", "exam_id"),
    "patient": ("dataset", "patient_id"),
}
"""Unit -> columns that identify it in a manifest or predictions table, from the finest unit to the coarsest."""
UNIT_COLUMNS = ("lesion_id", "side", "exam_id")
"""Columns that a table has only if one of its images has a value."""
SIDES = {
    "left": ("left", "l", "lt", "links", "li", "gauche", "g", "izquierda", "sinistra", "esquerda"),
    "right": ("right", "r", "rt", "rechts", "re", "droite", "d", "derecha", "destra", "direita"),
}
"""Side of the body -> words that are read as that side, in any case."""
SIDE_WORDS = "; ".join(f"{', '.join(words)} for the {side} breast" for side, words in SIDES.items())
_ONE = (("lesion", "lesion_id", "patient_id"), ("lesion", "lesion_id", "side"), ("exam", "exam_id", "patient_id"))
"""Units with an id of their own, and what all images of one must agree in."""

_ADVICE = {
    "lesion": "if lesions are numbered within each patient, put the patient's id before the number",
    "exam": "if exams are numbered within each patient, put the patient's id before the number, and if the "
    "StudyInstanceUID of DICOM files is wrong, name the exams in a column exam_id of the table",
}


def side_of(word: str) -> str | None:
    """Return the side that a word of a table names.

    Example:
        >>> side_of("Rechts"), side_of("both")
        ('right', None)
    """
    said = word.strip().rstrip(".").casefold()
    return next((side for side, words in SIDES.items() if said in words), None)


@dataclass(frozen=True)
class Contradiction:
    """Two images whose units contradict each other."""

    said: str
    """What is wrong, as the predicate of both images, and what to do."""
    first: int
    second: int
    """Positions in the table; equal if one image is wrong by itself."""


def contradiction(table: pd.DataFrame) -> Contradiction | None:
    """Find the first contradiction among the units of a table; None if there is none.

    A lesion needs a patient, and has one patient and one side. An exam has one patient. A missing side, or a missing
    patient of an exam, contradicts nothing.

    Args:
        table: table with dataset and patient_id, and any of ``UNIT_COLUMNS``; missing values are None.
    """
    if "lesion_id" in table and (alone := table["lesion_id"].notna() & table["patient_id"].isna()).any():
        at = int(alone.to_numpy().argmax())
        advice = "name its patient; if patients are not known, take the lesion's id as that of its patient"
        return Contradiction(f"has a lesion but no patient: {advice}", at, at)
    for unit, column, other in _ONE:
        if column not in table or other not in table:
            continue
        rows = table[["dataset", column, other]].reset_index(drop=True).dropna()
        several = rows.groupby(["dataset", column])[other].transform("nunique") > 1
        if several.any():
            own = rows[several]
            own = own[(own["dataset"] == own["dataset"].iloc[0]) & (own[column] == own[column].iloc[0])]
            what = "patients" if other == "patient_id" else "sides"
            said = f"belong to one {unit} but have two {what}: correct them; {_ADVICE[unit]}"
            return Contradiction(said, int(own.index[0]), int(own.index[own[other] != own[other].iloc[0]][0]))
    return None


def with_units(names: Sequence[str], present: Container[str]) -> list[str]:
    """Return names of columns and, after that of the patient, those of ``UNIT_COLUMNS`` that are present.

    Example:
        >>> with_units(("patient_id", "label"), ["side"])
        ['patient_id', 'side', 'label']
    """
    after = names.index("patient_id") + 1
    return [*names[:after], *(name for name in UNIT_COLUMNS if name in present), *names[after:]]


def has_every(table: pd.DataFrame, unit: Unit) -> bool:
    """Return whether every image of a table has the ids that identify a unit."""
    return all(column in table and bool(table[column].notna().all()) for column in UNIT_KEYS[unit])


def common_level(stated: Iterable[Unit], table: pd.DataFrame) -> Unit:
    """Return the level at which the labels of all data sets of a table hold.

    It is the coarsest of the stated levels or, if an image has no id of that unit, the next finer unit that all images
    have.

    Args:
        stated: level at which the labels of each data set were made.
        table: table of the manifest.
    """
    levels = list(UNIT_KEYS)
    coarsest = max(map(levels.index, stated), default=0)
    return next((one for one in levels[coarsest::-1] if has_every(table, one)), "image")


def units_in(table: pd.DataFrame) -> list[Unit]:
    """Return the units, other than the image, of which at least one image of a table has the ids."""
    return [
        unit
        for unit, columns in UNIT_KEYS.items()
        if unit != "image" and set(columns) <= {*table} and table[list(columns)].notna().all(axis=1).any()
    ]


def count_units(table: pd.DataFrame, classes: Sequence[str], positive: str) -> dict[Unit, UnitCount] | None:
    """Count the units of a table by class; None if no image has an id of any.

    Args:
        table: table with the label and the ids of each image.
        classes: the classes, in the order in which they are listed.
        positive: the class of a unit of which any image has it; otherwise a unit has the first class that occurs.
    """
    first = [positive, *(name for name in classes if name != positive)]
    found: dict[Unit, UnitCount] = {}
    for unit in units_in(table):
        columns = list(UNIT_KEYS[unit])
        known = table.dropna(subset=columns)
        ranks = known["label"].map(first.index).groupby([known[name] for name in columns])
        label = ranks.min()
        found[unit] = UnitCount(
            n=len(label),
            classes={name: int((label == first.index(name)).sum()) for name in classes},
            several_labels=int((ranks.nunique() > 1).sum()),
            images_without=len(table) - len(known),
        )
    return found or None


def disagreeing_lesions(table: pd.DataFrame) -> list[list[int]]:
    """Return the positions of the images of each lesion whose images have more than one label."""
    if "lesion_id" not in table:
        return []
    known = table.reset_index(drop=True).dropna(subset="lesion_id")
    groups = known.groupby(["dataset", "lesion_id"], sort=False)
    return [[int(at) for at in rows.index] for _, rows in groups if rows["label"].nunique() > 1]
