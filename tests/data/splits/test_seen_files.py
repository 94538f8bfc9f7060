"""Hashes that lie in files beside the metadata, through all that reads metadata."""

import json
import shutil

import jsonschema
import pandas as pd
import pytest

from tests.conftest import REPOSITORY, TINY
from tests.exporting.conftest import tiny
from usvit.data.splits import leakage
from usvit.data.splits.leakage import load_metadata, seen_by, write_seen
from usvit.exporting import write_export
from usvit.exporting.exportable import of_spec, open_source
from usvit.files import sha256_of_file, write_json
from usvit.records import ModelMetadata

SCHEMA = json.loads((REPOSITORY / "docs" / "reference" / "model.schema.json").read_text())
DIGESTS = [f"{number:064x}" for number in range(1, 6)]


@pytest.fixture
def few_listed(monkeypatch):
    """Metadata list three hashes of a part at most."""
    monkeypatch.setattr(leakage, "LISTED_AT_MOST", 3)


@pytest.fixture
def fold(tmp_path, few_listed):
    """A fold's folder as usvit writes it, whose network has seen five images in training."""
    source, folder = tiny(vit={"depth": 1}), tmp_path / "run" / "fold-0"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(source.weights)
    left_out = ("head", "exported", "measured")
    metadata = {key: value for key, value in source.metadata.content().items() if key not in left_out}
    metadata |= {"fold": 0, **write_seen(folder, {"train": DIGESTS, "val": ["ab"]}).content()}
    write_json(folder / "model.json", metadata)
    return folder


def test_an_export_takes_the_files_along(fold, tmp_path):
    out = tmp_path / "export"
    record = write_export(open_source(str(fold)), "safetensors", out).record
    (file,) = out.glob("seen-*.sha256")
    assert record.files[file.name] == sha256_of_file(file), "a changed copy is found"
    found = seen_by(load_metadata(out / "model.safetensors"), out)
    assert all(digest in found for digest in [*DIGESTS, "ab"]) and len(found) == 6


def test_an_export_of_a_zoo_network_with_such_weights_takes_them_along_as_upstream(fold, tmp_path):
    from usvit.models.zoo import find_model

    source = of_spec(find_model("vit_ti16", {"depth": 1}), str(fold), ("a", "b"), image_size=32)
    write_export(source, "safetensors", tmp_path / "export")
    found = seen_by(load_metadata(tmp_path / "export" / "model.safetensors"), tmp_path / "export")
    assert found.of_parts("upstream").listed == {"upstream": {"ab"}}
    assert all(digest in found.of_parts("upstream") for digest in DIGESTS)


@pytest.mark.slow
def test_training_reporting_and_going_on_read_them(few_listed, usvit, tmp_path, small_phantom):
    cv = ("cv", "--dataset", "phantom", "--data-root", small_phantom, *TINY)
    first, second = tmp_path / "first", tmp_path / "second"
    assert usvit(*cv, "--out", first).code == 0
    folds = pd.read_csv(first / "folds.csv").merge(pd.read_parquet(first / "manifest.parquet")[["image_id", "sha256"]])
    for fold in range(3):
        folder = first / f"fold-{fold}"
        metadata = json.loads((folder / "model.json").read_text())
        jsonschema.validate(metadata, SCHEMA, jsonschema.Draft202012Validator)
        assert metadata["seen_sha256"]["train"] == []
        own = folds[folds.fold == fold]
        found = seen_by(ModelMetadata.model_validate(metadata), folder)
        assert all((digest in found) == (part != "test") for digest, part in zip(own.sha256, own.part, strict=True))
    assert "PROBLEM" not in (first / "report.html").read_text()

    answer = usvit(*cv, "--out", second, "--weights", first)
    assert answer.code == 0, answer.err
    told = json.loads((second / "fold-0" / "model.json").read_text())["seen_sha256"]
    assert {"train", "upstream"} <= {entry["part"] for entry in told["files"]}
    assert all((second / "fold-0" / entry["file"]).is_file() for entry in told["files"])

    answer = usvit(*cv, "--out", tmp_path / "third", "--weights", first, "--seed", 5)
    assert answer.code == 2 and "has seen images of" in answer.err
    shutil.copytree(first, tmp_path / "cut")
    for file in (tmp_path / "cut" / "fold-1").glob("seen-*.sha256"):
        file.unlink()
    answer = usvit(*cv, "--out", tmp_path / "third", "--weights", tmp_path / "cut")
    assert answer.code == 2 and "Cannot read" in answer.err and "Copy it again" in answer.err
    answer = usvit("evaluate", tmp_path / "cut", "--out", tmp_path / "metrics")
    assert answer.code == 2 and "Copy it again" in answer.err
