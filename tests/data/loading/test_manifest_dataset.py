"""``load_dataset``: images, labels and splits of a manifest as a torch Dataset."""

import pickle

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from usvit.config import DataConfig, SplitConfig
from usvit.data import load_dataset
from usvit.data.datasets.manifest_file import open_manifest, write_manifest
from usvit.data.io.decoding import read_image
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.data.splits.folds import make_folds, rows_of_split
from usvit.errors import UsvitError
from usvit.progress import NoProgress

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("phantom")
    write_phantom(PhantomSpec(n=60, size=64), folder)
    return folder


@pytest.fixture(scope="module")
def manifest(root):
    return open_manifest(DataConfig(dataset="phantom"), {"": root}, NoProgress())


def test_items_are_the_images_and_labels_of_the_manifest(root, manifest):
    dataset = load_dataset("phantom", data_root=root)
    assert isinstance(dataset, Dataset) and len(dataset) == len(manifest.usable)
    assert dataset.classes == manifest.classes and list(dataset.table.image_id) == list(manifest.usable.image_id)
    for at in (0, 7, len(dataset) - 1):
        image, label = dataset[at]
        row = manifest.usable.iloc[at]
        assert np.array_equal(image, read_image(manifest.image_path(row))) and image.dtype == np.uint8
        assert dataset.classes[label] == row.label == dataset.classes[dataset.targets[at]]
    with pytest.raises(IndexError):
        dataset[len(dataset)]


def test_a_split_is_that_of_a_run(root, manifest):
    folds = make_folds("cv", manifest.usable, SplitConfig(), 3)
    found = load_dataset("phantom", data_root={"phantom": root}, split="val", fold=2, seed=3)
    rows = rows_of_split(folds, manifest.usable, "val", 2)
    assert list(found.table.image_id) == list(manifest.usable.image_id.iloc[rows])
    parts = [load_dataset("phantom", data_root=root, split=split) for split in ("train", "val", "test")]
    assert sorted(name for part in parts for name in part.table.image_id) == sorted(manifest.usable.image_id)
    assert not set(parts[0].table.group_id) & set(parts[2].table.group_id)


def test_a_manifest_file_needs_no_root_and_its_images_can_be_batched(manifest, tmp_path):
    write_manifest(manifest, tmp_path / "m.parquet")
    dataset = load_dataset(tmp_path / "m.parquet", image_size=32, transform=lambda image: image.transpose(2, 0, 1))
    images, labels = next(iter(DataLoader(dataset, batch_size=4)))
    assert images.shape == (4, 3, 32, 32) and labels.tolist() == dataset.targets[:4].tolist()
    dataset.transform = None
    again = pickle.loads(pickle.dumps(dataset))
    assert np.array_equal(again[5][0], dataset[5][0]) and again[5][0].shape == (32, 32, 3)


def test_what_does_not_exist_is_an_error(root):
    with pytest.raises(UsvitError, match="Unknown split 'trial'"):
        load_dataset("phantom", data_root=root, split="trial")
    with pytest.raises(UsvitError, match="There is no fold 9: the folds are 0 to 4"):
        load_dataset("phantom", data_root=root, split="test", fold=9)
    with pytest.raises(UsvitError, match="a fold but no split"):
        load_dataset("phantom", data_root=root, fold=1)
