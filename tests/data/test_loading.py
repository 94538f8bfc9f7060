import multiprocessing
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.conftest import save, speckle
from usvit.data import loading
from usvit.data.augment import make_augment
from usvit.data.images import BadImage
from usvit.data.loading import PixelStore, Preprocessing, TrainBatches, eval_batches
from usvit.data.manifest import build_manifest
from usvit.errors import UsvitError
from usvit.progress import NoProgress

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
N = 23


def preprocessing(size: int = 32, resize: str = "squash") -> Preprocessing:
    return Preprocessing(size, resize, MEAN, STD)


@pytest.fixture
def manifest(busi):
    return build_manifest("busi", {"": busi}, NoProgress())


def build(manifest, folder: Path, memory_gb: float, size: int = 32, resize: str = "squash") -> PixelStore:
    return PixelStore.build(
        manifest, preprocessing(size, resize), memory_gb=memory_gb, folder=folder, progress=NoProgress()
    )


# --- from an image to the network's input


def wide() -> np.ndarray:
    """100 x 50 pixels, white, with a black disc of diameter 30 in the middle."""
    rows, columns = np.mgrid[:50, :100]
    disc = (rows - 24.5) ** 2 + (columns - 49.5) ** 2 < 15**2
    return np.where(disc, 0, 255).astype(np.uint8)[:, :, None].repeat(3, axis=2)


def test_pad_keeps_the_aspect_ratio_and_fills_with_black():
    out = preprocessing(64, "pad").resized(wide())
    assert out.shape == (64, 64, 3)
    assert out.dtype == np.uint8
    assert (out[:15] == 0).all()
    assert (out[-15:] == 0).all()
    dark = out[17:47, :, 0] < 128
    assert dark.any(axis=1).sum() == pytest.approx(dark.any(axis=0).sum(), abs=1)


def test_squash_fills_the_square_and_bends_the_aspect_ratio():
    out = preprocessing(64, "squash").resized(wide())
    assert (out[0] == 255).all()
    assert (out[-1] == 255).all()
    dark = out[:, :, 0] < 128
    assert dark.any(axis=1).sum() == pytest.approx(2 * dark.any(axis=0).sum(), abs=2)


@pytest.mark.parametrize("resize", ["pad", "squash"])
def test_an_image_of_the_right_size_is_not_touched(resize):
    image = speckle(0, 32, 32)[:, :, None].repeat(3, axis=2)
    assert (preprocessing(32, resize).resized(image) == image).all()


def test_shrinking_averages_instead_of_picking_pixels():
    stripes = np.zeros((256, 256, 3), np.uint8)
    stripes[::2] = 255
    out = preprocessing(32).resized(stripes)
    assert abs(out.astype(int) - 127).max() < 30


def test_normalised_values_are_those_of_the_formula_in_channels_first():
    batch = torch.randint(0, 256, (2, 5, 5, 3), dtype=torch.uint8)
    out = preprocessing(5).normalised(batch)
    expected = (batch.double() / 255 - torch.tensor(MEAN).double()) / torch.tensor(STD).double()
    assert out.dtype == torch.float32
    assert out.shape == (2, 3, 5, 5)
    torch.testing.assert_close(out, expected.permute(0, 3, 1, 2).float(), rtol=1e-6, atol=1e-6)
    assert batch.dtype == torch.uint8


# --- the store


@pytest.mark.parametrize("resize", ["pad", "squash"])
def test_store_holds_every_usable_image_in_the_manifest_s_order(manifest, tmp_path, resize):
    store = build(manifest, tmp_path, 1.0, resize=resize)
    assert store.pixels.shape == (26, 32, 32, 3)
    assert len(store) == 26
    for row in (0, 11, 25):
        with Image.open(manifest.image_path(manifest.usable.iloc[row])) as image:
            pixels = np.asarray(image.convert("RGB"))
        assert (store.pixels[row] == preprocessing(32, resize).resized(pixels)).all()


def test_memory_mapped_store_holds_the_same_bytes_and_leaves_no_file(manifest, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    in_memory, mapped = build(manifest, folder, 1.0), build(manifest, folder, 0.0)
    assert not isinstance(in_memory.pixels, np.memmap)
    assert isinstance(mapped.pixels, np.memmap)
    assert in_memory.pixels.tobytes() == mapped.pixels.tobytes()
    assert list(folder.iterdir()) == []


def test_excluded_images_are_not_in_the_store(busi, tmp_path):
    (busi / "malignant/malignant (8).png").write_bytes((busi / "benign/benign (3).png").read_bytes())
    manifest = build_manifest("busi", {"": busi}, NoProgress())
    assert len(build(manifest, tmp_path, 1.0)) == 24


def test_file_damaged_since_the_manifest_was_built_is_named(busi, manifest, tmp_path):
    (busi / "benign" / "benign (7).png").write_bytes(b"")
    with pytest.raises(BadImage, match=r"benign \(7\).png"):
        build(manifest, tmp_path, 1.0)


def test_full_disk_is_told_before_anything_is_decoded(manifest, small_disk):
    with pytest.raises(UsvitError, match="No space left on the disk"):
        build(manifest, small_disk, 0.0, size=224)
    assert list(small_disk.iterdir()) == []


# --- the stream of batches


@pytest.fixture
def store() -> PixelStore:
    """40 images whose first pixel says which they are."""
    pixels = np.stack([speckle(number, 32, 32) for number in range(40)])[:, :, :, None].repeat(3, axis=3)
    pixels[:, 0, 0, :] = np.arange(40)[:, None]
    return PixelStore(pixels)


ROWS = np.arange(40)[::-1][:N].copy()  # some rows of the store, not in order
TARGETS = ROWS % 3


def stream(store: PixelStore, batch_size: int = 5, *, policy: str = "none", seed: int = 0, workers: int = 0):
    return TrainBatches(
        store,
        ROWS,
        TARGETS,
        batch_size=batch_size,
        augment=make_augment(policy, 32),
        seed=seed,
        workers=workers,
    )


def seen(batches: TrainBatches, start: int, stop: int) -> list[int]:
    return [int(image[0, 0, 0]) for images, _ in batches.iterate(start, stop) for image in images]


def as_bytes(batches: TrainBatches, start: int, stop: int) -> list[bytes]:
    return [images.numpy().tobytes() + targets.numpy().tobytes() for images, targets in batches.iterate(start, stop)]


@pytest.mark.parametrize("batch_size", [1, 5, N, 2 * N + 3])
def test_every_epoch_holds_each_image_exactly_once_in_another_order(store, batch_size):
    epochs = 4
    batches = stream(store, batch_size)
    order = seen(batches, 0, -(-epochs * N // batch_size))
    passes = [order[epoch * N : (epoch + 1) * N] for epoch in range(epochs)]
    assert all(sorted(one) == sorted(ROWS.tolist()) for one in passes)
    assert len({tuple(one) for one in passes}) == epochs


@pytest.mark.parametrize("batch_size", [5, 2 * N + 3])
def test_every_batch_is_full_also_across_the_end_of_an_epoch(store, batch_size):
    for images, targets in stream(store, batch_size).iterate(0, 12):
        assert images.shape == (batch_size, 32, 32, 3)
        assert images.dtype == torch.uint8
        assert targets.shape == (batch_size,)
        assert targets.dtype == torch.int64


def test_targets_belong_to_their_images(store):
    for images, targets in stream(store).iterate(0, 12):
        assert (images[:, 0, 0, 0].long() % 3 == targets).all()


def test_steps_per_epoch_counts_parts_of_a_batch(store):
    assert stream(store, 5).steps_per_epoch == N / 5


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("start", [1, 4, 9])
def test_stream_begun_in_the_middle_equals_the_tail_of_the_whole(store, start, workers):
    whole = as_bytes(stream(store, policy="light"), 0, 12)
    assert as_bytes(stream(store, policy="light", workers=workers), start, 12) == whole[start:]


def test_iterating_twice_gives_the_same(store):
    batches = stream(store, policy="light")
    assert as_bytes(batches, 0, 6) == as_bytes(batches, 0, 6)


def test_workers_change_nothing(store):
    alone, two = (as_bytes(stream(store, policy="light", workers=workers), 0, 10) for workers in (0, 2))
    assert alone == two


def test_memory_mapped_pixels_reach_the_workers(manifest, tmp_path):
    store = build(manifest, tmp_path, 0.0)
    rows = np.arange(len(store))
    batches = TrainBatches(store, rows, rows % 2, batch_size=7, augment=None, seed=0, workers=2)
    for images, targets in batches.iterate(0, 4):
        assert len(images) == len(targets) == 7
    assert not multiprocessing.active_children()


def test_another_seed_gives_another_order_and_another_augmentation(store):
    assert seen(stream(store, seed=0), 0, 4) != seen(stream(store, seed=1), 0, 4)
    constant = PixelStore(np.repeat(store.pixels[:1], 40, axis=0))
    assert as_bytes(stream(constant, policy="light"), 0, 1) != as_bytes(stream(constant, policy="light", seed=1), 0, 1)


def test_an_image_is_augmented_anew_in_every_epoch(store):
    images = [image.numpy().tobytes() for batch, _ in stream(store, N, policy="light").iterate(0, 3) for image in batch]
    assert len(set(images)) == 3 * N


@pytest.mark.parametrize("workers", [0, 2])
def test_the_model_s_random_numbers_are_left_alone(store, workers):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(stream(store, policy="light", workers=workers).iterate(0, 3))
    assert torch.equal(before, torch.get_rng_state())


def test_a_very_long_training_is_listed_step_by_step(store):
    begun = time.perf_counter()
    first = next(iter(stream(store).iterate(0, 10**12)))
    assert time.perf_counter() - begun < 2
    assert torch.equal(first[0], next(iter(stream(store).iterate(0, 1)))[0])
    assert len(list(islice(stream(store).iterate(10**9, 10**12), 3))) == 3


def test_evaluation_goes_through_its_rows_in_order_and_once(store):
    batches = list(eval_batches(store, ROWS, 5))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
    assert [int(image[0, 0, 0]) for batch in batches for image in batch] == ROWS.tolist()
    assert (torch.cat(batches).numpy() == store.pixels[ROWS]).all()


def test_where_files_cannot_be_allocated_beforehand_the_store_is_mapped_all_the_same(manifest, tmp_path, monkeypatch):
    monkeypatch.delattr(loading.os, "posix_fallocate")  # macOS has none
    assert build(manifest, tmp_path, 0.0).pixels.tobytes() == build(manifest, tmp_path, 1.0).pixels.tobytes()


def test_stores_of_grey_and_of_its_rgb_copy_are_equal(busi, tmp_path):
    manifest = build_manifest("busi", {"": busi}, NoProgress())
    one = build(manifest, tmp_path, 1.0)
    save(speckle(1), busi / "benign" / "benign (1).png")
    assert (build(manifest, tmp_path, 1.0).pixels == one.pixels).all()
