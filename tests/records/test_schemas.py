import csv
import json
from pathlib import Path

import jsonschema
import pytest

from tests.conftest import REPOSITORY
from tests.reports.conftest import fake_run
from usvit.records import FILE_RECORDS, FoldRow, PredictionRow, load_record
from usvit.records.schemas import FOLDER, all_schemas, main, schema_of

FIXTURES = Path(__file__).parent / "fixtures"
BY_KIND = {model.KIND: model for model in FILE_RECORDS}


def fixtures():
    """(file, model, version) of each fixture; its name is <kind>[-<of>]-<version>.json."""
    for file in sorted(FIXTURES.glob("*.json")):
        of_kind, version = file.stem.rsplit("-", 1)
        kind = next(kind for kind in sorted(BY_KIND, key=len, reverse=True) if of_kind.startswith(kind))
        yield pytest.param(file, BY_KIND[kind], version, id=file.stem)


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
@pytest.mark.parametrize(("file", "model", "version"), [*fixtures()])
def test_a_file_of_this_version_keeps_to_its_schema_and_of_any_version_is_read(file, model, version):
    content = json.loads(file.read_text())
    assert content["schema_version"] == version
    record = load_record(file, model)
    major = model.VERSION.partition(".")[0]  # only a content of an older one is given another version
    assert isinstance(record, model)
    assert record.schema_version == (version if version.partition(".")[0] == major else f"{major}.0")
    if version == model.VERSION:
        jsonschema.validate(content, schema_of(model))
        assert record.model_dump(mode="json", exclude_unset=True, by_alias=True) == content


def test_each_kind_of_file_has_a_fixture_of_its_version():
    assert {(model.KIND, model.VERSION) for model in FILE_RECORDS} <= {
        (parameters.values[1].KIND, parameters.values[2]) for parameters in fixtures()
    }


@pytest.mark.slow
def test_a_schema_refuses_what_usvit_does_not_write():
    content = json.loads((FIXTURES / f"metrics-{BY_KIND['metrics'].VERSION}.json").read_text())
    schema = jsonschema.Draft202012Validator(schema_of(BY_KIND["metrics"]))
    schema.validate(content)
    for change in (
        {"unknown": 1},
        {"schema_version": "1.2"},
        {"warnings": None},
        {"n_images": "3"},
        {"pooled": {**content["pooled"], "accuracy": {"value": 1.1, "ci95": None, "method": "x", "n_groups": 3}}},
        {"pooled": {**content["pooled"], "accuracy": {"value": None, "ci95": None, "n_groups": 3}}},
        {"pooled": {**content["pooled"], "auc": {"benign": content["pooled"]["accuracy"]}}},
    ):
        assert not schema.is_valid(content | change), change
    for key in content.keys() - {"contamination"}:  # which most files do without
        assert not schema.is_valid({name: value for name, value in content.items() if name != key}), key


@pytest.mark.parametrize(
    ("version", "architecture", "vit", "read"),
    [
        # Until 1.2 every parallel or deep network had LayerScale, started at 1e-5, unless a setting said otherwise.
        ("1.2", "vit_b18x2", {}, {"layer_scale": 1e-5}),
        ("1.0", "vit_s9x4_hmlp", {"pool": "avg"}, {"layer_scale": 1e-5, "pool": "avg"}),
        ("1.2", "vit_s36x1", {"layer_scale": 0.1}, {"layer_scale": 0.1}),
        ("1.2", "vit_b16", {}, {}),
        ("1.3", "vit_b18x2", {}, {}),
    ],
)
def test_parallel_networks_of_older_metadata_keep_their_layer_scale(tmp_path, version, architecture, vit, read):
    content = json.loads((FIXTURES / "model-1.2.json").read_text())
    content |= {"schema_version": version, "architecture": architecture, "vit": vit}
    (tmp_path / "model.json").write_text(json.dumps(content))
    assert load_record(tmp_path / "model.json", BY_KIND["model"]).vit == read


def test_an_older_model_metadata_is_migrated():
    old = load_record(FIXTURES / "model-1.0.json", BY_KIND["model"])
    assert json.loads((FIXTURES / "model-1.0.json").read_text())["thresholds"] == {}
    assert old.thresholds == [] and old.seen_copies is None and old.architecture == "timm:resnet10t"


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
