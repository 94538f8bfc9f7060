"""Tables of answers, also of other tools, and the errors of those that are not crossed."""

import numpy as np
import pandas as pd
import pytest

from usvit.config.reader_study import ReaderStudySettings
from usvit.errors import UsvitError
from usvit.evaluation import analyse_answers, read_answers


def answers(n=12, readers="AB", modalities=("unaided", "aided")):
    rng = np.random.default_rng(0)
    rows = [
        (reader, modality, f"c{case}", f"p{case // 2}", case % 2, round(float(rng.normal() + case % 2), 2))
        for case in range(n)
        for reader in readers
        for modality in modalities
    ]
    return pd.DataFrame(rows, columns=["reader", "modality", "case", "patient_id", "truth", "rating"])


def read(tmp_path, table, name="answers.csv", **settings):
    path = tmp_path / name
    table.to_parquet(path) if name.endswith("parquet") else table.to_csv(path, index=False)
    return read_answers(path, ReaderStudySettings(**settings))


@pytest.mark.parametrize("name", ["answers.csv", "answers.parquet"])
def test_a_table_in_any_order(tmp_path, name):
    table = answers()
    found = read(tmp_path, table.sample(frac=1, random_state=1), name)
    assert found.readers == ["A", "B"] or found.readers == ["B", "A"]
    assert set(found.ratings) == {"aided", "unaided"} and not found.warnings and len(set(found.group)) == 6
    for modality, ratings in found.ratings.items():
        for reader, values in ratings.items():
            own = table[(table["reader"] == reader) & (table["modality"] == modality)].set_index("case")
            assert values.tolist() == own.loc[found.cases, "rating"].tolist()
            assert found.positive.tolist() == own.loc[found.cases, "truth"].astype(bool).tolist()


@pytest.mark.parametrize("reference", ["truth", "-1"])
def test_the_long_form_of_imrmc(tmp_path, reference):
    table = answers().drop(columns="patient_id")
    truth = table.drop_duplicates("case").assign(reader=reference, modality="truth", rating=lambda one: one["truth"])
    names = {"reader": "readerID", "modality": "modalityID", "case": "caseID", "rating": "score"}
    found = read(tmp_path, pd.concat([table, truth]).drop(columns="truth").rename(columns=names))
    assert found.positive.sum() == 6 and found.readers == ["A", "B"]
    assert "every case counts as a patient of its own" in found.warnings[0]


def test_words_of_the_truth_and_one_modality(tmp_path):
    table = answers(modalities=("x",)).drop(columns="modality")
    table["truth"] = table["truth"].map({1: "bösartig", 0: "gutartig"})
    assert read(tmp_path, table, positive="bösartig").positive.sum() == 6
    with pytest.raises(
        UsvitError, match="the reference 'bösartig' is not known: name the positive class with --positive"
    ):
        read(tmp_path, table)
    with pytest.raises(UsvitError, match="Unknown class 'malignant'"):
        read(tmp_path, table, positive="malignant")


def changed(table, row, **cells):
    table = table.astype(object)
    for name, value in cells.items():
        table.loc[row, name] = value
    return table


@pytest.mark.parametrize(
    ("make", "settings", "said"),
    [
        (lambda one: one.drop(index=0), {}, "reader A in unaided has no rating of 1 case, such as 'c0'"),
        (lambda one: pd.concat([one, one.iloc[:1]]), {}, "reader A in unaided has two ratings of case 'c0'"),
        (
            lambda one: changed(one, 0, rating="n/a"),
            {},
            "the rating of case 'c0' by reader A in unaided is not a finite",
        ),
        (lambda one: changed(one, 0, rating="inf"), {}, "is not a finite number"),
        (lambda one: changed(one, 1, truth=1), {}, "case 'c0' has two values in column 'truth'"),
        (lambda one: changed(one, 1, patient_id="p9"), {}, "case 'c0' has two values in column 'patient_id'"),
        (lambda one: changed(one, 2, reader=""), {}, "column 'reader' is empty in row 4"),
        (lambda one: one.assign(truth=1), {}, "all 12 cases are positive"),
        (lambda one: one.drop(columns="rating"), {}, "has no column rating and score: name that of the rating with"),
        (lambda one: one.drop(columns="truth"), {}, "no row of a reader named truth"),
        (lambda one: one, {"rating": "ratng"}, "Unknown column 'ratng'"),
        (lambda one: one, {"model": "C"}, "Unknown reader 'C'"),
        (lambda one: one, {"model": "A"}, "the model A has ratings in aided and unaided"),
    ],
)
def test_bad_tables_are_one_clear_sentence(tmp_path, make, settings, said):
    with pytest.raises(UsvitError, match=said):
        read(tmp_path, make(answers()), **settings)


def test_margins_need_their_test_and_a_size(tmp_path):
    found = read(tmp_path, answers())
    with pytest.raises(UsvitError, match="--test equivalence needs a margin"):
        analyse_answers(found, ReaderStudySettings(test="equivalence"), "a")
    with pytest.raises(UsvitError, match="give a margin above 0"):
        analyse_answers(found, ReaderStudySettings(margin=0.7), "a")


def test_a_study_of_three_modalities_and_a_model(tmp_path):
    table = answers(60, "ABC", ("film", "digital", "aided"))
    model = answers(60, "M", ("alone",))
    settings = ReaderStudySettings(model="M", positive_from=0.5, margin=0.1, test="equivalence")
    record = analyse_answers(read(tmp_path, pd.concat([table, model]), model="M"), settings, "study")
    assert [one.modality for one in record.agreement] == ["film", "digital", "aided"]
    assert all(one.gwet_ac1.ci95 and one.weighted_kappa.ci95 for one in record.agreement)
    assert [one.figure for one in record.figures] == ["auc", "sensitivity", "specificity"]
    area = record.figures[0]
    assert [(one.a, one.b) for one in area.differences] == [
        ("digital", "film"),
        ("aided", "film"),
        ("aided", "digital"),
        ("model", "readers, film"),
        ("model", "readers, digital"),
        ("model", "readers, aided"),
    ]
    both = [one.mean[0] for one in area.differences]
    assert all(one.equivalence is not None and one.noninferiority is None for one in both)
    assert all(one.p_holm >= one.estimate.p for one in both)
    for one in area.differences[:3]:
        means = {each.modality: each.mean[0].estimate.value for each in area.modalities}
        assert one.mean[0].estimate.value == pytest.approx(means[one.a] - means[one.b])
    assert {(one.readers, one.patients) for one in area.differences[0].power} == {
        (readers, patients) for readers in (3, 5, 8, 12) for patients in (15, 30, 60, 120)
    }


def test_one_reader_has_no_power_and_says_why(tmp_path):
    record = analyse_answers(read(tmp_path, answers(40, "A")), ReaderStudySettings(), "study")
    (pair,) = record.figures[0].differences
    assert record.agreement == [] and pair.power == [] and pair.components.mean_square is None
    assert pair.mean[0].estimate.reason == "one reader tells nothing about other readers"
    assert pair.mean[1].estimate.ci95 is not None and "There are 1 readers" not in record.warnings[0]
