import multiprocessing
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.data.conftest import blob, save, speckle
from usvit.data.datasets.manifest import build_manifest
from usvit.data.io.bad_image import BadImage
from usvit.data.loading import pixel_store
from usvit.data.loading.pixel_store import PixelStore, TrainBatches, eval_batches
from usvit.data.transforms.geometry import CELLS, LESION_KEPT, lesion_cells
from usvit.data.transforms.policies import make_augment
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.errors import UsvitError
from usvit.progress import NoProgress

pytestmark = pytest.mark.slow

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
N = 23


def preprocessing(size: int = 32, resize: str = "squash") -> Preprocessing:
    return Preprocessing(size, resize, MEAN, STD)


@pytest.fixture
def manifest(busi):
    return build_manifest("busi", {"": busi}, NoProgress())


def build(manifest, folder: Path, memory_gb: float, size: int = 32, resize: str = "squash", **options) -> PixelStore:
    return PixelStore.build(
        manifest, preprocessing(size, resize), memory_gb=memory_gb, folder=folder, progress=NoProgress(), **options
    )


def test_an_image_that_was_exchanged_since_the_manifest_is_refused(tmp_path, manifest):
    path = manifest.image_path(manifest.usable.iloc[3])
    save(255 - np.asarray(Image.open(path)), path)
    with pytest.raises(BadImage, match=r"benign \(4\).png: its pixels differ from the manifest"):
        build(manifest, tmp_path, memory_gb=1)


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


shapes = st.tuples(st.integers(20, 300), st.integers(20, 300))


@given(shape=shapes, size=st.integers(32, 200))
def test_pad_shows_all_of_the_image_in_its_middle_and_black_around_it(shape, size):
    out = preprocessing(size, "pad").resized(np.full((*shape, 3), 200, np.uint8))
    lit = (out == 200).all(axis=2)
    rows, columns = np.flatnonzero(lit.any(axis=1)), np.flatnonzero(lit.any(axis=0))
    height, width = len(rows), len(columns)
    assert lit.sum() == height * width
    assert (out[~lit] == 0).all()
    # The longer side fills the square, the other keeps its proportion, to a pixel.
    assert max(height, width) == size
    assert abs(height - shape[0] * size / max(shape)) <= 1
    assert abs(width - shape[1] * size / max(shape)) <= 1
    assert abs(rows[0] - (size - 1 - rows[-1])) <= 1
    assert abs(columns[0] - (size - 1 - columns[-1])) <= 1


@given(
    shape=st.tuples(st.integers(80, 300), st.integers(80, 300)), size=st.integers(64, 200), share=st.floats(0.2, 0.45)
)
def test_a_circle_stays_a_circle_under_pad_and_becomes_the_known_ellipse_under_squash(shape, size, share):
    rows, columns = np.mgrid[: shape[0], : shape[1]]
    radius = share * min(shape)
    disc = (rows - (shape[0] - 1) / 2) ** 2 + (columns - (shape[1] - 1) / 2) ** 2 < radius**2
    image = disc[:, :, None].repeat(3, axis=2).astype(np.uint8) * 255
    for resize, scale in (("pad", (size / max(shape),) * 2), ("squash", (size / shape[0], size / shape[1]))):
        weights = preprocessing(size, resize).resized(image)[:, :, 0].astype(float)
        # The standard deviation of a disc's rows and columns is half its radius.
        for along, axis in zip(scale, np.mgrid[:size, :size], strict=True):
            deviation = np.sqrt(np.average((axis - np.average(axis, weights=weights)) ** 2, weights=weights))
            assert deviation == pytest.approx(radius * along / 2, rel=0.03, abs=0.3)


@given(shape=shapes, size=st.integers(32, 200))
def test_squash_leaves_no_padding(shape, size):
    assert (preprocessing(size, "squash").resized(np.full((*shape, 3), 200, np.uint8)) == 200).all()


@pytest.mark.parametrize("resize", ["pad", "squash"])
def test_a_mask_goes_where_its_lesion_goes(resize):
    mask = blob(90, 130, left=60) > 0
    lesion = np.where(mask, 200, 20).astype(np.uint8)[:, :, None].repeat(3, axis=2)
    small = preprocessing(64, resize).resized_mask(mask)
    assert small.dtype == bool
    assert small.mean() > 0.005
    assert (small == (preprocessing(64, resize).resized(lesion)[:, :, 0] > 110)).all()


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


@pytest.mark.parametrize("resize", ["pad", "squash"])
def test_store_knows_where_the_lesions_lie(manifest, tmp_path, resize):
    store = build(manifest, tmp_path, 1.0, size=64, resize=resize)
    assert store.lesions.shape == (26, CELLS, CELLS)
    rows = manifest.usable
    assert (store.lesions.any(axis=(1, 2)) == (rows.label != "normal")).all()
    masks = {"benign (1)": blob() > 0, "benign (10)": (blob() | blob(left=35) | blob(left=0)) > 0}
    for image_id, mask in masks.items():
        expected = lesion_cells(preprocessing(64, resize).resized_mask(mask))
        assert (store.lesions[rows.image_id.tolist().index(image_id)] == expected).all()


def test_masks_are_not_read_where_nobody_asks(busi, manifest, tmp_path):
    (busi / "benign" / "benign (7)_mask.png").write_bytes(b"")
    assert build(manifest, tmp_path, 1.0, with_lesions=False).lesions is None
    with pytest.raises(BadImage, match=r"benign \(7\)_mask.png"):
        build(manifest, tmp_path, 1.0)


def test_memory_mapped_store_holds_the_same_bytes_and_leaves_no_file(manifest, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    in_memory, mapped = build(manifest, folder, 1.0), build(manifest, folder, 0.0)
    assert not isinstance(in_memory.pixels, np.memmap)
    assert isinstance(mapped.pixels, np.memmap)
    assert in_memory.pixels.tobytes() == mapped.pixels.tobytes()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("free_bytes", "is_mapped"), [(None, False), (2 * N * 32 * 32 * 3 + 100_000, False), (1000, True)]
)
def test_pixels_that_the_free_memory_cannot_hold_are_mapped_whatever_the_limit_is(
    manifest, tmp_path, monkeypatch, free_bytes, is_mapped
):
    monkeypatch.setattr(pixel_store, "free_memory", lambda: free_bytes)
    store = build(manifest, tmp_path, 1.0)
    assert isinstance(store.pixels, np.memmap) is is_mapped


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
        augment=make_augment(policy),
        seed=seed,
        workers=workers,
    )


def seen(batches: TrainBatches, start: int, stop: int) -> list[int]:
    return [int(image[0, 0, 0]) for batch in batches.iterate(start, stop) for image in batch["images"]]


def as_bytes(batches: TrainBatches, start: int, stop: int) -> list[bytes]:
    return [b"".join(value.numpy().tobytes() for value in batch.values()) for batch in batches.iterate(start, stop)]


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
    for images, targets in map(dict.values, stream(store, batch_size).iterate(0, 12)):
        assert images.shape == (batch_size, 32, 32, 3)
        assert images.dtype == torch.uint8
        assert targets.shape == (batch_size,)
        assert targets.dtype == torch.int64


def test_targets_belong_to_their_images(store):
    for images, targets in map(dict.values, stream(store).iterate(0, 12)):
        assert (images[:, 0, 0, 0].long() % 3 == targets).all()


def test_steps_per_epoch_counts_parts_of_a_batch(store):
    assert stream(store, 5).steps_per_epoch == N / 5


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("start", [1, 4, 9])
@pytest.mark.parametrize("policy", ["us", "trivial"])
def test_stream_begun_in_the_middle_equals_the_tail_of_the_whole(store, start, workers, policy):
    store.lesions = np.zeros((40, CELLS, CELLS), np.uint8)
    store.lesions[:, :6, :9] = 255
    whole = as_bytes(stream(store, policy=policy), 0, 12)
    assert as_bytes(stream(store, policy=policy, workers=workers), start, 12) == whole[start:]


def test_iterating_twice_gives_the_same(store):
    batches = stream(store, policy="light")
    assert as_bytes(batches, 0, 6) == as_bytes(batches, 0, 6)


@pytest.mark.parametrize("known", [True, False])
def test_a_lesion_in_the_corner_stays_in_the_batches_where_its_mask_is_known(known):
    corner = np.zeros((64, 64), bool)
    corner[-12:, -12:] = True
    image = np.where(corner, 240, 60).astype(np.uint8)[:, :, None].repeat(3, axis=2)
    # Only rows 7 and 8 of the store have a lesion there: each image must get its own.
    lesions = np.zeros((9, CELLS, CELLS), np.uint8)
    lesions[7:] = lesion_cells(corner) if known else 0
    store = PixelStore(np.stack([image] * 9), lesions)
    batches = TrainBatches(
        store,
        np.array([7, 8]),
        np.array([0, 1]),
        batch_size=20,
        augment=make_augment("light"),
        seed=0,
    )
    images = np.concatenate([batch["images"].numpy() for batch in batches.iterate(0, 5)])[:, :, :, 0]
    seen = (images > images.max(axis=(1, 2), keepdims=True) * 0.62).sum(axis=(1, 2)) / corner.sum()
    assert (seen.min() > LESION_KEPT - 0.1) == known


def test_workers_change_nothing(store):
    alone, two = (as_bytes(stream(store, policy="light", workers=workers), 0, 10) for workers in (0, 2))
    assert alone == two


def test_memory_mapped_pixels_reach_the_workers(manifest, tmp_path):
    store = build(manifest, tmp_path, 0.0)
    rows = np.arange(len(store))
    batches = TrainBatches(store, rows, rows % 2, batch_size=7, augment=None, seed=0, workers=2)
    others = set(multiprocessing.active_children())
    for images, targets in map(dict.values, batches.iterate(0, 4)):
        assert len(images) == len(targets) == 7
        workers = set(multiprocessing.active_children()) - others
    assert len(workers) == 2
    for worker in workers:
        worker.join(300)  # PyTorch itself waits for five seconds
        assert worker.exitcode == 0


def test_another_seed_gives_another_order_and_another_augmentation(store):
    assert seen(stream(store, seed=0), 0, 4) != seen(stream(store, seed=1), 0, 4)
    constant = PixelStore(np.repeat(store.pixels[:1], 40, axis=0))
    assert as_bytes(stream(constant, policy="light"), 0, 1) != as_bytes(stream(constant, policy="light", seed=1), 0, 1)


def test_an_image_is_augmented_anew_in_every_epoch(store):
    images = [
        image.numpy().tobytes() for batch in stream(store, N, policy="light").iterate(0, 3) for image in batch["images"]
    ]
    assert len(set(images)) == 3 * N


@pytest.mark.parametrize("workers", [0, 2])
def test_the_model_s_random_numbers_are_left_alone(store, workers):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    list(stream(store, policy="light", workers=workers).iterate(0, 3))
    assert torch.equal(before, torch.get_rng_state())


def test_a_very_long_training_is_listed_step_by_step(store, monkeypatch):
    asked, positions = [], TrainBatches.positions

    def few(batches, step):
        asked.append(step)
        assert len(asked) < 100
        return positions(batches, step)

    monkeypatch.setattr(TrainBatches, "positions", few)
    first = next(iter(stream(store).iterate(0, 10**12)))
    assert torch.equal(first["images"], next(iter(stream(store).iterate(0, 1)))["images"])
    assert len(list(islice(stream(store).iterate(10**9, 10**12), 3))) == 3


def test_evaluation_goes_through_its_rows_in_order_and_once(store):
    batches = list(eval_batches(store, ROWS, 5))
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
    assert [int(image[0, 0, 0]) for batch in batches for image in batch] == ROWS.tolist()
    assert (torch.cat(batches).numpy() == store.pixels[ROWS]).all()


def test_where_files_cannot_be_allocated_beforehand_the_store_is_mapped_all_the_same(manifest, tmp_path, monkeypatch):
    monkeypatch.delattr(pixel_store.os, "posix_fallocate")  # macOS has none
    assert build(manifest, tmp_path, 0.0).pixels.tobytes() == build(manifest, tmp_path, 1.0).pixels.tobytes()


def test_stores_of_grey_and_of_its_rgb_copy_are_equal(busi, tmp_path):
    manifest = build_manifest("busi", {"": busi}, NoProgress())
    one = build(manifest, tmp_path, 1.0)
    save(speckle(1), busi / "benign" / "benign (1).png")
    assert (build(manifest, tmp_path, 1.0).pixels == one.pixels).all()


@pytest.mark.parametrize("policy", ["none", "us"])
def test_lesions_move_with_their_images_and_say_whether_their_mask_is_known(policy):
    """The image is its own mask: white in the lesion, black elsewhere, with a thin frame of grey around the picture."""
    cells = np.zeros((CELLS, CELLS), np.uint8)
    cells[6:14, 18:26] = 255
    image = np.repeat(np.kron(cells, np.ones((2, 2), np.uint8))[..., None], 3, axis=2)
    image = np.maximum(image, 60)
    store = PixelStore(np.stack([image] * 4), np.stack([cells] * 4))
    masked = np.array([True, False, True, True])
    batches = TrainBatches(
        store,
        np.arange(4),
        np.arange(4, dtype=np.int64),
        batch_size=4,
        augment=make_augment(policy),
        seed=0,
        masked=masked,
    )
    plain = TrainBatches(
        store, np.arange(4), np.arange(4, dtype=np.int64), batch_size=4, augment=make_augment(policy), seed=0
    )
    for batch, other in zip(batches.iterate(0, 5), plain.iterate(0, 5), strict=True):
        assert (batch["images"] == other["images"]).all(), "masks change no image"
        assert (batch["masked"].numpy() == masked[batch["targets"].numpy()]).all()
        for picture, lesion in zip(batch["images"].numpy(), batch["lesions"].numpy(), strict=True):
            grey = picture[..., 0].reshape(CELLS, 2, CELLS, 2).mean((1, 3))
            inside, outside = grey[lesion > 250], grey[lesion == 0]
            assert len(inside) > 20
            assert np.median(inside) > 100 + np.median(outside)
            assert (inside > np.quantile(outside, 0.97)).mean() > 0.95
