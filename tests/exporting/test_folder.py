"""An export is there whole or not at all, and never replaces anything."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.exporting.conftest import tiny
from usvit.config.exporting import ExportSettings
from usvit.data.io.decoding import read_image
from usvit.data.io.image_hashes import pixel_sha256
from usvit.data.near_duplicates import describe
from usvit.data.near_duplicates.compact import CompactDescriptions
from usvit.data.splits.leakage import seen_by, unrecorded, write_seen
from usvit.errors import UsvitError
from usvit.exporting import export, exporter, write_export
from usvit.exporting.exportable import open_source
from usvit.exporting.model_card import model_card
from usvit.exporting.verification import Checked, check_pixels, refuse_difference, write_phantom_image
from usvit.files import sha256_of_file
from usvit.models.trained_model import load_trained
from usvit.records import ModelMetadata, load_record


@pytest.mark.slow
def test_safetensors_load_again_to_the_same_scores_with_everything_in_the_metadata(fold, tmp_path):
    out = tmp_path / "made" / "here"
    exported = export(str(fold), out, format="safetensors")
    assert exported.new and sorted(path.name for path in out.iterdir()) == [
        "README.md", "export.json", "model.json", "model.safetensors"
    ]  # fmt: skip
    again, source = load_trained(out), open_source(str(fold))
    pixels = check_pixels(again.preprocessing)
    assert again.model(again.preprocessing.normalised(pixels)).equal(source.predict(pixels))
    metadata = json.loads((out / "model.json").read_text())
    assert metadata["exported"]["weights_sha256"] == sha256_of_file(out / "model.safetensors")
    assert metadata["exported"]["licenses"]["data"] == {"phantom": "Apache-2.0"}
    assert metadata["seen_sha256"]["train"] == ["ab"], "what it has seen must travel with it"
    assert metadata["measured"]["accuracy"] == 0.5 and metadata["measured"]["auc_malignant_vs_rest"] == 0.75
    assert metadata["positive_class"] == "malignant" and "not a medical device" in metadata["intended_use"]


@pytest.mark.slow
def test_copy_descriptions_travel_along_or_are_left_out_and_said_to_be(fold, tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    sha256, described = pixel_sha256(image), CompactDescriptions.of([describe(image)])
    fold = Path(shutil.copytree(fold.parent, tmp_path / "run")) / fold.name
    metadata = json.loads((fold / "model.json").read_text())
    metadata |= write_seen(fold, {"train": [sha256], "val": []}, described={sha256: described}).content()
    (fold / "model.json").write_text(json.dumps(metadata))
    for out, descriptions, known in ((tmp_path / "with", True, "copies"), (tmp_path / "without", False, "hashes")):
        export(str(fold), out, format="safetensors", descriptions=descriptions)
        seen = seen_by(load_record(out / "model.json", ModelMetadata), out)
        assert sha256 in seen and seen.known == known
        assert len(list(out.glob("seen-*.copies"))) == descriptions
        told = unrecorded(seen, "It")
        assert (
            told is None if descriptions else "1 images, whose near-duplicate descriptions an export left out" in told
        )


def test_the_card_says_what_a_receiver_must_know(fold, tmp_path):
    export(str(fold), tmp_path / "x", format="safetensors")
    card = (tmp_path / "x" / "README.md").read_text()
    for said in (
        *("not a medical device", "benign, malignant, normal", "padded with black", "32 x 32", "phantom (Apache-2.0)"),
        *("accuracy 0.500", "7 images in 5 groups", "depth 2", "not calibrated"),
    ):
        assert said in card, said
    assert "untrained" not in card
    assert str(fold.parent) not in card, "no paths of this machine"


@pytest.mark.slow
def test_a_network_of_the_zoo_is_called_untrained(tmp_path):
    source = open_source("vit_ti16", ExportSettings(weights="scratch", classes=["a", "b"], image_size=32))
    write_export(source, "safetensors", tmp_path / "x")
    assert "untrained: its probabilities mean nothing" in (tmp_path / "x" / "README.md").read_text()
    assert not source.predict(check_pixels(source.preprocessing)).any()
    assert load_trained(tmp_path / "x").classes == ("a", "b")
    again = open_source("vit_ti16", ExportSettings(weights="scratch", classes=["a", "b"], image_size=32))
    assert not write_export(again, "safetensors", tmp_path / "x").new, "the same name gives the same weights"


def test_the_same_export_is_left_as_it_is(fold, tmp_path):
    out = tmp_path / "x"
    export(str(fold), out, format="safetensors")
    before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()}
    assert not export(str(fold), out, format="safetensors").new
    assert {path.name: path.stat().st_mtime_ns for path in out.iterdir()} == before


def test_an_empty_folder_is_filled(fold, tmp_path):
    (tmp_path / "x").mkdir()
    assert export(str(fold), tmp_path / "x", format="safetensors").new


def occupy(out):
    out.mkdir()
    (out / "thesis.txt").write_text("mine")


def be_a_file(out):
    out.write_text("mine")


def change(out):
    (out / "model.json").write_text("{}")


def damage(out):
    (out / "export.json").write_text("{")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "exported_before", "said"),
    [
        (occupy, False, "is not an export"),
        (be_a_file, False, "is not an export"),
        (change, True, "has been changed"),
        (damage, True, "damaged"),
    ],
    ids=["other files", "a file", "changed", "damaged record"],
)
def test_what_is_there_is_never_replaced(spoil, exported_before, said, fold, tmp_path):
    out = tmp_path / "x"
    if exported_before:
        export(str(fold), out, format="safetensors")
    spoil(out)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(UsvitError, match=said):
        export(str(fold), out, format="safetensors")
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_another_network_is_not_put_over_an_export(fold, tmp_path):
    export(str(fold), tmp_path / "x", format="safetensors")
    with pytest.raises(UsvitError, match="another export"):
        write_export(tiny(), "safetensors", tmp_path / "x")


@pytest.mark.parametrize("error", [UsvitError("no"), KeyboardInterrupt(), OSError(28, "No space left on device")])
def test_nothing_is_left_behind_an_export_that_fails(error, fold, tmp_path, monkeypatch):
    def fail(source, folder):
        (folder / "half").write_text("of it")
        raise error

    monkeypatch.setitem(exporter._WRITERS, "safetensors", fail)
    with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else UsvitError):
        export(str(fold), tmp_path / "a" / "b", format="safetensors")
    assert list(tmp_path.iterdir()) == []


def test_two_processes_cannot_mix_their_files(fold, tmp_path, monkeypatch):
    def slow(source, folder):
        (tmp_path / "x").mkdir()
        (tmp_path / "x" / "other").write_text("faster")

    monkeypatch.setitem(exporter._WRITERS, "safetensors", slow)
    with pytest.raises(UsvitError, match="Another process"):
        export(str(fold), tmp_path / "x", format="safetensors")
    assert [path.name for path in tmp_path.rglob("*")] == ["x", "other"]


@pytest.mark.parametrize("difference", [0.002, float("nan"), float("inf")])
def test_a_difference_is_refused_by_the_size_of_the_logits(difference):
    refuse_difference(Checked("x", 0.002, 30.0), 1e-4)
    with pytest.raises(UsvitError, match="export differs from the network"):
        refuse_difference(Checked("x", difference, 1.0), 1e-4)


def test_the_phantom_to_check_with_is_a_picture_and_has_an_aspect_ratio(tmp_path):
    pixels = read_image(write_phantom_image(tmp_path))
    assert pixels.shape == (120, 160, 3) and pixels.std() > 10


@pytest.mark.slow
def test_the_model_card_shows_what_a_stranger_wrote_as_text(fold):
    hostile = "<script>alert(1)</script>|[x](http://y)"
    metadata = open_source(str(fold)).without_descriptions().metadata
    changed = metadata.model_copy(
        update={"classes": [hostile, "malignant"], "positive_class": hostile, "architecture": hostile, "timm": "a`b"}
    )
    card = model_card(changed, "safetensors", hostile)
    assert "<script" not in card and "](http" not in card.replace("\\](", "") and "name a\\`b takes" in card
    assert {line.replace("\\|", "").count("|") for line in card.splitlines() if line.startswith("|")} == {3}
