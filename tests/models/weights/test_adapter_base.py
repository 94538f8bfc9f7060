"""Where the base of adapters is looked for, and what is refused."""

import json
import os

import pytest
import torch
from safetensors.torch import save_file

from tests.records.contents import content
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.models.weights.adapter_base import find_base
from usvit.records import AdapterRecord


def weights(path, value=1.0):
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file({"x": torch.full((2,), value)}, path)
    return path


def adapters(run, base, **stated):
    """The folder of a fold of adapters beside ``base``, in a run that does not say where it is."""
    described = {"source": "file", "name": base.name, "sha256": sha256_of_file(base), "upstream": None, **stated}
    entry = {"method": "lora", "rank": 1, "alpha": 1.0, "targets": ["q"], "base": described}
    file = run / "fold-0" / "model.safetensors"
    file.parent.mkdir(parents=True)
    save_file({"y": torch.zeros(1)}, file, {"usvit": json.dumps({"adapter": entry})})
    return AdapterRecord.model_validate(entry), file


def run_from(base):
    """A run.json whose network began with these weights."""
    written = content("run")
    written["config"]["model"]["weights"] = str(base)
    return written


@pytest.fixture(autouse=True)
def unnamed(monkeypatch):
    monkeypatch.delenv("USVIT_BASE", raising=False)


def test_it_is_found_where_the_run_found_it(tmp_path):
    base = weights(tmp_path / "elsewhere" / "vit.safetensors")
    adapter, file = adapters(tmp_path / "run", base)
    (tmp_path / "run" / "run.json").write_text(json.dumps(run_from(base)))
    assert find_base(adapter, file) == str(base)


def test_it_is_the_fold_of_a_run_that_has_the_hash(tmp_path):
    files = [weights(tmp_path / "base" / f"fold-{fold}" / "model.safetensors", fold) for fold in range(3)]
    adapter, file = adapters(tmp_path / "run", files[2], source="run")
    (tmp_path / "run" / "run.json").write_text(json.dumps(run_from(tmp_path / "base")))
    assert find_base(adapter, file) == str(files[2])


@pytest.mark.parametrize("name", ["fold-0/vit.safetensors", "fold-0/base.safetensors", "base.safetensors"])
def test_it_may_lie_beside_the_adapters(tmp_path, name):
    base = weights(tmp_path / "vit.safetensors")
    adapter, file = adapters(tmp_path / "run", base)
    base.rename(tmp_path / "run" / name)
    weights(tmp_path / "run" / "vit.safetensors", 2.0)  # another file of its name does not matter
    assert find_base(adapter, file) == str(tmp_path / "run" / name)


def test_what_is_named_is_taken_and_nothing_else(tmp_path, monkeypatch):
    base, other = weights(tmp_path / "vit.safetensors"), weights(tmp_path / "other.safetensors", 2.0)
    adapter, file = adapters(tmp_path / "run", base)
    monkeypatch.setenv("USVIT_BASE", f"{other}{os.pathsep}{base}")
    assert find_base(adapter, file) == str(base)
    monkeypatch.setenv("USVIT_BASE", str(other))
    weights(file.parent / "base.safetensors")
    with pytest.raises(UsvitError, match=rf"USVIT_BASE names {other}; {other} has SHA-256 {sha256_of_file(other)}"):
        find_base(adapter, file)


def test_weights_of_the_hub_come_from_the_hub_unless_they_are_beside_it(tmp_path):
    base = weights(tmp_path / "model.safetensors")
    adapter, file = adapters(tmp_path / "run", base, source="hub", name="timm/vit", upstream="in21k")
    assert find_base(adapter, file) == "hub:in21k"
    assert find_base(adapter, file) != str(file)  # a file of its own name that is no base
    beside = weights(file.parent / "base.safetensors")
    assert find_base(adapter, file) == str(beside)


def test_a_missing_base_is_refused_with_its_name_and_hash(tmp_path):
    base = weights(tmp_path / "vit.safetensors")
    adapter, file = adapters(tmp_path / "run", base)
    wanted = rf"the file weights vit\.safetensors with SHA-256 {sha256_of_file(base)}"
    with pytest.raises(
        UsvitError, match=rf"{wanted}.* It was not found \(there is no file of weights where the run was given it, nor"
    ):
        find_base(adapter, file)


def test_metadata_of_other_adapters_is_refused(tmp_path):
    base, other = weights(tmp_path / "vit.safetensors"), weights(tmp_path / "other.safetensors", 2.0)
    _, file = adapters(tmp_path / "one", base)
    adapter, _ = adapters(tmp_path / "two", other)
    with pytest.raises(UsvitError, match="name different bases"):
        find_base(adapter, file)
