"""Copies of what a network has seen are recognised by the descriptions beside its metadata, and gaps are said."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.data.near_duplicates.planting import jpeg, resized
from tests.records.contents import network
from usvit.data.io.decoding import read_image
from usvit.data.io.image_hashes import pixel_sha256
from usvit.data.near_duplicates import describe
from usvit.data.near_duplicates.compact import CompactDescriptions
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.data.splits.leakage import load_metadata, seen_by, seen_by_weights, write_seen
from usvit.data.splits.seen_files import joined
from usvit.data.splits.seen_groups import refuse_seen
from usvit.errors import LeakageError, UsvitError
from usvit.records import ModelMetadata, SeenGap

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class FirstWeights:
    metadata: ModelMetadata | None
    path: Path | None
    unknown_training: str | None = None
    collections: tuple = ()


def of(content):
    return ModelMetadata.model_validate(network(**content))


def described(images):
    found = [describe(image) for image in images]
    return {one.sha256: CompactDescriptions.of([one]) for one in found}


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """One image of each of 12 patients."""
    root = write_phantom(PhantomSpec(n=24, size=256, seed=5), tmp_path_factory.mktemp("seen") / "phantom", workers=1)
    table = pd.read_csv(root / "phantom.csv", keep_default_na=False).drop_duplicates("patient_id")
    return [read_image(root / path) for path in table.path]


@pytest.fixture(scope="module")
def of_images(images):
    return described(images)


@pytest.fixture
def trained(tmp_path, images, of_images):
    """The folder of a network that has seen the first six images in training, and two more in validation."""
    hashes = [pixel_sha256(image) for image in images]
    seen = write_seen(
        tmp_path, {"train": hashes[:6], "val": hashes[6:8]}, described=of_images, name="phantoms"
    ).content()
    (tmp_path / "model.json").write_text(json.dumps(network(**seen)))
    return tmp_path


def weights_of(folder):
    return FirstWeights(load_metadata(folder / "model.safetensors"), folder / "model.safetensors")


@pytest.mark.parametrize(
    "change",
    [lambda a: jpeg(a, 95), lambda a: a[1:-1, 1:-1], lambda a: resized(a, 0.5), lambda a: a[:, ::-1]],
    ids=["jpeg", "crop by a pixel", "half size", "mirrored"],
)
def test_an_image_that_was_stored_again_is_recognised_and_another_patients_is_not(trained, images, change):
    seen = seen_by(load_metadata(trained / "model.safetensors"), trained)
    assert seen.known == "copies" and len(seen.descriptions) == 8
    tested = [np.ascontiguousarray(change(image)) for image in images]
    hashes = [pixel_sha256(image) for image in tested]
    assert not any(digest in seen for digest in hashes), "the hash alone does not recognise them"
    assert set(seen.copies_among(described(tested))) == set(hashes[:8])
    assert set(seen.of_parts("val").copies_among(described(tested))) == set(hashes[6:8])


def test_a_copy_is_refused_as_the_image_itself_is(trained, images):
    seen = seen_by(load_metadata(trained / "model.safetensors"), trained)
    tested = [jpeg(images[0], 90), images[1], jpeg(images[10], 90)]
    table = pd.DataFrame(
        {"image_id": list("abc"), "group_id": list("ghi"), "sha256": [pixel_sha256(image) for image in tested]}
    )
    copies = seen.copies_among(described(tested))
    with pytest.raises(
        LeakageError, match=r"N has seen images of 2 groups \(2 images; 1 of them are near-duplicates with other"
    ):
        refuse_seen(table, seen, "N", copies=copies)
    refuse_seen(table[2:], seen, "N", copies=copies)


def test_what_first_weights_saw_is_passed_on_with_its_descriptions(trained, images, of_images, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    own = [pixel_sha256(image) for image in images[8:10]]
    told = write_seen(second, {"train": own}, weights_of(trained), described=of_images).content()
    assert [(entry["part"], entry["count"]) for entry in told["seen_copies"]["files"]] == [
        ("upstream", 6), ("upstream", 2), ("train", 2),
    ]  # fmt: skip
    (second / "model.json").write_text(json.dumps(network(**told)))
    seen = seen_by_weights(weights_of(second))
    assert seen.known == "copies" and len(seen.descriptions) == 10
    copy = described([jpeg(images[0], 90)])
    assert seen.of_parts("upstream").copies_among(copy) and not seen.of_parts("train").copies_among(copy)


def test_what_is_not_on_record_is_a_gap_that_every_later_training_inherits(trained, tmp_path):
    hub = FirstWeights(None, None, "hub weights timm/x")
    assert seen_by_weights(hub).known == "nothing" and seen_by_weights(FirstWeights(None, None)).known == "copies"
    (tmp_path / "photographs").mkdir()
    photographs = write_seen(tmp_path / "photographs", {"train": ["cd", "ef"]}, name="imagenet").content()
    (tmp_path / "photographs" / "model.json").write_text(json.dumps(network(**photographs)))
    assert seen_by(of(photographs)).gaps == (SeenGap(part="train", known="hashes", what="2 of imagenet"),)
    assert seen_by(of(photographs)).known == "hashes"
    told = write_seen(tmp_path, {}, weights_of(trained), hub, weights_of(tmp_path / "photographs")).content()
    seen = seen_by(of(told), tmp_path)
    assert seen.gaps[0].what == "hub weights timm/x" and seen.known == "nothing"
    assert {gap.part for gap in seen.gaps} == {"upstream"} and len(seen.descriptions) == 8


def test_a_part_of_too_many_images_is_recognised_by_hashes_alone(tmp_path, of_images, monkeypatch):
    monkeypatch.setattr("usvit.data.splits.leakage.MAX_DESCRIBED", 5)
    told = write_seen(tmp_path, {"train": list(of_images)}, described=of_images).content()
    assert told["seen_copies"]["files"] == [] and seen_by(of(told), tmp_path).known == "hashes"


def test_files_that_are_missing_changed_pipes_or_elsewhere_are_refused(trained):
    weights = trained / "model.safetensors"
    metadata = load_metadata(weights)
    entry = metadata.content()["seen_copies"]["files"][0]
    file = trained / entry["file"]
    content = file.read_bytes()
    file.write_bytes(content[:-1])
    with pytest.raises(UsvitError, match=r"seen-.*copies is damaged or another file.*Copy it again"):
        load_metadata(weights)
    file.unlink()
    with pytest.raises(UsvitError, match=r"Cannot read .*seen-.*copies"):
        load_metadata(weights)
    os.mkfifo(file)
    with pytest.raises(UsvitError, match="not a regular file"):
        load_metadata(weights)
    file.unlink()
    file.write_bytes(content)
    for strange in ({"count": 10**9}, {"file": "../seen.copies"}):
        with pytest.raises(UsvitError, match="'seen_copies' names"):
            seen_by(of({"seen_copies": {"files": [entry | strange], "gaps": []}}), trained)
    with pytest.raises(UsvitError, match=r"descriptions of 6 images, and the model\.json beside it says 7"):
        _ = seen_by(of({"seen_copies": {"files": [entry | {"count": 7}], "gaps": []}}), trained).descriptions
    damaged = ({"files": [entry | one]} for one in ({"part": "test"}, {"count": True}, {"count": 0}, {"file": None}))
    for strange in (*damaged, [], {"files": 1}, {"files": [], "gaps": [{"part": "train"}]}):
        (trained / "model.json").write_text(json.dumps(network(seen_copies=strange)))
        with pytest.raises(UsvitError, match=r"model\.json is damaged: key seen_copies"):
            load_metadata(weights)


def test_descriptions_under_wrong_hashes_are_refused(of_images):
    first, second = list(of_images)[:2]
    with pytest.raises(UsvitError, match="do not belong to the pixel hashes"):
        joined({first: of_images[first], second: of_images[first]})
