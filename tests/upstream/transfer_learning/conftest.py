"""Images that any network can tell apart, and a small network's settings for them."""

import numpy as np
import pytest
from PIL import Image

CLASSES = ("bars", "dots", "grass")
N = {"train": 10, "val": 4, "test": 6}


def picture(label, seed):
    """(40, 48, 3) uint8: colour and stripes of its class, with a tint and noise of its own."""
    rng = np.random.default_rng([label, seed])
    wave = np.sin(np.arange(48) * (0.3 + 0.9 * label) + rng.uniform(0, 6))
    colour = np.eye(3)[label] * 60 + 90 + rng.normal(0, 30, 3)
    pixels = colour * (1 + 0.4 * wave[None, :, None]) + rng.normal(0, 12, (40, 48, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """A folder <part>/<class>/<image>.png."""
    root = tmp_path_factory.mktemp("pictures")
    for number, (part, count) in enumerate(N.items()):
        for label, name in enumerate(CLASSES):
            folder = root / part / name
            folder.mkdir(parents=True)
            for index in range(count):
                Image.fromarray(picture(label, 100 * number + index)).save(folder / f"{index}.png")
    return root


@pytest.fixture
def settings(pictures):
    """Of a ``TransferConfig``: a scratch network that takes milliseconds."""
    return {
        "source": {"name": "folder", "path": str(pictures), "val": "val"},
        "model": {
            "name": "vit_ti16",
            "weights": "scratch",
            "image_size": 32,
            "vit": {"width": 24, "depth": 2, "heads": 2, "mlp": 48, "patch": 8, "pool": "avg"},
        },
        "views": {"test_crop": 1.0},
        "device": "cpu",
        "precision": "fp32",
        "shots": [1, 5],
        "draws": 3,
    }
