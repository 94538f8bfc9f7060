"""The number moves the way a person's judgement would."""

import cv2
import numpy as np
import pytest

from usvit.data.audit.frame_quality import grey_levels, quality
from usvit.data.io.decoding import read_image
from usvit.data.phantom import PhantomSpec, write_phantom

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def phantoms(tmp_path_factory) -> list[np.ndarray]:
    folder = write_phantom(
        PhantomSpec(n=6, seed=5, size=192), tmp_path_factory.mktemp("quality") / "phantom", workers=1
    )
    return [read_image(path) for path in sorted(folder.rglob("*.png")) if "mask" not in path.name]


def half(pixels: np.ndarray, value: int) -> np.ndarray:
    spoilt = pixels.copy()
    spoilt[:, pixels.shape[1] // 2 :] = value
    return spoilt


SPOILT = {
    "blurred": lambda pixels: cv2.GaussianBlur(pixels, (0, 0), 1.5),
    "moved": lambda pixels: cv2.blur(pixels, (7, 1)),
    "darkened": lambda pixels: (pixels * 0.6).astype(np.uint8),
    "cut off at the dark end": lambda pixels: cv2.subtract(pixels, np.full_like(pixels, 70)),
    "saturated": lambda pixels: (pixels * 3.0).clip(0, 255).astype(np.uint8),
    "half black": lambda pixels: half(pixels, 0),
    "half white": lambda pixels: half(pixels, 255),
    "of few levels": lambda pixels: pixels // 64 * 64,
}


@pytest.mark.parametrize("how", SPOILT)
def test_what_spoils_a_picture_lowers_its_quality(phantoms, how):
    assert phantoms
    for pixels in phantoms:
        assert quality(SPOILT[how](pixels)) < quality(pixels) - 0.01


@pytest.mark.parametrize("how", SPOILT)
def test_what_spoils_a_real_image_lowers_its_quality(real_data, how):
    for name in ("benign (40)", "malignant (11)", "normal (42)", "benign (318)"):
        pixels = read_image(real_data / "Dataset_BUSI_with_GT" / name.split()[0] / f"{name}.png")
        assert quality(SPOILT[how](pixels)) < quality(pixels) - 0.01


def test_more_blur_is_worse_and_so_is_less_light(phantoms):
    blurred = [quality(cv2.GaussianBlur(phantoms[0], (0, 0), sigma)) for sigma in (0.7, 1, 2, 4, 8)]
    darker = [quality((phantoms[0] * gain).astype(np.uint8)) for gain in (0.9, 0.7, 0.5, 0.3, 0.1)]
    assert blurred == sorted(blurred, reverse=True)
    assert darker == sorted(darker, reverse=True)


@pytest.mark.parametrize("level", [0, 90, 255])
def test_a_blank_frame_has_none(level):
    assert quality(np.full((60, 80, 3), level, np.uint8)) == 0


@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (2, 2), (600, 800)])
def test_it_lies_between_0_and_1_for_any_frame(shape):
    noise = np.random.default_rng(0).integers(0, 256, (*shape, 3)).astype(np.uint8)
    assert 0 <= quality(noise) <= 1
    assert isinstance(quality(noise), float)


def test_brightness_and_contrast_are_mean_and_sd_of_the_grey_levels():
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[:2] = 200
    assert grey_levels(pixels) == (100.0, 100.0)
