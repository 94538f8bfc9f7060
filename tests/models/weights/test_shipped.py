"""``--weights phantom``: the weights that ship with usvit, and what they say about themselves."""

import hashlib

import pytest
import torch

from usvit.data.splits import load_metadata, seen_by
from usvit.errors import UsvitError
from usvit.models import create_model, find_model, resolve_weights
from usvit.resources import weights_dir

FILE = weights_dir() / "phantom" / "model.safetensors"


def test_they_are_small_and_are_the_file_that_their_metadata_names():
    content = FILE.read_bytes()
    assert len(content) <= 6_000_000
    assert load_metadata(FILE).weights_sha256 == hashlib.sha256(content).hexdigest()


def test_their_metadata_says_that_they_have_seen_phantoms_and_no_patient():
    metadata = load_metadata(FILE)
    assert (metadata.architecture, metadata.objective, metadata.recipe) == ("usvit_small", "signs", "phantom_signs")
    assert metadata.source.name == "phantom"
    assert metadata.upstream.source == "scratch"
    assert metadata.seen_sha256.content() == {"train": [], "val": [], "upstream": []}
    seen = seen_by(metadata, FILE.parent)
    assert not seen.unhashed
    assert sorted(path.name for path in FILE.parent.iterdir()) == ["model.json", "model.safetensors"]


def test_a_run_that_begins_with_them_records_licence_and_lineage():
    record = resolve_weights("phantom", find_model("usvit_small")).record().content()
    assert (record["name"], record["license"], record["source"]) == ("phantom", "apache-2.0", "file")
    assert "path" not in record
    (training,) = record["lineage"]
    assert training["objective"] == "signs"
    assert training["source"]["name"] == "phantom"


def test_the_network_begins_with_their_values_in_single_precision():
    torch.manual_seed(0)
    random = create_model("usvit_small", n_classes=3).state_dict()
    torch.manual_seed(0)
    model = create_model("usvit_small", n_classes=3, weights="phantom")
    stored = resolve_weights("phantom", find_model("usvit_small")).read().tensors
    for name, value in model.state_dict().items():
        assert value.dtype in (torch.float32, torch.int64)
        if name.startswith("fc."):
            assert torch.equal(value, random[name]), "the head is new"
        else:
            assert torch.equal(value, stored[name].to(value.dtype)), name


def test_another_architecture_is_refused_with_the_right_one():
    with pytest.raises(UsvitError, match=r"phantom are weights of the model usvit_small, but the model is resnet50"):
        resolve_weights("phantom", find_model("resnet50"))


def test_a_required_hash_is_checked():
    with pytest.raises(UsvitError, match=r"model\.weights_sha256 requires"):
        resolve_weights("phantom", find_model("usvit_small"), "0" * 64)
