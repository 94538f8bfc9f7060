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


def readings(n=40, readers="ABC"):
    """Readings as ``usvit review export`` writes them, each reader in an order of her own, in two sessions."""
    table = answers(n, readers).rename(columns={"case": "case_id"})
    rng = np.random.default_rng(1)
    order = {reader: rng.permutation(n) for reader in readers}
    at = np.array([order[row.reader][int(row.case_id[1:])] for row in table.itertuples()])
    seconds = np.round(np.exp(2 - 0.3 * (table["modality"] == "aided") + 0.2 * rng.normal(size=len(table))), 2)
    table = table.assign(session=1 + at // (n // 2), position=at + 1, seconds=seconds)
    return table.assign(training=0, repeat=0, answered_at="2026-01-01")


def with_the_rest(table):
    """Add what no figure of accuracy uses: repeats of ten cases, a training case, and a reading that was begun."""
    repeats = table[table["case_id"].isin([f"c{k}" for k in range(10)])]
    repeats = repeats.assign(repeat=1, rating=repeats["rating"] + 0.1, position=900)
    training = table[table["case_id"] == "c0"].assign(case_id="t", training=1, position=0)
    begun = table.iloc[:1].assign(case_id="late", answered_at=None, rating=None, position=950)
    return pd.concat([table, repeats, training, begun])


def test_readings_of_usvit_review_give_what_their_first_readings_give(tmp_path):
    table, settings = readings(), ReaderStudySettings(positive_from=0.5)
    plain = analyse_answers(read(tmp_path, table, "a.csv"), settings, "a")
    found = analyse_answers(read(tmp_path, with_the_rest(table), "b.csv"), settings, "a")
    rows = found.rows
    assert (rows.analysed, rows.repeats, rows.training, rows.unfinished) == (240, 60, 6, 1)
    same = {"rows": plain.rows, "repeats": []}
    assert found.model_copy(update=same).content() == plain.content() and plain.repeats == []
    assert [(one.reader, one.n_repeats) for one in found.repeats[:4]] == [("A", 10), ("B", 10), ("C", 10), (None, 30)]
    assert all(one.weighted_kappa.value > 0.95 for one in found.repeats)
    assert found.repeats[0].icc.value == pytest.approx(found.repeats[0].weighted_kappa.value, abs=0.01)


def test_times_and_courses_are_those_of_the_table(tmp_path):
    table = readings()
    record = analyse_answers(read(tmp_path, table), ReaderStudySettings(positive_from=0.5), "a")
    logs = table.assign(log=np.log(table["seconds"])).pivot_table(index="modality", columns="reader", values="log")
    changes = {(one.what, one.a): one for one in record.times.changes}
    ratio = changes["ratio", "aided"]
    assert [one.value for one in ratio.readers] == pytest.approx(np.exp(logs.loc["aided"] - logs.loc["unaided"]))
    assert ratio.b == "unaided" and ratio.mean[0].estimate.p < 0.05 and changes["seconds", "aided"].b is None
    assert changes["seconds", "aided"].mean[0].estimate.value == pytest.approx(np.exp(logs.loc["aided"].mean()))
    wrong = (table["rating"] >= 0.5) != (table["truth"] == 1)
    own = table.assign(log=np.log(table["seconds"]), wrong=wrong)[table["modality"] == "aided"]
    means = own.groupby(["reader", "wrong"])["log"].mean().unstack()
    found = [one.value for one in changes["wrong_over_right", "aided"].readers]
    assert found == pytest.approx(np.exp(means[True] - means[False]))
    assert {(one.what, one.a) for one in record.courses.changes} == {
        (what, modality) for what in ("error_course", "time_course") for modality in ("unaided", "aided")
    }
    curve = next(one for one in record.courses.curves if (one.what, one.modality) == ("rank_error", "aided"))
    aided = next(one for one in record.figures[0].modalities if one.modality == "aided")
    assert len(curve.tenths) == 10 and np.mean(curve.tenths) == pytest.approx(
        1 - aided.mean[0].estimate.value, abs=0.03
    )


def test_one_order_for_all_readers_and_columns_that_hold_no_numbers_are_said(tmp_path):
    table = readings().assign(session=1)
    table["position"] = table["case_id"].str[1:].astype(int)
    said = analyse_answers(read(tmp_path, table), ReaderStudySettings(), "a").warnings
    assert any("All readers read the cases in one order in aided" in one for one in said)
    supine = read(tmp_path, table.assign(position="supine", seconds=0))
    assert supine.place is None and supine.seconds is None
    assert "column position is not used: it must hold numbers, but reader A has 'supine'" in supine.warnings[1]
    with pytest.raises(UsvitError, match="column 'position' must hold numbers"):
        read(tmp_path, table.assign(position="supine"), position="position")
    late = table.astype({"seconds": object})
    late.iloc[0, late.columns.get_loc("seconds")] = ""
    record = analyse_answers(read(tmp_path, late), ReaderStudySettings(), "a")
    assert record.times.n_cases == 39 and any("leave out 1 case without a time" in one for one in record.warnings)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda one: one.assign(repeat=2), "column 'repeat' holds '2': it must hold 0 or 1"),
        (lambda one: pd.concat([one, one[one["repeat"] == 1].iloc[:1]]), "reader A has two repeats of case 'c0'"),
        (lambda one: one.assign(rating=one["rating"].where(one["repeat"] == 0, "x")), "of the repeat of case 'c0'"),
    ],
)
def test_bad_repeats_are_one_clear_sentence(tmp_path, change, said):
    with pytest.raises(UsvitError, match=said):
        read(tmp_path, change(with_the_rest(readings())))


def test_decisions_are_held_against_the_model_and_between_modalities(tmp_path):
    table = answers(40, "ABC")
    model = answers(40, "M", ("alone",)).assign(rating=lambda one: 1 / (1 + np.exp(-one["rating"])))
    settings = ReaderStudySettings(positive_from=0.5, model="M", model_from=0.6)
    found = analyse_answers(read(tmp_path, pd.concat([table, model]), positive_from=0.5, model="M"), settings, "a")
    shares = {(one.what, one.a): one for one in found.decisions}
    assert [*shares] == [
        ("with_model", "unaided"), ("with_model", "aided"), ("to_right", "unaided"), ("to_wrong", "unaided")
    ]  # fmt: skip
    cells = table.assign(called=table["rating"] >= 0.5).pivot(
        index="case", columns=["modality", "reader"], values="called"
    )
    truth = table.drop_duplicates("case").set_index("case")["truth"].loc[cells.index].to_numpy()[:, None] == 1
    first, later = (cells[name].to_numpy() for name in ("unaided", "aided"))
    own = model.set_index("case")["rating"].loc[cells.index].to_numpy()[:, None] >= 0.6
    expected = {
        ("with_model", "unaided"): first == own,
        ("with_model", "aided"): later == own,
        ("to_right", "unaided"): (first != truth) & (later == truth),
        ("to_wrong", "unaided"): (first == truth) & (later != truth),
    }
    for name, share in shares.items():
        assert [one.value for one in share.readers] == pytest.approx(expected[name].mean(axis=0))
        estimate = share.mean[0].estimate
        assert estimate.value == pytest.approx(expected[name].mean()) and 0 < estimate.ci95[0] < estimate.value
        assert estimate.ci95[1] < 1
    sensitivity = found.figures[1]
    assert sensitivity.model == pytest.approx(own[truth].mean())
