"""Decoded images of a source: geometry, where they lie, and what cannot be decoded."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.upstream.sources.layouts import class_tree, encoded
from usvit.data.loading import pixel_store
from usvit.data.loading.image_store import ImageStore, StoredSource, fitted
from usvit.errors import UsvitError
from usvit.progress import NO_PROGRESS
from usvit.upstream.sources.folder import open_folder

SIDE = 40


@pytest.fixture
def source(tmp_path):
    """Photographs of several shapes, of which some are smaller than the store's squares."""
    generator = np.random.default_rng(0)
    folder = tmp_path / "set"
    for number, (width, height) in enumerate([(90, 60), (60, 90), (40, 40), (17, 25), (300, 7), (64, 64)]):
        path = folder / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(generator.integers(0, 256, (height, width, 3), dtype=np.uint8)).save(path)
    return open_folder(folder)


def build(source, tmp_path, **options):
    options = {"memory_gb": None, **options}
    return ImageStore.build(source, SIDE, folder=tmp_path, progress=NO_PROGRESS, **options)


def test_an_image_keeps_its_shape_and_is_never_enlarged(source, tmp_path):
    store = build(source, tmp_path)
    assert store.pixels.shape == (6, SIDE, SIDE, 3)
    for index in range(len(source)):
        original = source.image(index)
        stored = store.image(index)
        scale = min(1, SIDE / max(original.size))
        assert stored.size == tuple(max(1, round(extent * scale)) for extent in original.size)
        expected = original if scale == 1 else original.resize(stored.size, Image.Resampling.BICUBIC)
        assert np.array_equal(np.asarray(stored), np.asarray(expected))
        assert np.array_equal(np.asarray(fitted(original, SIDE)), np.asarray(expected))


def test_a_mapped_file_and_an_opened_one_hold_the_same(source, tmp_path):
    store = build(source, tmp_path)
    mapped = build(source, tmp_path, memory_gb=0)
    assert list(tmp_path.iterdir()) == [tmp_path / "set"], "the file has no name"
    ImageStore.write(source, SIDE, tmp_path / "pixels", NO_PROGRESS)
    opened = ImageStore.open(tmp_path / "pixels", len(source), SIDE)
    (tmp_path / "pixels").unlink()
    for other in (mapped, opened):
        assert np.array_equal(other.sizes, store.sizes)
        assert all(np.array_equal(np.asarray(other.image(at)), np.asarray(store.image(at))) for at in range(6))


def test_little_free_memory_limits_it_too(source, tmp_path, monkeypatch):
    made = []
    memmap = np.memmap
    monkeypatch.setattr(pixel_store.np, "memmap", lambda *a, **k: made.append(1) or memmap(*a, **k))
    build(source, tmp_path)
    assert not made
    monkeypatch.setattr(pixel_store, "free_memory", lambda: 100)
    build(source, tmp_path)
    assert made


def test_a_full_disk_is_reported_before_anything_is_decoded(source, tmp_path, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pixel_store.os, "posix_fallocate", full)
    with pytest.raises(UsvitError, match="No space left"):
        build(source, tmp_path, memory_gb=0)
    with pytest.raises(UsvitError, match="No space left"):
        ImageStore.write(source, SIDE, tmp_path / "pixels", NO_PROGRESS)


def test_a_bad_image_is_named_as_in_a_training_from_files(tmp_path):
    cats = open_folder(class_tree(tmp_path / "cats", {"a": 3, "b": 3}))
    bad = cats.root / "b" / "1.png"
    bad.write_bytes(encoded(1)[:150])
    with pytest.raises(UsvitError) as caught:
        build(cats, tmp_path)
    assert str(caught.value).startswith(f"Cannot train on the image {bad}: it is")
    assert str(caught.value).endswith("remove the file and start a new run.")


def test_a_stored_source_is_the_source_with_other_pixels(source, tmp_path):
    stored = StoredSource(source, build(source, tmp_path))
    assert (stored.classes, len(stored), stored.image_name(3)) == (source.classes, 6, source.image_name(3))
    assert np.array_equal(stored.targets, source.targets)
    orders = [one.order(np.random.default_rng(5)) for one in (stored, source)]
    assert np.array_equal(*orders)
    assert stored.image(0).size == (40, 27)


def test_rows_are_gathered_where_the_pixels_are(source, tmp_path):
    store = build(source, tmp_path)
    placed = store.on(torch.device("cpu"))
    assert placed.placed
    assert not store.placed
    rows = torch.tensor([4, 1, 4])
    assert torch.equal(placed.gather(rows), store.pixels[rows])
