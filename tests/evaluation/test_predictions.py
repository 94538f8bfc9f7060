import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.evaluation.contents import summarise
from usvit.config.evaluation import Columns
from usvit.errors import UsvitError
from usvit.evaluation import predictions
from usvit.evaluation.foreign_tables import as_predictions
from usvit.evaluation.predictions import (
    COLUMNS,
    check_complete,
    check_predictions,
    checked_once,
    classes_of,
    predictions_table,
    read_predictions,
)
from usvit.files import csv_text, write_csv


def manifest_rows(ids, labels, **columns):
    rows = {"image_id": ids, "group_id": ids, "patient_id": None, "dataset": "busi", "label": labels}
    return pd.DataFrame(rows | columns)


def test_columns_stand_in_the_order_of_the_contract():
    table = predictions_table(
        manifest_rows(["a"], ["x"]), np.zeros((1, 3)), classes=["z", "x", "y"], fold=2, part="test"
    )
    assert list(table) == [*COLUMNS, "logit_z", "logit_x", "logit_y", "prob_z", "prob_x", "prob_y"]
    assert classes_of(table) == ["z", "x", "y"]
    assert table["fold"].tolist() == [2]


def test_probabilities_are_the_softmax_in_float64_even_where_float32_overflows():
    logits = np.array([[1000.0, 1001.0], [-1000.0, 0.0], [0.25, 0.25]], dtype=np.float32)
    table = predictions_table(
        manifest_rows(["a", "b", "c"], ["x", "x", "y"]), logits, classes=["x", "y"], fold=0, part="test"
    )
    assert table["prob_y"].dtype == np.float64
    np.testing.assert_allclose(table["prob_y"], [1 / (1 + np.exp(-1.0)), 1.0, 0.5], rtol=1e-15)
    np.testing.assert_array_equal(table["logit_x"], logits[:, 0].astype(np.float64))


def test_a_slice_of_the_manifest_keeps_its_rows_in_step_with_the_logits():
    rows = manifest_rows(["a", "b", "c"], ["x", "y", "x"])
    table = predictions_table(
        rows.iloc[[2, 1]], np.array([[5.0, 0], [0, 5]]), classes=["x", "y"], fold=0, part=["val", "test"]
    )
    assert table["image_id"].tolist() == ["c", "b"]
    assert table["part"].tolist() == ["val", "test"]
    assert table["prob_x"].tolist() == sorted(table["prob_x"], reverse=True)


@pytest.mark.parametrize("logit", [np.nan, np.inf, -np.inf])
def test_a_logit_that_is_not_finite_is_refused_with_the_image(logit):
    with pytest.raises(UsvitError, match=r"logit_x.*not finite.*image 'b'"):
        predictions_table(
            manifest_rows(["a", "b"], ["x", "y"]),
            np.array([[0.0, 1], [logit, 1]]),
            classes=["x", "y"],
            fold=0,
            part="test",
        )


def test_logits_of_another_shape_are_refused():
    with pytest.raises(ValueError, match=r"\(1, 3\), expected \(1, 2\)"):
        predictions_table(manifest_rows(["a"], ["x"]), np.zeros((1, 3)), classes=["x", "y"], fold=0, part="test")


def test_what_is_written_is_read_back_bit_for_bit(study, tmp_path):
    write_csv(tmp_path / "p.csv", study)
    again = read_predictions(tmp_path / "p.csv")
    for name in study.filter(regex="^(prob|logit)_"):
        np.testing.assert_array_equal(again[name].to_numpy(), study[name].to_numpy())
    assert again["image_id"].tolist() == study["image_id"].tolist()
    assert again["patient_id"].isna().tolist() == study["patient_id"].isna().tolist()
    assert csv_text(again) == csv_text(study)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\x00"), min_size=1),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    st.lists(st.floats(-40, 40), min_size=10, max_size=10),
)
def test_any_id_and_any_logit_survive_the_file(tmp_path_factory, ids, numbers):
    path = tmp_path_factory.mktemp("any") / "p.csv"
    logits = np.array(numbers).reshape(5, 2)[: len(ids)]
    table = predictions_table(manifest_rows(ids, ["x"] * len(ids)), logits, classes=["x", "NA"], fold=0, part="test")
    write_csv(path, table)
    again = read_predictions(path)
    assert again["image_id"].tolist() == ids
    np.testing.assert_array_equal(again["prob_NA"].to_numpy(), table["prob_NA"].to_numpy())


@pytest.mark.slow
def test_text_that_looks_like_something_else_stays_text(tmp_path):
    ids = ["000001", "1e5", "NA", "None", "null", "nan", "True", "benign (433)", 'a "quoted", one']
    classes = ["normal", "NA", "None"]
    table = predictions_table(
        manifest_rows(ids, [classes[i % 3] for i in range(len(ids))]),
        np.zeros((len(ids), 3)),
        classes=classes,
        fold=0,
        part="test",
    )
    write_csv(tmp_path / "p.csv", table)
    again = read_predictions(tmp_path / "p.csv")
    assert again["image_id"].tolist() == ids
    assert again["label"].tolist() == table["label"].tolist()
    assert again["patient_id"].isna().all()
    assert summarise(again, classes=classes, positive="NA")["class_counts"] == {"normal": 3, "NA": 3, "None": 3}


def test_a_table_of_another_tool_needs_no_logits_and_may_carry_more_columns(tmp_path, study):
    write_csv(tmp_path / "p.csv", study.drop(columns=list(study.filter(like="logit_"))).assign(scanner="A"))
    assert classes_of(read_predictions(tmp_path / "p.csv")) == ["benign", "malignant", "normal"]


HEADER = "image_id,group_id,patient_id,dataset,fold,part,label,prob_x,prob_y\n"
GOOD = "a,g,,d,0,test,x,0.5,0.5\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Cannot read"),
        (HEADER.replace("group_id,", "") + "a,,d,0,test,x,0.5,0.5\n", "no column group_id"),
        (HEADER.replace(",prob_y", "") + "a,g,,d,0,test,x,1\n", "at least two classes"),
        (HEADER + "a,g,,d,0,test,x,high,0.5\n", "'prob_x' must hold finite numbers, in row 1, image 'a'"),
        (HEADER + GOOD + "b,g,,d,0,test,x,nan,0.5\n", "'prob_x' must hold finite numbers, in row 2, image 'b'"),
        (HEADER + "a,g,,d,0,test,x,0.5,inf\n", "'prob_y' must hold finite numbers"),
        (HEADER + "a,g,,d,0,test,x,,1\n", "'prob_x' must hold finite numbers"),
        (HEADER + "a,g,,d,0,test,x,0.5,0.4999\n", "do not sum to 1"),
        (HEADER + "a,g,,d,0,test,x,1.5,-0.5\n", "outside 0 to 1"),
        (HEADER + "a,g,,d,0,test,z,0.5,0.5\n", "Unknown label 'z'.*no column 'prob_z'"),
        (HEADER + "a,g,,d,0.5,test,x,0.5,0.5\n", "whole numbers"),
        (HEADER + "a,g,,d,one,test,x,0.5,0.5\n", "'fold' must hold finite numbers"),
        (HEADER + "a,g,,d,0,Test,x,0.5,0.5\n", "train, val or test"),
        (HEADER + "a,,,d,0,test,x,0.5,0.5\n", "'group_id' is empty"),
        (HEADER + GOOD + GOOD.replace("0,test", "1,test"), "predicted twice in part test, in row 2, image 'a'"),
        (HEADER.replace("prob_x", "logit_y,prob_x") + "a,g,,d,0,test,x,1,0.5,0.5\n", "same classes in the same order"),
    ],
)
def test_a_table_that_no_number_should_be_made_from_is_refused(tmp_path, text, message):
    (tmp_path / "bad.csv").write_text(text)
    with pytest.raises(UsvitError, match=message) as error:
        read_predictions(tmp_path / "bad.csv")
    assert "bad.csv" in str(error.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(UsvitError, match=r"no predictions table .*gone\.csv"):
        read_predictions(tmp_path / "gone.csv")


def test_six_decimals_are_close_enough_to_sum_to_one(tmp_path):
    (tmp_path / "p.csv").write_text(HEADER + "a,g,,d,0,test,x,0.333333,0.666666\n")
    assert read_predictions(tmp_path / "p.csv")["prob_x"].tolist() == [0.333333]


def test_one_name_in_two_data_sets_is_two_images(tmp_path):
    (tmp_path / "p.csv").write_text(HEADER + GOOD + GOOD.replace(",d,", ",e,"))
    table = read_predictions(tmp_path / "p.csv")
    check_complete(table, [("d", "a"), ("e", "a")])


def test_an_image_may_be_validated_in_many_folds_but_tested_in_one(tmp_path):
    val = GOOD.replace("0,test", "1,val") + GOOD.replace("0,test", "2,val")
    (tmp_path / "p.csv").write_text(HEADER + GOOD + val)
    assert len(read_predictions(tmp_path / "p.csv")) == 3


def test_complete_predictions_pass(study):
    check_complete(study, study[["dataset", "image_id"]], 5)


def test_a_missing_fold_is_named_with_its_images(study):
    with pytest.raises(
        UsvitError, match=r"missing folds: 3; images without a prediction: 40 \(busi/000006, .*, \.\.\.\)"
    ):
        check_complete(study[study["fold"] != 3], study, 5)


def test_a_missing_a_double_and_a_strange_image_are_named(study):
    first, second = study.iloc[[0]], study.iloc[[1]]
    broken = pd.concat([study.drop(index=0), second.assign(fold=4), first.assign(image_id="stranger")])
    with pytest.raises(UsvitError) as error:
        check_complete(broken, study, 5)
    assert f"without a prediction: 1 (busi/{first['image_id'].item()})" in str(error.value)
    assert f"predicted twice: 1 (busi/{second['image_id'].item()})" in str(error.value)
    assert "not expected: 1 (busi/stranger)" in str(error.value)


def test_a_fold_beyond_the_last_is_refused(study):
    with pytest.raises(UsvitError, match="unknown folds: 4"):
        check_complete(study, study, 4)


def test_predictions_on_validation_images_do_not_count_as_tested(study):
    with pytest.raises(UsvitError, match="images without a prediction: 200"):
        check_complete(study.assign(part="val"), study, 5)


UNITS = {"patient_id": ["P", "P"], "lesion_id": ["L", None], "side": ["left", None], "exam_id": ["E", "E"]}


def with_units_of(**changed):
    rows = manifest_rows(["a", "b"], ["x", "y"], **{**UNITS, **changed})
    return predictions_table(rows, np.zeros((2, 2)), classes=["x", "y"], fold=0, part="test")


def test_units_of_the_manifest_follow_the_patient_and_come_back(tmp_path):
    table = with_units_of()
    assert list(table)[:7] == ["image_id", "group_id", "patient_id", "lesion_id", "side", "exam_id", "dataset"]
    write_csv(tmp_path / "p.csv", table)
    again = read_predictions(tmp_path / "p.csv")
    assert again["lesion_id"].isna().tolist() == again["side"].isna().tolist() == [False, True]
    assert csv_text(again) == csv_text(table)


def test_a_manifest_with_one_of_the_columns_gives_only_that_one():
    rows = manifest_rows(["a"], ["x"], patient_id=["P"], side=["left"])
    table = predictions_table(rows, np.zeros((1, 2)), classes=["x", "y"], fold=0, part="test")
    assert "side" in table and not {"lesion_id", "exam_id"} & {*table}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"side": ["left", "both"]}, r"column 'side' must be left or right, or empty, in row 2, image 'b'"),
        ({"lesion_id": ["L", "L"], "patient_id": ["P", "Q"]}, r"the images 'a' and 'b' belong to one lesion but"),
        ({"lesion_id": ["L", "L"], "side": ["left", "right"]}, r"two sides"),
        ({"patient_id": ["P", "Q"]}, r"belong to one exam but have two patients"),
        ({"patient_id": [None, "P"]}, r"the image 'a' has a lesion but no patient"),
    ],
)
def test_units_that_contradict_each_other_are_refused(changed, says):
    with pytest.raises(UsvitError, match=says):
        with_units_of(**changed)


def foreign(**columns):
    base = {"label": ["x", "y", "x"], "prob_x": [0.5] * 3, "prob_y": [0.5] * 3, "Patient": ["P", "P", "Q"]}
    raw = pd.DataFrame(base | columns)
    asked = Columns(patient="Patient", lesion="Herd", side="Seite", exam="Unters")
    return as_predictions(raw, "t.csv", asked, "x", dataset="d")[0]


def test_columns_of_units_of_a_foreign_table_are_named_by_the_user():
    found = foreign(Herd=["1", "2", ""], Seite=["Links", "R", ""], Unters=[1.0, 1.0, np.nan])
    assert found["lesion_id"].fillna("none").tolist() == ["1", "2", "none"]
    assert found["side"].fillna("none").tolist() == ["left", "right", "none"]
    assert found["exam_id"].fillna("none").tolist() == ["1", "1", "none"]
    assert list(found)[3:6] == ["lesion_id", "side", "exam_id"]


def test_an_empty_column_of_a_foreign_table_is_no_column():
    found = foreign(Herd=["", "", ""], Seite=["", "", ""], Unters=["E", "E", "F"])
    assert "lesion_id" not in found and "side" not in found and "exam_id" in found


def test_a_side_that_is_not_known_is_refused_with_the_known_words():
    with pytest.raises(UsvitError, match=r"'Seite' holds a side .* row 2, image 'row 2'. Known are left, l, lt,"):
        foreign(Herd=["1", "2", ""], Seite=["L", "oben", ""], Unters=["E", "E", "F"])


def test_a_lesion_of_two_patients_in_a_foreign_table_is_refused():
    with pytest.raises(UsvitError, match=r"t.csv: the images 'row 1' and 'row 3' belong to one lesion"):
        foreign(Herd=["1", "", "1"], Seite=["", "", ""], Unters=["", "", ""])


def test_where_nothing_changes_a_table_is_checked_once_and_a_bad_one_refused(monkeypatch):
    good = predictions_table(manifest_rows(["a"], ["x"]), np.zeros((1, 2)), classes=["x", "y"], fold=0, part="test")
    bad, seen = good.assign(prob_x=2.0), []
    check = predictions.check_units
    monkeypatch.setattr(predictions, "check_units", lambda table, source: (seen.append(source), check(table, source)))
    with checked_once():
        for name in "123":
            check_predictions(good, name)
            with pytest.raises(UsvitError, match="outside 0 to 1"):
                check_predictions(bad, name)
    check_predictions(good, "after")
    assert seen == ["1", "after"]
