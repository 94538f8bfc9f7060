"""Patients of the label table make the groups of images that do not name theirs; contradictions are refused."""

from dataclasses import replace

import pandas as pd
import pytest

from tests.scoring.make_scores import make_scores
from usvit.errors import UsvitError
from usvit.pseudonyms import Pseudonyms
from usvit.scoring.external.evaluation import evaluate_scores
from usvit.scoring.external.labels import LabelTable
from usvit.scoring.external.patients import with_patients
from usvit.scoring.external.scored_set import read_scored_set


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Eight patients of several files; in ``anonymous``, no file names its patient, as in a folder of PNG files."""
    made = tmp_path_factory.mktemp("job")
    made_of = {"scores": None, "anonymous": lambda rows: rows.assign(patient_id="", study_id="")}
    for name, change in made_of.items():
        truth = make_scores(made / name, key=made / "key", n_patients=8, frames=1, change=change)
    truth.assign(case=truth["patient"]).to_csv(made / "labels.csv", index=False)
    return made


def table_of(folder, **options):
    return LabelTable(folder / "labels.csv", **{"key": folder / "key", "join": "item_id", "patient": "case", **options})


@pytest.mark.slow
def test_patients_of_the_table_make_the_groups_of_anonymous_images(folder):
    alone = read_scored_set(folder / "anonymous")
    found = with_patients(alone, table_of(folder))
    own = pd.read_csv(folder / "labels.csv", dtype=str).drop_duplicates("item_id").set_index("item_id")["case"]
    make = Pseudonyms.of_key(folder / "key").patient
    assert found.rows["patient_id"].tolist() == [make(own[item]) for item in found.rows["item_id"]]
    assert alone.rows["group_id"].nunique() > found.rows["group_id"].nunique() == 8
    assert with_patients(alone, table_of(folder, patient=None)) is alone


@pytest.mark.slow
def test_patients_that_contradict_the_images_or_themselves_are_refused(folder, tmp_path):
    scored = read_scored_set(folder / "scores")
    same = with_patients(scored, table_of(folder))
    assert same.rows["group_id"].nunique() == scored.rows["group_id"].nunique()
    table = pd.read_csv(folder / "labels.csv", dtype=str)
    for change, says in (
        (
            table.assign(case=[f"c{k}" for k in range(len(table))]),
            "contradicts the patients that images",
        ),
        (pd.concat([table, table.assign(case="other")]), r"rows \d+ and \d+ name the same item_id and give it two"),
    ):
        change.to_csv(tmp_path / "labels.csv", index=False)
        with pytest.raises(UsvitError, match=says):
            with_patients(scored, table_of(folder).model_copy(update={"path": tmp_path / "labels.csv"}))
    with pytest.raises(UsvitError, match="both say which patient"):
        with_patients(scored, table_of(folder, join="patient"))
    with pytest.raises(UsvitError, match="Unknown column 'who'"):
        with_patients(scored, table_of(folder, patient="who"))


def test_lesions_and_sides_of_the_table_make_units_and_contradictions_are_refused(folder, tmp_path):
    table = pd.read_csv(folder / "labels.csv", dtype=str)
    files = table["item_id"].tolist()
    table = table[:16].assign(
        lump=[f"{case} {k % 2}" for k, case in enumerate(table["case"][:16])], seite=["L", "rechts"] * 8
    )
    make = Pseudonyms.of_key(folder / "key").lesion

    def tested(changed, unit, **options):
        changed.to_csv(tmp_path / "labels.csv", index=False)
        labels = table_of(folder, **{"lesion": "lump", "side": "seite", **options})
        return evaluate_scores(
            folder / "scores", labels.model_copy(update={"path": tmp_path / "labels.csv"}), unit=unit
        )

    record, found = tested(table, "lesion")
    assert (record.unit.n_units, record.unit.n_images, record.unit.n_images_left_out) == (16, 16, 0)
    assert set(found.table["image_id"]) == set(found.table["lesion_id"]) == {make(lump) for lump in table["lump"]}
    assert "lesion" in {one.unit for one in record.prevalence}
    one = table.assign(lump=table["case"].where(table["item_id"] != files[0], ""), seite="L")
    record, found = tested(one, "lesion")
    assert (record.unit.n_units, record.unit.n_images_left_out, record.unit.reason) == (
        8,
        1,
        "1 image without lesion_id",
    )
    assert record.unit.images_per_unit.most == 2
    scored = read_scored_set(folder / "scores").rows.set_index("item_id")["calibrated_malignant"]
    pooled = found.table.set_index("image_id")["calibrated"]
    assert pooled[make(one["case"][2])] == pytest.approx(scored[files[2:4]].mean())
    record, found = tested(one, "breast")
    assert record.unit.n_units == 8 and all(name.endswith("/left") for name in found.table["image_id"])
    for changed, unit, says in (
        (table.assign(lump="1"), "lesion", "belong to one lesion but have two patients: correct them"),
        (table.assign(lump=table["case"]), "lesion", "belong to one lesion but have two sides"),
        (table.assign(seite="yes"), "breast", r"row 2.*column 'seite', names no side"),
    ):
        with pytest.raises(UsvitError, match=says):
            tested(changed, unit)
    with pytest.raises(UsvitError, match="no labelled image states its lesion"):
        tested(table, "lesion", lesion=None)
    sides = read_scored_set(folder / "scores")
    sides = replace(sides, rows=sides.rows.assign(side="right"))
    one.to_csv(tmp_path / "labels.csv", index=False)
    with pytest.raises(UsvitError, match="contradicts the sides that images name"):
        with_patients(sides, LabelTable(tmp_path / "labels.csv", join="item_id", side="seite"))
