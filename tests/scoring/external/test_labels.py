"""A label table meets a scored set: who finds whom, what is counted, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.records.contents import content
from tests.scoring.make_scores import make_scores
from usvit.errors import UsvitError
from usvit.scoring.external.labels import (
    COPY,
    FAILED,
    LEFT_OUT,
    NOT_SCORED,
    UNLABELLED,
    WITHOUT_ID,
    LabelTable,
    join_labels,
)
from usvit.scoring.external.scored_set import read_scored_set


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("job")


@pytest.fixture(scope="module")
def truth(folder):
    return make_scores(folder / "scores", key=folder / "key", n_patients=8, frames=2)


@pytest.fixture(scope="module")
def scored(folder, truth):
    return read_scored_set(folder / "scores")


@pytest.fixture
def join(folder, truth, scored, tmp_path):
    def of(table: pd.DataFrame, *, name: str = "labels.csv", into=scored, **options):
        path = tmp_path / name
        if name.endswith(".xlsx"):
            table.to_excel(path, index=False)
        elif name.endswith(".parquet"):
            table.to_parquet(path)
        else:
            table.to_csv(path, index=False, sep="\t" if name.endswith(".tsv") else ",")
        return join_labels(into, LabelTable(path, **{"key": folder / "key", **options}))

    return of


def right(found, truth):
    want = truth.set_index("item_id")["label"]
    return (found.rows["label"] == found.rows["item_id"].map(want)).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["labels.csv", "labels.tsv", "labels.xlsx", "labels.parquet"])
def test_ids_of_origin_are_found_through_the_key(join, truth, name):
    for kind, column in (
        ("path", "path"),
        ("sop_instance_uid", "sop"),
        ("study_instance_uid", "study"),
        ("original_patient_id", "patient"),
    ):
        table = truth[~truth.failed].rename(columns={column: kind})[[kind, "label"]]
        found = join(table, name=name)
        assert len(found.rows) == 32
        assert right(found, truth)


def test_pseudonyms_are_found_without_a_key(join, truth, tmp_path):
    found = join(truth[["item_id", "label"]], key=tmp_path / "none")
    assert len(found.rows) == 32
    assert right(found, truth)


def test_a_label_of_a_patient_speaks_of_all_images_and_a_table_may_say_it_once_an_image(join, truth):
    found = join(truth[~truth.failed][["patient", "label"]])
    assert (found.by, len(found.rows), found.n_labels, found.n_label_rows) == ("patient_id", 32, 8, 16)


def test_what_takes_no_part_is_counted_and_listed_by_row_and_pseudonym_alone(join, truth):
    table = truth[["path", "label"]].copy()
    table.loc[0, "label"] = "unclear"
    table = table.drop(index=3)  # this file is scored, and has no label
    table = pd.concat([table, pd.DataFrame({"path": ["export/AWAY/IM1", ""], "label": ["benign"] * 2})])
    found = join(table, words={"unclear": ""})
    counts = {what: found.count(what) for what in (LEFT_OUT, UNLABELLED, FAILED, NOT_SCORED, WITHOUT_ID, COPY)}
    assert counts == {LEFT_OUT: 1, UNLABELLED: 1, FAILED: 3, NOT_SCORED: 1, WITHOUT_ID: 1, COPY: 0}
    assert len(found.rows) == 28
    listed = found.listed.set_index("what")
    assert listed.loc[LEFT_OUT, "label_row"] == 2  # the header is row 1
    assert set(listed.loc[FAILED, "code"]) == {"truncated"}
    assert "export" not in found.listed.to_csv()
    assert set(found.failed["item_id"]) == set(truth.loc[truth.failed, "item_id"])


def test_paths_may_be_written_from_elsewhere_or_on_windows(join, truth):
    table = truth[["path", "label"]].copy()
    table["path"] = "D:\\pacs\\" + table["path"].str.replace("/", "\\")
    with pytest.raises(UsvitError, match="--input-root"):
        join(table)
    assert right(join(table, input_root="D:\\pacs"), truth)


def test_local_words_are_translated_and_an_idle_translation_is_told(join, truth):
    table = truth[["path", "label"]].replace({"malignant": "BI-RADS 6", "benign": "B"})
    found = join(table, words={"BI-RADS 6": "malignant", "B": "benign", "C": "benign"})
    assert right(found, truth)
    assert len(found.said) == 1
    assert "--map C=benign changed nothing" in found.said[0]


@pytest.mark.slow
def test_a_set_scored_with_ids_kept_needs_no_key(join, folder, tmp_path):
    truth = make_scores(tmp_path / "clear", key=folder / "key", n_patients=4, keep_ids=True)
    into = read_scored_set(tmp_path / "clear")
    found = join(truth[["path", "label"]], into=into, key=tmp_path / "none")
    assert right(found, truth)
    assert found.count(FAILED) == 3
    assert join(truth[["patient", "label"]].drop_duplicates(), into=into, key=tmp_path / "none").count(NOT_SCORED) == 3


def test_csv_and_parquet_are_read_alike(folder, scored, tmp_path):
    for name in ("scores.csv", "failures.csv", "job.json"):
        (tmp_path / name).write_bytes((folder / "scores" / name).read_bytes())
    other = read_scored_set(tmp_path)
    pd.testing.assert_frame_equal(other.rows, scored.rows, check_dtype=False)
    assert other.failures.equals(scored.failures)


def test_groups_are_patients_else_studies_else_files_and_never_frames(scored, tmp_path, folder):
    assert scored.rows.groupby("patient_id")["group_id"].nunique().eq(1).all()
    assert scored.rows["group_id"].nunique() == 8

    def without(rows):
        return rows.assign(patient_id=rows.patient_id.where(rows.index < 8, ""), study_id="")

    make_scores(tmp_path / "x", key=folder / "key", n_patients=8, frames=2, change=without)
    rows = read_scored_set(tmp_path / "x").rows
    assert rows["group_id"].nunique() == 2 + 12
    assert rows.groupby("item_id")["group_id"].nunique().eq(1).all()


def test_files_of_the_same_picture_are_one_group_unless_it_is_blank(tmp_path, folder):
    def alike(rows):
        same = rows.pixel_sha256.where(~rows.index.isin([1, 9, 20, 30]), "a" * 64)
        same = same.where(~rows.index.isin([20, 30]), "b" * 64)
        return rows.assign(
            patient_id="", study_id="", pixel_sha256=same, flags=rows["flags"].where(rows.index < 16, "blank")
        )

    make_scores(tmp_path / "x", key=folder / "key", n_patients=8, frames=2, change=alike)
    group = read_scored_set(tmp_path / "x").rows["group_id"]
    assert group[1] == group[9]
    assert group[20] != group[30]
    assert group.nunique() == 15


def test_a_file_exported_twice_counts_once(join, tmp_path, folder, truth):
    def twice(rows):
        again = rows[rows.index < 2].assign(item_id="f" * 16)
        return pd.concat([rows, again], ignore_index=True)

    make_scores(tmp_path / "x", key=folder / "key", n_patients=8, frames=2, change=twice)
    into = read_scored_set(tmp_path / "x")
    found = join(
        truth[~truth.failed].rename(columns={"sop": "sop_instance_uid"})[["sop_instance_uid", "label"]], into=into
    )
    assert (len(found.rows), found.count(COPY)) == (32, 1)


def test_an_instance_of_two_pictures_is_refused(join, tmp_path, folder, truth):
    def two(rows):
        return pd.concat(
            [rows, rows[rows.index < 2].assign(item_id="f" * 16, pixel_sha256="e" * 64)], ignore_index=True
        )

    make_scores(tmp_path / "x", key=folder / "key", n_patients=8, frames=2, change=two)
    table = truth[~truth.failed].rename(columns={"sop": "sop_instance_uid"})[["sop_instance_uid", "label"]]
    with pytest.raises(UsvitError, match="2 scored files of different pixels"):
        join(table, into=read_scored_set(tmp_path / "x"))


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda t: t, {"label": "lable"}, "Nearest: label"),
        (lambda t: t.drop(columns="path"), {}, "no column by which to find the scored images"),
        (lambda t: t, {"join": "paht"}, "Nearest: path"),
        (lambda t: t, {"join": "path=file"}, "Unknown column 'file'"),
        (lambda t: t.rename(columns={"path": "File"}), {"join": "File"}, "not what it holds. Write --join KIND=File"),
        (lambda t: t.assign(patient_id="P1").drop(columns="path"), {}, "--join original_patient_id=patient_id"),
        (lambda t: t.replace("malignant", "malig"), {}, "holds a word that is not a class of the model"),
        (lambda t: t, {"words": {"x": "malig"}}, "Unknown class 'malig'"),
        (lambda t: t.assign(label=""), {}, "is empty"),
        (lambda t: t.assign(label=[f"P {i}" for i in range(len(t))]), {}, "--map WORD=CLASS"),
        (lambda t: t.assign(path="x/" + t.path), {}, "--input-root"),
        (lambda t: t.iloc[:0], {}, "no rows"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(join, truth, change, options, said):
    with pytest.raises(UsvitError) as caught:
        join(change(truth[["path", "label"]].copy()), **options)
    assert said in str(caught.value)


def test_two_labels_for_one_id_are_refused_by_row_and_not_by_name(join, truth):
    table = pd.concat([truth[["path", "label"]], truth.loc[[0], ["path"]].assign(label="benign")])
    with pytest.raises(UsvitError, match="rows 2 and 21 name the same path and give it two labels") as caught:
        join(table)
    assert "NAME" not in str(caught.value)


def test_a_column_that_holds_no_classes_is_not_quoted(join, folder, tmp_path):
    truth = make_scores(tmp_path / "x", key=folder / "key", n_patients=30)
    with pytest.raises(UsvitError, match="Is it the column of labels") as caught:
        join(truth[["item_id", "patient"]], into=read_scored_set(tmp_path / "x"), label="patient")
    assert "HOSPITAL" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("NOVAK^JANA,malignant\nNOVAK^EVA,benign\n", {}),
        ("NOVAK^JANA,label\nNOVAK^EVA,benign\n", {}),
        ("NOVAK^JANA,label\nNOVAK^EVA,benign\n", {"join": "path=file"}),
        ("path,label\nx.png,NOVAK^JANA\n", {}),
        ("path,label\nx.png,benign,NOVAK^JANA\n", {}),
        ("label,patient\nbenign,NOVAK^JANA\n", {"join": "item_id=patient"}),
    ],
)
def test_no_error_quotes_a_cell_of_the_label_table(scored, folder, tmp_path, text, options):
    (tmp_path / "labels.csv").write_text(text)
    with pytest.raises(UsvitError) as caught:
        join_labels(scored, LabelTable(tmp_path / "labels.csv", key=folder / "key", **options))
    assert "NOVAK" not in str(caught.value)


def test_the_wrong_key_and_no_key_are_told_apart(join, truth, tmp_path):
    from usvit.pseudonyms import Pseudonyms

    with pytest.raises(UsvitError, match="there is no key"):
        join(truth[["path", "label"]], key=tmp_path / "none")
    assert not (tmp_path / "none").exists()
    Pseudonyms.of_key(tmp_path / "other")
    with pytest.raises(UsvitError, match=r"is not the one that .* was scored with"):
        join(truth[["path", "label"]], key=tmp_path / "other")


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda f: (f / "scores.parquet").write_bytes(b"PAR1"), r"Cannot read .*scores\.parquet as a Parquet table"),
        (lambda f: (f / "job.json").write_text(json.dumps(content("job", state="running"))), "is not finished"),
        (lambda f: [(f / name).unlink() for name in ("scores.parquet", "scores.csv")], "has no scores.parquet"),
        (lambda f: pd.DataFrame({"a": [1]}).to_parquet(f / "scores.parquet"), "not a table of usvit score"),
    ],
)
def test_a_folder_that_is_no_scored_set_is_refused(folder, tmp_path, harm, said):
    make_scores(tmp_path / "x", key=folder / "key", n_patients=4)
    (tmp_path / "x" / "summary.json").unlink()  # without the hashes on record, which would refuse any change first
    harm(tmp_path / "x")
    with pytest.raises(UsvitError, match=said):
        read_scored_set(tmp_path / "x")


def test_a_table_changed_by_hand_is_refused(folder, tmp_path):
    make_scores(tmp_path / "x", key=folder / "key", n_patients=4)
    table = pd.read_parquet(tmp_path / "x" / "scores.parquet")
    table.assign(prob_benign=np.where(table.index == 2, 0.9, table.prob_benign)).to_parquet(
        tmp_path / "x" / "scores.parquet"
    )
    with pytest.raises(UsvitError, match=r"scores\.parquet is not the file whose SHA-256 is in summary\.json"):
        read_scored_set(tmp_path / "x")
    (tmp_path / "x" / "summary.json").unlink()
    with pytest.raises(UsvitError, match="row 3"):
        read_scored_set(tmp_path / "x")
