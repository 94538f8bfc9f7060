"""Patients of a scored set from a column of the label table, for images that do not name their patient themselves."""

from dataclasses import replace

import pandas as pd

from usvit.config.evaluation import LabelTable
from usvit.data.datasets import read_private_sheet
from usvit.errors import UsvitError
from usvit.scoring.external.labels import (
    PLAIN,
    column_of,
    joined_ids,
    pseudonyms_of,
    the_join,
)
from usvit.scoring.external.scored_set import ScoredSet, groups_of


def with_patients(scored: ScoredSet, labels: LabelTable) -> ScoredSet:
    """Return the scored set with the patients of ``labels.patient``, and with the groups that follow from them.

    Images without a row, or with an empty cell, keep the patient that they had.

    Raises:
        UsvitError: the column, the key or the table is missing or wrong; the table is joined by patient already; an id
            has two patients; or the table gives two patients to images that name one patient themselves.
    """
    if labels.patient is None:
        return scored
    sheet = read_private_sheet(labels.path, "The label table")
    name, column = the_join(sheet, labels.join)
    by = PLAIN.get(name, name)
    if by == "patient_id":
        raise UsvitError(
            f"--patient and --join {name} both say which patient an image is of. Leave out --patient, or join by "
            "something finer."
        )
    cells = column_of(sheet, labels.patient, "It should hold the patients; it was passed with --patient.")
    make = pseudonyms_of(scored, labels.key, "--patient").patient
    table = pd.DataFrame({"id": joined_ids(sheet, name, column, scored, labels), "row": sheet.rows.index})
    table["patient"] = [make(cell) if cell else "" for cell in cells]
    table = table[(table["id"] != "") & (table["patient"] != "")]
    _refuse_several(table, "id", sheet.name, f"name the same {name} and give it two patients")
    patient = scored.rows[by].map(table.drop_duplicates("id").set_index("id")["patient"])
    known = patient.notna() & (scored.rows["patient_id"] != "")
    own = pd.DataFrame({"id": scored.rows["patient_id"], "patient": patient})[known].assign(row=None)
    if (own.groupby("id")["patient"].nunique() > 1).any():
        raise UsvitError(
            f"The column of patients in {sheet.name} gives two patients to images of one patient, by the patient that "
            "the images name themselves. Correct the table, or leave out --patient."
        )
    rows = scored.rows.assign(patient_id=patient.fillna(scored.rows["patient_id"]))
    return replace(scored, rows=rows.assign(group_id=groups_of(rows, scored.descriptions)))


def _refuse_several(table: pd.DataFrame, key: str, where: str, what: str) -> None:
    several = table.groupby(key)["patient"].nunique() > 1
    if several.any():
        own = table[table[key] == several.index[several][0]]
        first = own.iloc[0]
        other = own[own["patient"] != first["patient"]].iloc[0]
        raise UsvitError(f"{where}: rows {first['row']} and {other['row']} {what}. Correct the table.")
