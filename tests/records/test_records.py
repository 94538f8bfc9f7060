import json
import re

import pytest
from pydantic import ValidationError

from tests.records.contents import content
from tests.reports.conftest import fake_run
from usvit.errors import UsvitError
from usvit.records import (
    AuditRecord,
    CalibrationRecord,
    MetricsRecord,
    ModelMetadata,
    RunRecord,
    fitting,
    load_record,
    refuse_changed,
    run_hashes,
)
from usvit.upstream.records.study import StudyRecord

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return fake_run(tmp_path_factory.mktemp("records") / "run", n=200)


FILES = {"run.json": RunRecord, "metrics.json": MetricsRecord, "fold-0/model.json": ModelMetadata}


@pytest.mark.parametrize("name", FILES)
def test_what_usvit_writes_is_accepted_and_comes_back_whole(run, name):
    assert load_record(run / name, FILES[name]).content() == json.loads((run / name).read_text())


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("run.json", ("folds", "n"), 10**9),
        ("run.json", ("folds", "n"), 0),
        ("run.json", ("folds", "n"), "3"),
        ("run.json", ("folds",), []),
        ("run.json", ("kind",), "other"),
        ("run.json", ("data", "classes"), ["c"] * 20_000),
        ("run.json", ("results", 0, "fold"), "../x"),
        ("run.json", ("name",), "A" * 1_000_000),
        ("metrics.json", ("pooled", "accuracy", "value"), "0.9"),
        ("metrics.json", ("pooled", "accuracy"), None),
        ("metrics.json", ("folds", 0, "fold"), 10**12),
        ("metrics.json", ("folds", 0, "fold"), "../../x"),
        ("metrics.json", ("folds",), []),
        ("metrics.json", ("classes",), ["malignant"]),
        ("metrics.json", ("positive_class",), "nobody"),
        ("metrics.json", ("confusion", "counts"), [[1]]),
        ("metrics.json", ("decision_curve", "model"), [0.1]),
        ("metrics.json", ("n_images",), True),
        ("fold-0/model.json", ("preprocessing", "image_size"), 10**9),
        ("fold-0/model.json", ("preprocessing", "std"), [0, 0, 0]),
        ("fold-0/model.json", ("seen_sha256",), [1]),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_file_and_key(run, tmp_path, name, path, value):
    inner = changed = json.loads((run / name).read_text())
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file = tmp_path / "changed.json"
    file.write_text(json.dumps(changed))
    with pytest.raises(UsvitError, match=rf"changed\.json is damaged: key (\(all\)|{path[0]})"):
        load_record(file, FILES[name])


@pytest.mark.parametrize("version", ["0.9", "1.1", "2.0", "newest", None, [1]])
def test_a_file_of_another_version_is_refused(run, tmp_path, version):
    file = tmp_path / "run.json"
    file.write_text(json.dumps({**json.loads((run / "run.json").read_text()), "schema_version": version}))
    with pytest.raises(
        UsvitError, match=rf"run\.json was written by another version of usvit \(schema {re.escape(str(version))}, "
    ):
        load_record(file, RunRecord)


def test_a_record_that_cannot_be_is_refused_when_it_is_made():
    with pytest.raises(ValidationError, match=r"folds\.n"):
        RunRecord(**content("run", folds={"n": 0}))


@pytest.mark.parametrize("n_classes", [0, 1, 21_841])
def test_a_pre_training_has_the_classes_of_its_collection_and_a_classifier_two_or_more(tmp_path, n_classes):
    file = tmp_path / "run.json"
    for kind in ("pretrain", "transfer", "cv"):
        file.write_text(json.dumps(content("run", kind=kind, data={"classes": [str(n) for n in range(n_classes)]})))
        if kind in ("pretrain", "transfer"):
            assert len(load_record(file, RunRecord).data.classes) == n_classes
        else:
            with pytest.raises(UsvitError, match="key data"):
                load_record(file, RunRecord)


def test_hashes_find_a_changed_file_and_pass_over_one_that_is_not_kept(run, tmp_path):
    recorded = run_hashes(run)
    assert {"metrics.json", "predictions.csv", "folds.csv", "manifest.parquet", "fold-0/model.json"} <= set(recorded)
    assert "run.json" not in recorded and "report.html" not in recorded
    (tmp_path / "metrics.json").write_text("{}")
    with pytest.raises(UsvitError, match=r"metrics\.json is not the file whose SHA-256 is in run\.json"):
        refuse_changed(tmp_path, recorded, "run.json", recorded)
    (tmp_path / "metrics.json").unlink()
    refuse_changed(tmp_path, recorded, "run.json", recorded)


def test_a_file_of_terabytes_is_refused_before_it_is_hashed(run, tmp_path):
    recorded = run_hashes(run)
    for name in ("metrics.json", "predictions.csv"):
        with open(tmp_path / name, "wb") as file:
            file.truncate(2 * 10**12)  # sparse: it takes no room
        with pytest.raises(UsvitError, match=rf"{name}: it has 2,000,000,000,000 bytes, and at most"):
            refuse_changed(tmp_path, recorded, "run.json", [name])


def test_the_net_names_the_place_and_lets_errors_of_the_system_pass(tmp_path):
    with (
        pytest.raises(UsvitError, match=r"do not fit together \(KeyError in test_records\.py, line \d+\)"),
        fitting(tmp_path),
    ):
        {}["a"]
    for error in (UsvitError("said"), PermissionError("no")):
        with pytest.raises(type(error)) as caught, fitting(tmp_path):
            raise error
        assert caught.value is error


SMALL = {"calibration.json": CalibrationRecord, "audit.json": AuditRecord, "study.json": StudyRecord}


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("calibration.json", ("temperature", "value"), 0),
        ("calibration.json", ("temperature", "value"), 1e-300),
        ("calibration.json", ("temperature", "value"), "hot"),
        ("calibration.json", ("classes",), ["benign", "benign"]),
        ("calibration.json", ("positive_class",), "nobody"),
        ("calibration.json", ("thresholds",), None),
        ("calibration.json", ("thresholds", 0, "threshold"), True),
        ("calibration.json", ("n_images",), -1),
        ("calibration.json", ("fitted_on_sha256",), {}),
        ("calibration.json", ("fitted_on_copies",), 3),
        ("audit.json", ("manifest_sha256",), "../x"),
        ("audit.json", ("n_images",), 10**15),
        ("audit.json", ("exact_duplicates",), 7),
        ("audit.json", ("exact_duplicates",), [[["a"]]]),
        ("audit.json", ("flag_counts",), {"text": {"benign": "1"}}),
        ("audit.json", ("card_mismatch",), [None]),
        ("study.json", ("runs",), []),
        ("study.json", ("runs", 0), None),
        ("study.json", ("runs", 0, "id"), "../../outside"),
        ("study.json", ("runs", 0, "id"), ".."),
        ("study.json", ("runs", 0, "state"), "done"),
        ("study.json", ("runs", 0, "attempts"), 10**15),
        ("study.json", ("runs", 0, "config"), []),
        ("study.json", ("runs", 0, "kind"), "other"),
        ("study.json", ("scale",), "other"),
    ],
)
def test_a_value_of_a_small_record_that_cannot_be_is_refused_by_file_and_key(tmp_path, name, path, value):
    inner = changed = content(name.partition(".")[0])
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    (tmp_path / name).write_text(json.dumps(changed))
    with pytest.raises(UsvitError, match=rf"{name} is damaged: key (\(all\)|{path[0]})"):
        load_record(tmp_path / name, SMALL[name])


@pytest.mark.parametrize(
    ("kind", "stopping", "kept"),
    [
        ("pretrain", {"keep": "last", "patience": None}, True),
        ("pretrain", {"keep": "best", "patience": None}, False),
        ("pretrain", {"keep": "last", "patience": 3}, False),
        ("transfer", {"keep": "last", "patience": None}, False),  # its cells were chosen on validation images
        ("pretrain", None, False),
    ],
)
def test_validation_images_may_be_tested_only_if_nothing_was_chosen_on_them(kind, stopping, kept):
    written = content("run-pretrain", kind=kind)
    if stopping is None:
        del written["config"]["train"]
    else:
        written["config"]["train"]["early_stopping"] |= stopping
    assert RunRecord.model_validate(written).kept_last_step == kept
