from pathlib import Path

import numpy as np

from tests.data.conftest import save, speckle
from tests.data.io.pictures import COLOUR, GREY
from usvit.data.io.decoding import read_image
from usvit.data.io.image_hashes import fingerprint


def sha256(path: Path) -> str:
    return fingerprint(read_image(path)).sha256


def test_lossless_recompression_and_another_format_keep_the_hash(tmp_path):
    files = [
        save(COLOUR, tmp_path / "fast.png", compress_level=0),
        save(COLOUR, tmp_path / "small.png", compress_level=9),
        save(COLOUR, tmp_path / "same.bmp"),
        save(COLOUR, tmp_path / "same.tif", compression="tiff_lzw"),
    ]
    assert len({sha256(path) for path in files}) == 1


def test_grey_and_its_rgb_copy_have_one_hash(tmp_path):
    assert sha256(save(GREY, tmp_path / "a.png")) == sha256(save(GREY, tmp_path / "b.png", "RGB"))


def test_one_pixel_changed_by_one_level_alters_the_hash(tmp_path):
    other = COLOUR.copy()
    other[20, 30, 2] ^= 1
    assert sha256(save(COLOUR, tmp_path / "a.png")) != sha256(save(other, tmp_path / "b.png"))


def test_the_same_bytes_in_another_shape_have_another_hash():
    flat = np.zeros((4, 9, 3), np.uint8)
    assert fingerprint(flat).sha256 != fingerprint(flat.reshape(9, 4, 3)).sha256


def test_perceptual_hash_is_near_for_a_brighter_copy_and_far_for_another_image():
    def distance(one: np.ndarray, other: np.ndarray) -> int:
        bits = [int(fingerprint(np.stack([image] * 3, axis=2)).phash, 16) for image in (one, other)]
        return (bits[0] ^ bits[1]).bit_count()

    brighter = (GREY * 0.8 + 20).astype(np.uint8)
    assert distance(GREY, brighter) <= 6
    assert distance(GREY, speckle(2)) > 16
