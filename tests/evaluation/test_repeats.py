"""Predictions of a repeated cross-validation: what is refused, and that sections look at each image once."""

import numpy as np
import pandas as pd
import pytest

from tests.evaluation.conftest import CLASSES, make_study
from tests.evaluation.contents import summarise
from usvit.config.evaluation import UnitSettings
from usvit.errors import UsvitError
from usvit.evaluation.foreign_tables import Columns, as_predictions, read_raw
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.predictions import (
    COLUMNS,
    check_complete,
    check_predictions,
    first_repeat,
    predictions_table,
    read_predictions,
)
from usvit.evaluation.subgroups import subgroups
from usvit.evaluation.units import units_of
from usvit.files import write_csv
from usvit.metrics.basic import auc

pytestmark = pytest.mark.slow


@pytest.fixture
def repeated(study) -> pd.DataFrame:
    """Three repeats of five folds: the same images, other folds and other scores in each."""
    tables = []
    for repeat in range(3):
        one = make_study(seed=repeat)
        one["label"] = study.set_index("image_id")["label"].reindex(one["image_id"]).to_numpy()
        patient = one["group_id"].str[1:].astype(int)
        one["fold"] = (patient // (repeat + 1)) % 5 + 5 * repeat
        one.insert(COLUMNS.index("fold") + 1, "repeat", repeat)
        tables.append(one)
    return pd.concat(tables, ignore_index=True)


def test_the_column_stands_after_the_fold_and_only_where_asked_for():
    rows = pd.DataFrame({"image_id": ["a"], "group_id": ["a"], "patient_id": None, "dataset": "d", "label": ["x"]})
    table = predictions_table(rows, np.zeros((1, 2)), classes=["x", "y"], fold=7, part="test", repeat=1)
    assert list(table)[4:8] == ["fold", "repeat", "part", "label"]
    assert table["repeat"].tolist() == [1]


def test_an_image_is_tested_once_in_each_repeat(repeated):
    check_predictions(repeated, "p.csv")
    twice = pd.concat([repeated, repeated.iloc[[3]]], ignore_index=True)
    with pytest.raises(UsvitError, match=r"predicted twice in part test of one repeat, in row 601"):
        check_predictions(twice, "p.csv")


def test_a_fold_belongs_to_one_repeat(repeated):
    repeated["fold"] %= 5
    with pytest.raises(UsvitError, match=r"p\.csv: a fold belongs to two repeats; number the folds"):
        check_predictions(repeated, "p.csv")


@pytest.mark.parametrize("bad", [-1, 0.5, np.nan])
def test_a_repeat_that_is_no_count_is_refused(repeated, bad):
    repeated["repeat"] = repeated["repeat"].astype(float)
    repeated.loc[4, "repeat"] = bad
    with pytest.raises(UsvitError, match=r"column 'repeat' must count from 0, in row 5"):
        check_predictions(repeated, "p.csv")


def test_a_table_is_written_and_read_back_with_its_repeats(repeated, tmp_path):
    write_csv(tmp_path / "p.csv", repeated)
    assert read_predictions(tmp_path / "p.csv")["repeat"].tolist() == repeated["repeat"].tolist()
    write_csv(tmp_path / "q.csv", repeated.assign(repeat="first"))
    with pytest.raises(UsvitError, match=r"column 'repeat' must hold finite numbers"):
        read_predictions(tmp_path / "q.csv")
    found, _ = as_predictions(read_raw(tmp_path / "p.csv"), "p.csv", Columns(), None, dataset="d")
    assert found["repeat"].tolist() == repeated["repeat"].tolist()
    assert list(found)[4:8] == ["fold", "repeat", "part", "label"]


def test_the_first_repeat_holds_each_image_once(repeated):
    first = first_repeat(repeated)
    assert not first.duplicated(["dataset", "image_id"]).any()
    assert set(first["fold"]) == set(range(5))
    assert first_repeat(repeated[repeated["repeat"] == 2])["fold"].min() == 10  # one fold's own table stays whole
    assert len(rows_of(repeated, "test")) == 200
    every = rows_of(repeated, "test", every_repeat=True)
    assert len(every) == 600
    assert every[every.repeat == 2].fold.min() == 10


def test_every_repeat_must_be_complete(repeated):
    expected = repeated.loc[repeated["repeat"] == 0, ["dataset", "image_id"]]
    check_complete(repeated, expected, 15)
    check_complete(repeated, repeated[["dataset", "image_id", "repeat"]], 15)
    last = repeated.index[-1]
    with pytest.raises(UsvitError, match=r"without a prediction: 1 \(busi/\d+ in repeat 2\)"):
        check_complete(repeated.drop(last), expected, 15)
    with pytest.raises(UsvitError, match=r"missing folds: 14"):
        check_complete(repeated[repeated["fold"] != 14], expected, 15)
    with pytest.raises(UsvitError, match=r"without a prediction: 200"):  # a whole repeat is not there
        check_complete(repeated[repeated["repeat"] < 2], repeated[["dataset", "image_id", "repeat"]], 10)


def test_sections_that_need_each_image_once_are_those_of_the_first_repeat(repeated):
    whole = summarise(repeated, classes=CLASSES, positive="malignant")
    first = summarise(first_repeat(repeated).drop(columns="repeat"), classes=CLASSES, positive="malignant")
    for section in ("pooled", "confusion", "patients", "operating_points", "calibration", "decision_curve"):
        # The headline of the patients is a mean over all repeats.
        assert (
            {**whole[section], "headline": 0} == {**first[section], "headline": 0}
            if section == "patients"
            else (whole[section] == first[section])
        ), section
    assert whole["n_images"] == 200
    assert [(one["fold"], one["repeat"]) for one in whole["folds"]] == [(k, k // 5) for k in range(15)]
    known = repeated.assign(patient_id=repeated["group_id"])
    assert units_of(known, UnitSettings(unit="patient"), "malignant")[1].n_units == 100
    assert sum(level.n_images for level in subgroups(repeated, "dataset", positive="malignant")) == 200


def test_the_headline_is_the_mean_of_all_folds_and_says_what_it_is_about(repeated):
    headline = summarise(repeated, classes=CLASSES, positive="malignant")["headline"]
    rows = rows_of(repeated, "test", every_repeat=True)
    areas = [auc(rows.label[rows.fold == k] == 1, rows.prob[rows.fold == k, 1]) for k in range(15)]
    assert headline["auc"]["value"] == pytest.approx(np.mean(areas))
    assert (headline["n_repeats"], headline["n_folds"]) == (3, 15)
    assert headline["training_share"]["n_pairs"] > 300
    assert "expected figure of this training procedure" in headline["explains"]
    once = summarise(first_repeat(repeated), classes=CLASSES, positive="malignant")["headline"]
    assert once["training_share"]["value"] == 1.0  # no inner validation rows, no repeats
    assert "these 5 models" in once["explains"]


def test_the_headline_of_a_hold_out_is_its_clustered_figure(repeated):
    table = repeated[repeated["fold"] == 0].drop(columns="repeat")
    summary = summarise(table, classes=CLASSES, positive="malignant")
    assert summary["headline"]["auc"] == summary["pooled"]["auc"]["malignant_vs_rest"]
    assert summary["headline"]["accuracy"] == summary["pooled"]["accuracy"]
    assert summary["headline"]["training_share"] is None
