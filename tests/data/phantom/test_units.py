from collections import Counter

import numpy as np
import pandas as pd
import pytest

from usvit.data.datasets.manifest import build_manifest
from usvit.data.datasets.units import contradiction
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.data.phantom.plan import draw_patient, plan_patients
from usvit.data.phantom.spec import CLASS_SHARE
from usvit.data.phantom.units import NO_UNIT, unit_columns
from usvit.errors import UsvitError
from usvit.progress import NoProgress
from usvit.records import PhantomRecord, load_record


def planned(**settings):
    return [view for views in plan_patients(PhantomSpec(**settings)) for view in views]


@pytest.mark.parametrize(("n", "views"), [(3, 20), (4, 1), (7, 20), (59, 20), (60, 2), (61, 20), (500, 19)])
def test_exactly_n_images_of_patients_with_up_to_the_views(n, views):
    patients = plan_patients(PhantomSpec(n=n, views=views, lesions=4, exams=4))
    assert sum(map(len, patients)) == n
    assert max(map(len, patients)) <= views
    assert {views[0].label for views in patients} == set(CLASS_SHARE)
    assert len({view.image_id for of_patient in patients for view in of_patient}) == n


def test_numbers_of_views_are_uneven_from_one_to_the_largest():
    sizes = Counter(map(len, plan_patients(PhantomSpec(n=4000, views=20))))
    assert set(sizes) == set(range(1, 21))
    assert min(sizes.values()) > 5


def test_units_do_not_contradict_each_other_and_every_lesion_has_a_view():
    views = planned(n=600, views=9, lesions=4, exams=3, seed=2)
    rows = pd.DataFrame([unit_columns(one.patient_id, one.unit) | {"patient_id": one.patient_id} for one in views])
    rows = rows.replace("", None).assign(dataset="phantom", label=[one.label for one in views])
    assert contradiction(rows) is None
    assert rows[rows.label == "normal"].lesion_id.isna().all() and rows[rows.label != "normal"].lesion_id.notna().all()
    assert (rows.dropna(subset="lesion_id").groupby("lesion_id").label.nunique() == 1).all()
    assert (rows.groupby("patient_id").lesion_id.nunique() > 1).any()
    assert (rows.groupby("patient_id").side.nunique() == 2).any()
    assert (rows.groupby("patient_id").exam_id.nunique() == 3).any()
    mixed = rows.groupby("patient_id").label.agg(set)
    assert {"benign", "malignant"} in [*mixed], "a benign lesion beside a malignant one"
    assert not any("normal" in found and len(found) > 1 for found in mixed)


@pytest.mark.parametrize("k", [1, 2, 20])
def test_signs_are_visible_in_k_views_of_each_malignant_lesion(k):
    views = planned(n=300, views=12, lesions=2, sign_views=k)
    lesions = Counter((one.number, one.unit.lesion) for one in views if one.label == "malignant")
    shown = Counter((one.number, one.unit.lesion) for one in views if one.label == "malignant" and one.unit.shows_signs)
    assert shown == Counter({lesion: min(n, k) for lesion, n in lesions.items()})
    assert all(one.unit.shows_signs for one in views if one.label != "malignant")
    everywhere = planned(n=300, views=12, lesions=2)
    assert [one.label for one in everywhere] == [one.label for one in views]
    assert all(one.unit.shows_signs for one in everywhere)


def test_a_lesion_without_its_signs_keeps_its_place_and_looks_benign():
    spec = PhantomSpec(n=60, views=8, lesions=3, sign_views=1)
    views = [one for one in planned(n=60, views=8, lesions=3, sign_views=1) if one.label == "malignant"]
    hidden = next(one for one in views if not one.unit.shows_signs)
    shown = next(
        one
        for one in views
        if one.unit.shows_signs and one.unit.lesion == hidden.unit.lesion and one.number == hidden.number
    )
    found = [draw_patient(spec, one.number, one.label, one.unit).lesion for one in (hidden, shown)]
    benign = draw_patient(spec, hidden.number, "benign", hidden.unit).lesion
    assert found[0] == benign and found[0].signs != found[1].signs
    assert (found[0].diameter, found[0].across) == (found[1].diameter, found[1].across)


def test_near_duplicates_show_the_lesion_that_they_copy():
    views = planned(n=200, views=10, lesions=3, near_duplicates=0.4, sign_views=2)
    by_id = {one.image_id: one for one in views}
    copies = [one for one in views if one.duplicate_of]
    assert len(copies) == 80
    assert all(
        one.unit == by_id[one.duplicate_of].unit and one.label == by_id[one.duplicate_of].label for one in copies
    )


def test_without_views_nothing_of_units_is_planned():
    assert {one.unit for one in planned(n=24)} == {NO_UNIT}
    assert unit_columns("p001", NO_UNIT) == {}


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"views": 21}, "views is 21; it must be a whole number, between 0 and 20"),
        ({"views": -1}, "views is -1"),
        ({"views": 4, "lesions": 5}, "lesions is 5; it must be a whole number, between 1 and 4"),
        ({"views": 4, "exams": 0}, "exams is 0"),
        ({"views": 4, "sign_views": 21}, "sign_views is 21"),
        ({"lesions": 2}, "need views"),
        ({"sign_views": 1}, "need views"),
    ],
)
def test_settings_beyond_the_limits_are_refused(settings, says):
    with pytest.raises(UsvitError, match=says):
        PhantomSpec(**settings)


@pytest.mark.slow
def test_the_written_set_has_units_and_is_read_with_them(tmp_path):
    spec = PhantomSpec(n=24, size=64, views=6, lesions=2, exams=2, sign_views=1)
    write_phantom(spec, tmp_path / "p")
    record = load_record(tmp_path / "p" / "phantom.json", PhantomRecord)
    assert (record.spec.views, record.spec.lesions, record.spec.exams, record.spec.sign_views) == (6, 2, 2, 1)
    assert "views6-2-2-1" in record.key
    table = build_manifest("phantom", {"": tmp_path / "p"}, NoProgress(), near_duplicates=False).table
    written = pd.read_csv(tmp_path / "p" / "phantom.csv", dtype=str, keep_default_na=False).set_index("image_id")
    for name in ("lesion_id", "side", "exam_id"):
        assert table[name].fillna("").tolist() == written.loc[table.image_id, name].tolist()
    assert np.isin(table.side, ["left", "right"]).all()
    write_phantom(PhantomSpec(n=6, size=64), tmp_path / "plain")
    assert "views" not in (tmp_path / "plain" / "phantom.json").read_text()
    assert "lesion_id" not in (tmp_path / "plain" / "phantom.csv").read_text()
