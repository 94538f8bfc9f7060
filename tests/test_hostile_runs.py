"""Hostile runs: the attacks of issue 13 by name."""

import json
import os

import pytest

from tests.cli.runs import make_run

pytestmark = pytest.mark.slow


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run", seed=1)


def change(run, *path, value):
    record = json.loads((run / "run.json").read_text())
    inner = record
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    (run / "run.json").write_text(json.dumps(record))


@pytest.mark.parametrize("command", [("evaluate",), ("explain",), ("report",)])
def test_a_run_of_a_thousand_million_folds_is_refused(usvit, run, command):
    change(run, "folds", "n", value=10**9)
    answer = usvit(*command, run)
    assert answer.code == 2 and "Traceback" not in answer.err


@pytest.mark.parametrize("name", ["run.json", "folds.csv", "fold-1/predictions.csv", "manifest.parquet"])
def test_a_fifo_in_a_run_does_not_hang(usvit, run, name):
    (run / name).unlink()
    os.mkfifo(run / name)
    assert usvit("evaluate", run).code == 2


def test_a_linked_fold_is_not_read(usvit, run, tmp_path):
    (run / "fold-1").rename(tmp_path / "elsewhere")
    (run / "fold-1").symlink_to(tmp_path / "elsewhere")
    answer = usvit("evaluate", run)
    assert answer.code == 2 and "fold-1 is a link" in answer.err


def test_a_forged_table_of_a_fold_is_refused_where_its_hash_is_on_record(usvit, run):
    from usvit.records import run_hashes

    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**record, "files": run_hashes(run)}))
    assert usvit("evaluate", run).code == 0
    text = (run / "fold-0" / "predictions.csv").read_text()
    (run / "fold-0" / "predictions.csv").write_text(text.replace("malignant", "benign", 3))
    answer = usvit("evaluate", run)
    assert answer.code == 2 and "fold-0/predictions.csv is not the file whose SHA-256" in answer.err
