"""The phantom as a stream, and generated sources by their configuration."""

import hashlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

from usvit.data.datasets.manifest import build_manifest
from usvit.data.phantom import PhantomSpec, sample_patient, write_phantom
from usvit.data.phantom.plan import draw_patient
from usvit.errors import UsvitError
from usvit.progress import NoProgress
from usvit.upstream.config.pretrain import SourceConfig
from usvit.upstream.sources.generated import BEYOND, VAL_SIZE, PhantomSource, open_generated

SOURCE = PhantomSource(size=2000, image_size=64)

PRINT_HASH = """
import hashlib
from usvit.upstream.sources.generated import PhantomSource
print(hashlib.sha256(PhantomSource(size=2000, image_size=64).image(7).tobytes()).hexdigest())
"""


@pytest.mark.slow
def test_a_phantom_is_the_same_in_every_process():
    fresh = subprocess.run(
        [sys.executable, "-c", PRINT_HASH], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert hashlib.sha256(SOURCE.image(7).tobytes()).hexdigest() == fresh
    assert np.array_equal(pickle.loads(pickle.dumps(SOURCE)).image(7), SOURCE.image(7))


@pytest.mark.slow
def test_labels_are_those_of_the_embedded_data_set_and_as_frequent(tmp_path):
    root = write_phantom(PhantomSpec(n=3, size=64), tmp_path / "phantom")
    assert SOURCE.classes == build_manifest("phantom", {"phantom": root}, NoProgress()).classes
    shares = np.bincount(SOURCE.targets) / len(SOURCE)
    assert np.allclose(shares, [0.45, 0.35, 0.20], atol=0.03)


@pytest.mark.slow
def test_more_images_change_none_and_other_seeds_and_splits_all():
    longer = PhantomSource(size=4000, image_size=64)
    assert np.array_equal(longer.targets[:2000], SOURCE.targets)
    assert np.array_equal(longer.image(3), SOURCE.image(3))
    for other in (
        PhantomSource(size=2000, image_size=64, seed=1),
        PhantomSource(size=2000, image_size=64, split="val"),
    ):
        assert not np.array_equal(other.targets, SOURCE.targets)
        assert not np.array_equal(other.image(3), SOURCE.image(3))
        assert other.listing_sha256() != SOURCE.listing_sha256()


def patient_of(index):
    return sample_patient(SOURCE._patients, index, malignant=False)


def test_every_image_shows_a_patient_of_its_own():
    devices = {patient_of(index).device for index in range(30)}
    assert len(devices) == 30


@pytest.mark.parametrize("seed", [0, 1, 2**31 - 1])
def test_no_patient_is_one_of_a_data_set_that_usvit_writes(seed):
    """Whatever the data set's seed: patients are told by (seed, number), and a stream's seeds lie beyond."""
    for split in ("train", "val"):
        stream = PhantomSource(size=10, image_size=64, seed=seed, split=split)
        assert stream._patients >= BEYOND > 2**63
    embedded = PhantomSpec(seed=seed)
    theirs = {draw_patient(embedded, number, "benign").device for number in range(1, 20)}
    assert theirs.isdisjoint({patient_of(index).device for index in range(20)})


def test_classes_differ_only_in_the_lesion():
    """A normal image is the very image of a patient without the lesion."""
    index = int(np.flatnonzero(SOURCE.targets == 2)[0])
    normal = SOURCE.image(index)
    other = pickle.loads(pickle.dumps(SOURCE))  # without the pictures that the source keeps
    other.targets = np.zeros_like(SOURCE.targets)
    with_lesion = np.asarray(other.image(index)).astype(int)
    changed = np.abs(with_lesion - np.asarray(normal)).max(axis=2) > 8
    assert 0 < changed.mean() < 0.9


@pytest.mark.parametrize("size", [64, 224, 256])
def test_images_have_the_size_asked_for(size):
    image = PhantomSource(size=3, image_size=size).image(1)
    assert image.mode == "RGB" and image.size == (size, size)
    assert 20 < np.asarray(image).mean() < 200 and np.asarray(image).std() > 10


@pytest.mark.parametrize("name", ["fractals", "phantom"])
def test_sources_are_opened_by_their_configuration(name):
    config = SourceConfig(name=name, size=30_000, classes=10, image_size=64)
    train = open_generated(config, split="train", seed=3)
    val = open_generated(config, split="val", seed=3)
    assert train.name == name and len(train) == 30_000 and len(val) == VAL_SIZE
    assert train.classes == val.classes and len(train.classes) == (10 if name == "fractals" else 3)
    assert train.image(0).size == (64, 64) and train.hashes(NoProgress()) is None
    assert not np.array_equal(train.image(0), val.image(0))
    assert train.record().content()["seed"] == 3 and train.record().content()["generator_version"]


def test_an_unknown_name_is_refused():
    with pytest.raises(UsvitError, match="fractals"):
        open_generated(SourceConfig(name="fractal"), split="train", seed=0)


def test_each_image_has_a_sentence_that_more_images_do_not_change_and_another_seed_does():
    few, many, other = (
        PhantomSource(size=size, image_size=32, seed=seed) for size, seed in ((20, 0), (40, 0), (20, 1))
    )
    texts = [few.text(index) for index in range(20)]
    assert texts == [many.text(index) for index in range(20)] != [other.text(index) for index in range(20)]
    normal = few.classes.index("normal")
    assert [not one.concepts for one in texts] == (few.targets == normal).tolist()
