"""Pictures with grain and structure, so that any change shows."""

import numpy as np
import pytest
from PIL import Image


def picture(seed: int = 0, size: tuple[int, int] = (90, 66)) -> Image.Image:
    """Smooth colours with noise of 20 grey levels, mode RGB."""
    generator = np.random.default_rng(seed)
    smooth = Image.fromarray(generator.integers(0, 256, (5, 7, 3), dtype=np.uint8)).resize(size, Image.BICUBIC)
    noisy = np.asarray(smooth).astype(int) + generator.integers(-20, 21, (size[1], size[0], 3))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


@pytest.fixture
def image() -> Image.Image:
    return picture()
