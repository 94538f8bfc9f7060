import csv
import errno
import json
import os
import subprocess
import sys
from dataclasses import replace

import jsonschema
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from tests.conftest import REPOSITORY
from tests.scoring.scored import CLASSES, JOB, POSITIVE, THRESHOLD, failed, many, portions, row
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.records import ProductRecord, UnitPointRecord
from usvit.scoring.items import score_columns
from usvit.scoring.tables import cells
from usvit.scoring.tables.cells import decide
from usvit.scoring.tables.writer import TABLES, write_tables

SCHEMA = json.loads((REPOSITORY / "docs/reference/scores.schema.json").read_text())
IDS = dict.fromkeys(("item_id", "study_id", "patient_id", "max_item_id", "instance_id"), str)


def write(out, rows, failures=None, *, size=1000, job=JOB, **settings):
    told = {"threshold": THRESHOLD, "threshold_origin": "by hand"} | settings
    failures = failed() if failures is None else failures
    write_tables(out, portions(rows, size), failures, job, classes=CLASSES, positive=POSITIVE, **told)
    return json.loads((out / "summary.json").read_text())


def read(path):
    return pd.read_csv(path, dtype=IDS, keep_default_na=True)


def raw(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def text(values):
    return ["" if pd.isna(value) else str(value) for value in values]


def test_csv_and_parquet_hold_the_same_rows_in_the_same_order(tmp_path):
    rows = many(400)
    write(tmp_path, rows)
    columns = score_columns(CLASSES, POSITIVE)
    table, typed = read(tmp_path / "scores.csv"), pd.read_parquet(tmp_path / "scores.parquet")
    assert table.columns.tolist() == typed.columns.tolist() == columns
    assert table["item_id"].tolist() == typed["item_id"].tolist() == [one["item_id"] for one in rows]
    for name in columns:
        if pd.api.types.is_float_dtype(typed[name]) or pd.api.types.is_integer_dtype(typed[name]):
            assert np.array_equal(table[name].to_numpy(float), typed[name].to_numpy(float), equal_nan=True), name
        else:
            assert text(table[name]) == text(typed[name]), name
    kinds = {name: str(pq.read_schema(tmp_path / "scores.parquet").field(name).type) for name in columns}
    assert kinds["frame"] == "int64" and kinds["unusual"] == "bool" and kinds["prob_benign"] == "double"
    assert kinds["path"] == "string" and typed["path"].isna().all()


def test_a_float32_is_read_back_bit_for_bit_from_both_tables(tmp_path):
    rng = np.random.default_rng(0)
    values = (10.0 ** rng.uniform(-30, 0, 500)).astype(np.float32)
    write(tmp_path, [row(k, calibrated_malignant=float(value)) for k, value in enumerate(values)])
    column = f"calibrated_{POSITIVE}"
    for table in (read(tmp_path / "scores.csv"), pd.read_parquet(tmp_path / "scores.parquet")):
        assert np.array_equal(table[column].to_numpy().astype(np.float32), values)


@pytest.mark.slow
def test_the_same_rows_give_the_same_bytes_however_they_are_portioned(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "ROW_GROUP", 500)
    rows, hashes = many(1300), []
    for size in (1300, 177):
        write(tmp_path / str(size), rows, size=size)
        hashes.append([sha256_of_file(tmp_path / str(size) / name) for name in TABLES if name != "breasts.csv"])
    assert hashes[0] == hashes[1]


@pytest.mark.slow
@pytest.mark.parametrize("abstain", [False, True])
def test_roll_ups_are_those_that_anyone_computes_from_the_scores(tmp_path, abstain):
    write(tmp_path, many(1500), abstain=abstain)
    scores, name = read(tmp_path / "scores.csv"), f"calibrated_{POSITIVE}"
    used = scores[~scores["unusual"]] if abstain else scores
    by_file = used.groupby(["patient_id", "item_id"])[name].mean()
    files = read(tmp_path / "files.csv").set_index("item_id")
    assert files.index.tolist() == scores["item_id"].drop_duplicates().tolist()
    assert np.allclose(files[f"mean_{name}"].dropna(), by_file.droplevel(0).reindex(files.index).dropna(), atol=1e-8)
    patients = read(tmp_path / "patients.csv").set_index("patient_id")
    expected = by_file.groupby("patient_id").mean()
    assert patients.index.tolist() == sorted(set(scores["patient_id"]))
    assert np.allclose(patients[f"mean_{name}"].reindex(expected.index), expected, atol=1e-8)
    highest = (
        used.sort_values(name, ascending=False, kind="stable").groupby("patient_id").head(1).set_index("patient_id")
    )
    assert (patients["max_item_id"].reindex(highest.index) == highest["item_id"]).all()
    assert (patients["max_frame"].reindex(highest.index) == highest["frame"]).all()
    called = expected.ge(THRESHOLD).map({True: POSITIVE, False: f"not {POSITIVE}"})
    assert (patients["decision"].reindex(called.index) == called).all()
    counts = scores.groupby("patient_id").agg(
        n_files=("item_id", "nunique"),
        n_frames=("item_id", "size"),
        n_unusual=("unusual", "sum"),
        n_seen=("seen", "sum"),
    )
    assert patients[counts.columns].equals(counts.astype(np.int64))


def test_a_long_loop_weighs_no_more_than_a_still(tmp_path):
    loop = [row(0, frame, 0.9, n_frames=200) for frame in range(200)]
    write(tmp_path, [*loop, row(1, 0, 0.1), row(2, 0, 0.2)])
    patient = read(tmp_path / "patients.csv").iloc[0]
    assert patient[f"mean_calibrated_{POSITIVE}"] == pytest.approx((0.9 + 0.1 + 0.2) / 3)
    assert (patient["n_files"], patient["n_frames"], patient["decision"]) == (3, 202, POSITIVE)


@pytest.mark.parametrize(
    ("unit", "pooling", "threshold", "studies", "patients"),
    [
        ("patient", "mean", 0.5, (POSITIVE, THRESHOLD), (f"not {POSITIVE}", 0.5)),
        ("patient", "max", 0.91, (POSITIVE, THRESHOLD), (f"not {POSITIVE}", 0.91)),
        ("exam", "max", 0.95, (f"not {POSITIVE}", 0.95), (POSITIVE, THRESHOLD)),
        ("patient", "mean", None, (POSITIVE, THRESHOLD), ("", None)),
        ("lesion", "mean", 0.5, (POSITIVE, THRESHOLD), (POSITIVE, THRESHOLD)),
        ("file", "mean", 0.95, (POSITIVE, THRESHOLD), (POSITIVE, THRESHOLD)),
    ],
)
def test_studies_or_patients_are_decided_at_their_own_threshold(tmp_path, unit, pooling, threshold, studies, patients):
    decides = {"file": "files.csv", "exam": "studies.csv", "patient": "patients.csv"}.get(unit)
    own = UnitPointRecord(unit=unit, pooling=pooling, threshold=threshold, origin="a run", decides=decides)
    job = replace(JOB, model=JOB.model.model_copy(update={"unit": own}))
    values = [0.9, 0.05, 0.2]  # mean 0.383
    summary = write(tmp_path, [row(k, 0, value) for k, value in enumerate(values)], job=job)
    jsonschema.validate(summary, SCHEMA, jsonschema.Draft202012Validator)
    for name, (decision, at) in {"studies": studies, "patients": patients}.items():
        found = pd.read_csv(tmp_path / f"{name}.csv", keep_default_na=False).iloc[0]
        assert (found["decision"], found["threshold"]) == (decision, "" if at is None else at)
    files = pd.read_csv(tmp_path / "files.csv")
    assert files["threshold"].unique().tolist() == [threshold if unit == "file" else THRESHOLD]
    assert files["decision"].tolist()[0] == (f"not {POSITIVE}" if unit == "file" else POSITIVE)


def test_patients_are_decided_by_what_attention_pools_and_only_they_have_its_column(tmp_path):
    own = UnitPointRecord(unit="patient", pooling="attention", threshold=0.5, origin="a run", decides="patients.csv")
    job = replace(JOB, model=JOB.model.model_copy(update={"unit": own}))
    rows = [row(k, 0, value) | {"view_weight": weight} for k, value, weight in ((0, 0.2, 0.25), (1, 0.6, 0.75))]
    write(tmp_path, rows, job=job, pooled={rows[0]["patient_id"]: 0.55})
    assert read(tmp_path / "scores.csv")["view_weight"].tolist() == [0.25, 0.75]
    patient, study = (read(tmp_path / f"{name}.csv").iloc[0] for name in ("patients", "studies"))
    column = f"attention_calibrated_{POSITIVE}"
    assert (patient[column], patient["decision"], patient["threshold"]) == (0.55, POSITIVE, 0.5)
    assert column not in study and column not in read(tmp_path / "files.csv") and study["threshold"] == THRESHOLD


def test_one_suspicious_frame_does_not_decide_but_is_found(tmp_path):
    rows = [row(0, 0, 0.02), row(1, 0, 0.05), row(1, 1, 0.95), row(1, 2, 0.03), row(2, 0, 0.01)]
    write(tmp_path, rows)
    study = read(tmp_path / "studies.csv").iloc[0]
    assert study["decision"] == f"not {POSITIVE}"
    assert (study["max_item_id"], study["max_frame"], study["n_positive"]) == (rows[1]["item_id"], 1, 1)
    assert study[f"max_calibrated_{POSITIVE}"] == 0.95


def test_abstaining_leaves_unusual_images_out_and_a_study_of_them_alone_undecided(tmp_path):
    odd = {"unusual": True, "decision": ""}
    rows = [row(0, 0, 0.1), row(1, 0, 0.99, **odd), row(3, 0, 0.99, **odd)]
    summary = write(tmp_path, rows, abstain=True)
    studies = read(tmp_path / "studies.csv").set_index("study_id")
    mixed, alone = studies.loc[rows[0]["study_id"]], studies.loc[rows[2]["study_id"]]
    assert (mixed[f"mean_calibrated_{POSITIVE}"], mixed["n_used"], mixed["n_unusual"]) == (0.1, 1, 1)
    assert mixed["decision"] == f"not {POSITIVE}"
    empty = [f"mean_calibrated_{POSITIVE}", f"max_calibrated_{POSITIVE}", "max_item_id", "max_frame", "decision"]
    assert alone[empty].isna().all() and alone["n_used"] == 0
    assert summary["counts"]["frames_abstained"] == summary["counts"]["frames_undecided"] == 2


def test_without_abstaining_unusual_images_count_like_all_others(tmp_path):
    write(tmp_path, [row(0, 0, 0.1), row(1, 0, 0.9, unusual=True)])
    study = read(tmp_path / "studies.csv").iloc[0]
    assert (study[f"mean_calibrated_{POSITIVE}"], study["n_unusual"], study["decision"]) == (0.5, 1, POSITIVE)


def test_files_without_a_study_or_patient_are_in_no_roll_up_and_are_counted(tmp_path):
    rows = [row(0, study_id="", patient_id=""), row(1, patient_id=""), row(2)]
    counts = write(tmp_path, rows)["counts"]
    assert len(read(tmp_path / "files.csv")) == 3
    assert (counts["studies"], counts["files_without_study"]) == (1, 1)
    assert (counts["patients"], counts["files_without_patient"]) == (1, 2)
    studies = read(tmp_path / "studies.csv")
    assert studies["n_files"].tolist() == [2]
    assert studies["patient_id"].isna().all()  # one of its files names a patient, the other none


def test_without_a_threshold_nothing_is_decided(tmp_path):
    rows = [row(k, prob=0.9, decision="", threshold=None, threshold_origin="none: no such rule") for k in range(3)]
    summary = write(tmp_path, rows, threshold=None, threshold_origin="none: no such rule")
    assert summary["threshold"] == {"value": None, "origin": "none: no such rule"}
    assert summary["counts"]["frames_undecided"] == 3
    for name in ("scores", "files", "studies", "patients"):
        assert read(tmp_path / f"{name}.csv")[["decision", "threshold"]].isna().all(axis=None), name
    jsonschema.validate(summary, SCHEMA, jsonschema.Draft202012Validator)


@pytest.mark.parametrize(
    ("value", "expected"), [(0.3, "a"), (0.2999, "not a"), (0.3 - 1e-13, "a"), (None, ""), (float("nan"), "")]
)
def test_the_threshold_itself_is_positive(value, expected):
    assert decide(value, 0.3, "a") == expected
    assert decide(value, None, "a") == ""


@pytest.mark.slow
@pytest.mark.parametrize("text", ["=1+1", "+49 30 1234", "-x.dcm", "@SUM(A1)", "'=1", "=cmd|' /C calc'!A0"])
def test_no_cell_of_a_csv_file_is_a_formula_and_the_text_can_be_had_back(tmp_path, text):
    kept = {"path": text, "device": text, "original_patient_id": text, "study_instance_uid": text}
    write(tmp_path, [row(0, **kept)], failed("empty", path=text))
    for name in TABLES:
        if name.endswith(".csv") and name != "breasts.csv":
            cells = [cell for line in raw(tmp_path / name) for cell in line]
            assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))], name
    scores = read(tmp_path / "scores.csv").iloc[0]
    assert all(scores[name] == f"'{text}" for name in kept)
    assert read(tmp_path / "patients.csv").iloc[0]["original_patient_id"] == f"'{text}"
    assert pd.read_parquet(tmp_path / "scores.parquet").iloc[0]["path"] == text


def test_a_negative_number_is_a_number(tmp_path):
    write(tmp_path, [row(0, novelty=-0.25), row(1, novelty=-0.0)])
    novelty = [line.split(",") for line in (tmp_path / "scores.csv").read_text().splitlines()]
    at = novelty[0].index("novelty")
    assert [line[at] for line in novelty[1:]] == ["-0.25", "0.0"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("a\nb.dcm", "a\\x0ab.dcm"),
        ("a\rb.dcm", "a\\x0db.dcm"),
        ("\t=1", "\\x09=1"),
        ("a\x00b", "a\\x00b"),
        (os.fsdecode(b"M\xfcller.dcm"), "M\\udcfcller.dcm"),
        ('say "hi", please', 'say "hi", please'),
        ("Müller/Ünal.dcm", "Müller/Ünal.dcm"),
        ("NA", "NA"),
    ],
)
def test_odd_file_names_break_no_row(tmp_path, path, written):
    write(tmp_path, [row(0, path=path), row(1)], failed("empty", path=path))
    at = score_columns(CLASSES, POSITIVE).index("path")
    assert [line[at] for line in raw(tmp_path / "scores.csv")[1:]] == [written, ""]
    assert raw(tmp_path / "failures.csv")[1][1] == written
    assert pd.read_parquet(tmp_path / "scores.parquet")["path"][0] == written


def test_what_is_missing_or_not_finite_is_an_empty_cell(tmp_path):
    write(tmp_path, [row(0, novelty=None, unusual=None), row(1, novelty=float("inf"), pixel_spacing_mm=0.0762)])
    scores, typed = read(tmp_path / "scores.csv"), pd.read_parquet(tmp_path / "scores.parquet")
    assert scores["novelty"].isna().all() and typed["novelty"].isna().all()
    assert scores["pixel_spacing_mm"].tolist()[1] == typed["pixel_spacing_mm"][1] == 0.0762
    assert pd.isna(typed["unusual"][0]) and not typed["unusual"][1]


def test_the_summary_counts_every_file_once_and_fits_its_schema(tmp_path):
    rows = [
        row(0, prob=0.9, flags="text;calipers"),
        row(1, frame=0, prob=0.1, flags="text", unusual=True),
        row(1, frame=3, prob=0.2, seen=True),
        row(2, prob=0.3),
    ]
    broken = [*failed("truncated", "truncated", "empty"), *failed("damaged", start=1, frame=1)]
    job = replace(JOB, products={"sr": ProductRecord(written=3, failed=2), "sc": ProductRecord(written=1, failed=0)})
    summary = write(tmp_path, rows, iter(broken), job=job)
    assert summary == json.loads((tmp_path / "summary.json").read_text())
    jsonschema.validate(summary, SCHEMA, jsonschema.Draft202012Validator)
    counts = summary["counts"]
    assert (counts["files"], counts["files_scored"], counts["files_failed"], counts["files_partly"]) == (6, 3, 4, 1)
    assert (counts["frames_scored"], counts["frames_positive"], counts["frames_negative"]) == (4, 2, 2)
    assert (counts["frames_unusual"], counts["frames_abstained"], counts["frames_seen"]) == (1, 0, 1)
    assert (counts["failures"], counts["products_failed"]) == (4, 2)
    assert {code: one["rows"] for code, one in summary["failures"].items()} == {
        "truncated": 2,
        "empty": 1,
        "damaged": 1,
    }
    assert summary["flags"] == {"calipers": 1, "text": 2}
    assert summary["novelty"] == {"threshold": 1.0, "stated_rate": 0.0526, "found_rate": 0.25}
    for name, one in summary["files"].items():
        assert one["sha256"] == sha256_of_file(tmp_path / name)
        assert one["rows"] == (len(read(tmp_path / name)) if name.endswith(".csv") else 4)
    assert read(tmp_path / "failures.csv")["frame"].tolist()[-1] == 1


def test_the_schema_itself_is_valid_and_strict():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["additionalProperties"] is False


def test_a_job_in_which_everything_failed_leaves_tables_with_headings_alone(tmp_path):
    summary = write(tmp_path, [], failed("empty", "timeout"))
    jsonschema.validate(summary, SCHEMA, jsonschema.Draft202012Validator)
    assert raw(tmp_path / "scores.csv") == [score_columns(CLASSES, POSITIVE)]
    assert [len(read(tmp_path / name)) for name in ("files.csv", "studies.csv", "patients.csv")] == [0, 0, 0]
    assert len(pd.read_parquet(tmp_path / "scores.parquet")) == 0
    assert summary["novelty"]["found_rate"] is None


@pytest.mark.parametrize(
    "rows",
    [
        [row(0), row(1), row(0, frame=1)],
        [row(0, frame=1), row(0, frame=0)],
        [row(0), row(0)],
    ],
    ids=["an item in two places", "frames out of order", "a frame twice"],
)
def test_rows_that_are_not_in_order_are_refused_and_leave_nothing(tmp_path, rows):
    with pytest.raises(ValueError):
        write(tmp_path, rows)
    assert [path.name for path in tmp_path.iterdir() if path.name != "scores.csv"] == []


def test_a_full_disk_is_told_and_leaves_no_half_table(tmp_path, monkeypatch):
    write(tmp_path, many(50))
    before = (tmp_path / "scores.csv").read_bytes()

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    with pytest.raises(UsvitError, match="No space left"):
        write(tmp_path, many(80))
    assert (tmp_path / "scores.csv").read_bytes() == before
    assert not (tmp_path / "summary.json").exists()  # the tables may be of two jobs now
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted({*TABLES} - {"breasts.csv"})


MEASURE = """
import re, sys
from pathlib import Path
import pandas as pd
from tests.scoring.scored import CLASSES, JOB, POSITIVE, THRESHOLD, failed, row
from usvit.scoring.tables.writer import write_tables

rows = pd.DataFrame([row(k, prob=k % 97 / 97) for k in range(1000)])

def made(n):
    for at in range(0, n, 1000):
        ids = [f"{k:016x}" for k in range(at, at + 1000)]
        yield rows.assign(item_id=ids, study_id=[f"s{one[:-1]}" for one in ids], patient_id=[one[::-1] for one in ids])

told = {"classes": CLASSES, "positive": POSITIVE, "threshold": THRESHOLD}
write_tables(Path(sys.argv[1]), made(int(sys.argv[2])), failed(), JOB, **told)
# Not ru_maxrss: a child begins with its parent's.
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_rows(tmp_path):
    def peak(n):
        """MiB, Arrow's and SQLite's memory included, which tracemalloc does not see."""
        command = [sys.executable, "-c", MEASURE, str(tmp_path / str(n)), str(n)]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
        return int(done.stdout) / 1024

    small, large = peak(10_000), peak(50_000)
    assert len(read(tmp_path / "50000" / "patients.csv")) == 50_000
    assert large - small < 30  # the rows alone would be 120


def test_a_column_of_sides_exists_only_if_a_frame_states_one(tmp_path):
    rows = [row(item) | {"side": side, "breast_id": ""} for item, side in enumerate(("left", None, "right"))]
    write(tmp_path / "with", rows, sides=True)
    columns = score_columns(CLASSES, POSITIVE, sides=True)
    assert columns.index("side") == columns.index("patient_id") + 1
    assert raw(tmp_path / "with" / "scores.csv")[0] == columns
    assert read(tmp_path / "with" / "scores.csv")["side"].fillna("").tolist() == ["left", "", "right"]
    assert pd.read_parquet(tmp_path / "with" / "scores.parquet")["side"].isna().tolist() == [False, True, False]
    write(tmp_path / "with", rows)
    assert "side" not in read(tmp_path / "with" / "scores.csv") and not (tmp_path / "with" / "breasts.csv").exists()


def test_breasts_are_rolled_up_and_decided_at_their_own_threshold(tmp_path):
    own = UnitPointRecord(unit="breast", pooling="max", threshold=0.85, origin="a run", decides="breasts.csv")
    job = replace(JOB, model=JOB.model.model_copy(update={"unit": own}))
    known = (("p/left", 0.1), ("p/right", 0.8), ("p/left", 0.9), ("", 0.99))
    rows = [row(k, 0, value) | {"side": None, "breast_id": name} for k, (name, value) in enumerate(known)]
    summary = write(tmp_path, rows, job=job, sides=True)
    jsonschema.validate(summary, SCHEMA, jsonschema.Draft202012Validator)
    assert (summary["counts"]["breasts"], summary["counts"]["files_without_breast"]) == (2, 1)
    breasts = read(tmp_path / "breasts.csv").set_index("breast_id")
    assert breasts.index.tolist() == ["p/left", "p/right"] and breasts["n_files"].tolist() == [2, 1]
    assert breasts[f"mean_calibrated_{POSITIVE}"].tolist() == pytest.approx([0.5, 0.8])
    assert breasts["decision"].tolist() == [POSITIVE, f"not {POSITIVE}"] and set(breasts["threshold"]) == {0.85}
    assert set(read(tmp_path / "patients.csv")["threshold"]) == {THRESHOLD}
