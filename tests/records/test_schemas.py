import csv
import json
from pathlib import Path

import jsonschema
import pytest

from tests.conftest import REPOSITORY
from tests.reports.conftest import fake_run
from usvit.errors import UsvitError
from usvit.records import FileRecord, FoldRow, PredictionRow, load_record
from usvit.records.schemas import FOLDER, all_models, all_schemas, main, schema_of

FIXTURES = Path(__file__).parent / "fixtures"
FILE_RECORDS = [model for model in all_models() if issubclass(model, FileRecord)]
BY_KIND = {model.KIND: model for model in FILE_RECORDS}


def fixtures():
    """(file, model) of each fixture; its name is <kind>[-<of>]-<version>.json."""
    for file in sorted(FIXTURES.glob("*.json")):
        kind = next(kind for kind in sorted(BY_KIND, key=len, reverse=True) if file.stem.startswith(kind))
        yield pytest.param(file, BY_KIND[kind], id=file.stem)


@pytest.mark.slow
def test_the_schemas_in_docs_are_those_of_the_models():
    for name, text in all_schemas().items():
        assert (FOLDER / name).read_text() == text, f"{name}: run python -m usvit.records.schemas"
    assert {path.name for path in FOLDER.glob("*.schema.json")} == set(all_schemas())
    assert main(["--check"]) == 0
    assert FOLDER == REPOSITORY / "docs" / "reference"


@pytest.mark.slow
@pytest.mark.parametrize("model", FILE_RECORDS, ids=lambda model: model.KIND)
def test_a_schema_is_valid_and_says_what_each_file_is(model):
    schema = schema_of(model)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["description"] and "schema_version" in schema["required"]
    assert not [word for word in ("x-null", "x-required", "x-open", '"default"') if word in json.dumps(schema)]


@pytest.mark.slow
@pytest.mark.parametrize(("file", "model"), [*fixtures()])
def test_a_file_keeps_to_its_schema_and_comes_back_whole(file, model):
    content = json.loads(file.read_text())
    jsonschema.validate(content, schema_of(model))
    assert load_record(file, model).content() == content


def test_each_kind_of_file_has_a_fixture():
    assert {model.KIND for model in FILE_RECORDS} == {parameters.values[1].KIND for parameters in fixtures()}


@pytest.mark.slow
def test_a_schema_refuses_what_usvit_does_not_write():
    content = json.loads((FIXTURES / f"metrics-{BY_KIND['metrics'].VERSION}.json").read_text())
    schema = jsonschema.Draft202012Validator(schema_of(BY_KIND["metrics"]))
    schema.validate(content)
    for change in (
        {"unknown": 1},
        {"schema_version": "1.1"},
        {"warnings": None},
        {"n_images": "3"},
        {"pooled": {**content["pooled"], "accuracy": {"value": 1.1, "ci95": None, "method": "x", "n_groups": 3}}},
        {"pooled": {**content["pooled"], "accuracy": {"value": None, "ci95": None, "n_groups": 3}}},
        {"pooled": {**content["pooled"], "auc": {"benign": content["pooled"]["accuracy"]}}},
    ):
        assert not schema.is_valid(content | change), change
    for key in content.keys() - {"contamination"}:  # which most files do without
        assert not schema.is_valid({name: value for name, value in content.items() if name != key}), key


def test_a_content_of_another_version_is_migrated_step_by_step_or_refused(tmp_path, monkeypatch):
    job, file = BY_KIND["job"], tmp_path / "job.json"
    current = json.loads((FIXTURES / "job-1.0.json").read_text())
    old = {name: value for name, value in current.items() if name != "state"} | {"schema_version": "0.8", "at": 1}
    file.write_text(json.dumps(old))
    with pytest.raises(UsvitError, match=r"job\.json was written by another version of usvit \(schema 0\.8, .*again"):
        load_record(file, job)
    steps = {
        ("job", "0.8"): lambda content: {**content, "schema_version": "0.9", "state": "running"},
        ("job", "0.9"): lambda content: {**content, "schema_version": job.VERSION, "state": "finished"},
        ("run", "0.8"): lambda content: {},
    }
    monkeypatch.setattr("usvit.records.migrations.MIGRATIONS", steps)
    assert load_record(file, job).content() == {**old, "schema_version": "1.0", "state": "finished"}
    assert json.loads(file.read_text()) == old


@pytest.mark.slow
def test_rows_of_tables_keep_to_their_schema(tmp_path):
    run = fake_run(tmp_path / "run", n=40)
    for name, model in (("predictions.csv", PredictionRow), ("folds.csv", FoldRow)):
        with open(run / name, newline="") as file:
            rows = list(csv.DictReader(file))
        schema = jsonschema.Draft202012Validator(schema_of(model))
        for row in rows[:5]:
            row = {
                key: json.loads(value) if key.startswith(("fold", "prob_", "logit_")) else value
                for key, value in row.items()
            }
            schema.validate(row)
            model.model_validate(row)
