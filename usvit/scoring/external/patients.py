"""Patients, lesions and sides of a scored set from columns of the label table, beside what the images state."""

from collections.abc import Callable
from dataclasses import replace

import pandas as pd

from usvit.config.evaluation import LabelTable
from usvit.data.datasets import SIDE_WORDS, Spreadsheet, read_private_sheet, side_of
from usvit.errors import UsvitError
from usvit.scoring.external.labels import (
    PLAIN,
    column_of,
    joined_ids,
    pseudonyms_of,
    the_join,
)
from usvit.scoring.external.scored_set import ScoredSet, groups_of

_COLUMNS = {"patient": "patient_id", "lesion": "lesion_id", "side": "side"}
"""Setting of a label table -> column of the scored set; the names are also words."""


def with_patients(scored: ScoredSet, labels: LabelTable) -> ScoredSet:
    """Return the scored set with the patients, lesions and sides of the label table, and the groups that follow.

    Patients and lesions become pseudonyms. Images without a row, or with an empty cell, keep what they had. The columns
    ``lesion_id`` and ``side`` exist only if the table or the scores state them.

    Raises:
        UsvitError: the column, the key or the table is missing or wrong; the table is joined by patient already; an id
            has two patients, lesions or sides; or the table contradicts the patient or side that images state
            themselves.
    """
    asked = {name: column for name in _COLUMNS if (column := getattr(labels, name)) is not None}
    if not asked:
        return scored
    sheet = read_private_sheet(labels.path, "The label table")
    kind, column = the_join(sheet, labels.join)
    by = PLAIN.get(kind, kind)
    if by == "patient_id" and "patient" in asked:
        raise UsvitError(
            f"--patient and --join {kind} both say which patient an image is of. Leave out --patient, or join by "
            "something finer."
        )
    table = pd.DataFrame({"id": joined_ids(sheet, kind, column, scored, labels), "row": sheet.rows.index})
    rows = scored.rows
    for name, cells in asked.items():
        table[name] = _ids(sheet, name, cells, scored, labels)
        known = table[(table["id"] != "") & (table[name] != "")]
        _refuse_several(known, name, sheet.name, f"name the same {kind} and give it two {name}s")
        value = rows[by].map(known.drop_duplicates("id").set_index("id")[name])
        own = rows.get(_COLUMNS[name], pd.Series("", index=rows.index))
        _refuse_contradiction(own, value, name, sheet.name)
        rows = rows.assign(**{_COLUMNS[name]: value.fillna(own)})
    return replace(scored, rows=rows.assign(group_id=groups_of(rows, scored.descriptions)))


def _ids(sheet: Spreadsheet, name: str, column: str, scored: ScoredSet, labels: LabelTable) -> list[str]:
    """Return the pseudonym or the side in each row of the table; "" if its cell is empty."""
    cells = column_of(sheet, column, f"It should hold the {name}s; it was passed with --{name}.")
    if name != "side":
        pseudonyms = pseudonyms_of(scored, labels.key, f"--{name}")
        make: Callable[[str], str] = pseudonyms.patient if name == "patient" else pseudonyms.lesion
        return [make(cell) if cell else "" for cell in cells]
    sides = [side_of(cell) or "" for cell in cells]
    for position, (cell, side) in enumerate(zip(cells, sides, strict=True)):
        if cell and not side:  # the cell is not quoted, because it may be anything if --side names a wrong column
            raise UsvitError(
                f"{sheet.where(position)}, column '{column}', names no side. Known are {SIDE_WORDS}. Leave the cell "
                "empty if it is unknown."
            )
    return sides


def _refuse_contradiction(own: pd.Series, value: pd.Series, name: str, where: str) -> None:
    """Refuse two patients of the table for one patient of the images, or another side than an image states."""
    both = pd.DataFrame({"own": own, "value": value})[value.notna() & (own != "")]
    if name == "side":  # the words are the same; those of patients are not
        wrong = (both["own"] != both["value"]).any()
    else:
        wrong = (both.groupby("own")["value"].nunique() > 1).any()
    if wrong:
        raise UsvitError(
            f"The column of {name}s in {where} contradicts the {name}s that images name themselves. Correct the table, "
            f"or leave out --{name}."
        )


def _refuse_several(table: pd.DataFrame, name: str, where: str, what: str) -> None:
    several = table.groupby("id")[name].nunique() > 1
    if several.any():
        own = table[table["id"] == several.index[several][0]]
        first = own.iloc[0]
        other = own[own[name] != first[name]].iloc[0]
        raise UsvitError(f"{where}: rows {first['row']} and {other['row']} {what}. Correct the table.")
