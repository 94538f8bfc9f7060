import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from tests.data.conftest import write_breastmnist
from usvit.data.io import medmnist
from usvit.data.io.bad_image import BadImage
from usvit.data.io.decoding import read_image


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_breastmnist(tmp_path) / "breastmnist.npz"


def refused(path: Path, frame: int = 0) -> str:
    with pytest.raises(BadImage) as caught:
        read_image(path, frame)
    assert caught.value.path == path
    return caught.value.reason


def rewrite(path: Path, **arrays: object) -> None:
    kept = {**np.load(path), **arrays}
    np.savez(path, **{name: array for name, array in kept.items() if array is not None})


def test_the_file_is_opened_once_for_all_its_frames_even_in_threads(path, monkeypatch):
    opened = []
    load = np.load
    monkeypatch.setattr(np, "load", lambda *a, **k: opened.append(a) or load(*a, **k))
    with ThreadPoolExecutor(8) as pool:
        pixels = list(pool.map(lambda frame: read_image(path, frame), [*range(36)] * 20))
    assert len(opened) == 1
    assert len({one.tobytes() for one in pixels}) == 36


def test_a_frame_is_the_caller_s_own(path):
    read_image(path, 3)[:] = 0
    assert read_image(path, 3).max() > 0


def test_a_changed_file_is_read_anew(path):
    before = read_image(path, 0)
    rewrite(path, train_images=255 - np.load(path)["train_images"])
    assert (read_image(path, 0) == 255 - before).all()


def test_colour_is_kept(path):
    arrays = {
        f"{part}_images": np.full((n, 4, 6, 3), 9, np.uint8) for part, n in (("train", 20), ("val", 6), ("test", 10))
    }
    rewrite(path, **arrays)
    assert read_image(path, 35).shape == (4, 6, 3)


def test_a_frame_that_is_not_there_is_refused(path):
    assert refused(path, 36) == "it has no frame 36: it holds 36, counted from 0"
    assert "no frame -1" in refused(path, -1)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"val_images": None}, "no array 'val_images'; it has train_images"),
        ({"test_labels": None}, "no array 'test_labels'"),
        ({"val_images": np.zeros((6, 4, 4), np.float32)}, "'val_images' is not an array of 8-bit images: float32"),
        ({"val_images": np.zeros((6, 4, 4, 2), np.uint8)}, "'val_images' is not an array of 8-bit images"),
        ({"val_labels": np.zeros(5, np.uint8)}, r"'val_labels' has the shape (5,) for 6 images"),
        ({"val_images": np.array([{}] * 6)}, "damaged or truncated (Object arrays cannot be loaded"),
    ],
)
def test_another_layout_is_refused(path, arrays, says):
    rewrite(path, **arrays)
    assert says in refused(path)


def test_damaged_and_missing_files_are_refused(path):
    path.write_bytes(path.read_bytes()[:3000])
    assert "damaged or truncated" in refused(path)
    path.unlink()
    assert refused(path) == "there is no such file"


def test_an_archive_that_unpacks_to_too_much_is_refused(path, monkeypatch):
    unpacked = sum(member.file_size for member in zipfile.ZipFile(path).infolist())
    monkeypatch.setattr(medmnist, "MAX_BYTES", unpacked - 1)
    assert "decompression bomb" in refused(path)
