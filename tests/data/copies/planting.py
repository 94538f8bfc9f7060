"""The ways in which a frame is stored again, for tests and studies that know the truth."""

import io
from collections.abc import Callable

import numpy as np
from PIL import Image, ImageDraw

from usvit.data.images import UInt8


def jpeg(image: UInt8, quality: int = 75) -> UInt8:
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, "JPEG", quality=quality)
    return np.asarray(Image.open(buffer).convert("RGB"))


def resized(image: UInt8, factor: float) -> UInt8:
    height, width = image.shape[:2]
    size = (round(width * factor), round(height * factor))
    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))


def cropped(image: UInt8, fraction: float, rng: np.random.Generator) -> UInt8:
    """``fraction`` of the height and of the width cut away, divided at random between the two sides."""
    height, width = image.shape[:2]
    rows, columns = round(fraction * height), round(fraction * width)
    top, left = rng.integers(rows + 1), rng.integers(columns + 1)
    return image[top : height - rows + top, left : width - columns + left]


def shifted(image: UInt8, rng: np.random.Generator) -> UInt8:
    """Moved by 3 to 8 pixels on each axis, black where nothing is left."""
    dy, dx = rng.integers(3, 9, 2) * rng.choice([-1, 1], 2)
    height, width = image.shape[:2]
    moved = np.zeros_like(image)
    moved[max(0, dy) : height + min(0, dy), max(0, dx) : width + min(0, dx)] = image[
        max(0, -dy) : height + min(0, -dy), max(0, -dx) : width + min(0, -dx)
    ]
    return moved


def annotated(image: UInt8, rng: np.random.Generator) -> UInt8:
    """Two pairs of caliper crosses, their dotted lines and three captions, as scanners burn them in."""
    picture = Image.fromarray(image)
    draw = ImageDraw.Draw(picture)
    height, width = image.shape[:2]
    arm = max(2, height // 60)
    for _ in range(2):
        ends = [(rng.integers(width // 4, 3 * width // 4), rng.integers(height // 4, 3 * height // 4)) for _ in "ab"]
        for x, y in ends:
            draw.line([x - arm, y, x + arm, y], fill=(255, 255, 0))
            draw.line([x, y - arm, x, y + arm], fill=(255, 255, 0))
        for along in np.linspace(0, 1, 20):
            draw.point([ends[0][k] + along * (ends[1][k] - ends[0][k]) for k in (0, 1)], fill=(255, 255, 255))
    draw.text((4, 4), "RT BREAST 2 H", fill=(255, 255, 255))
    draw.text((4, height - 28), "1 L 12.4 mm", fill=(0, 255, 0))
    draw.text((4, height - 15), "2 L 9.8 mm", fill=(0, 255, 0))
    return np.asarray(picture)


def regained(image: UInt8, rng: np.random.Generator) -> UInt8:
    """Another contrast, brightness and gamma."""
    scaled = np.clip(image / 255 * rng.uniform(0.75, 1.25) + rng.uniform(-0.08, 0.08), 0, 1)
    return np.round(255 * scaled ** rng.uniform(0.8, 1.25)).astype(np.uint8)


def combined(image: UInt8, rng: np.random.Generator) -> UInt8:
    """Cropped by 5 %, annotated, resized to 0.75, another gain, JPEG."""
    return jpeg(regained(resized(annotated(cropped(image, 0.05, rng), rng), 0.75), rng))


KINDS: dict[str, Callable[[UInt8, np.random.Generator], UInt8]] = {
    "copy": lambda image, rng: image.copy(),
    "jpeg": lambda image, rng: jpeg(image),
    "resize 0.75": lambda image, rng: resized(image, 0.75),
    "resize 0.5": lambda image, rng: resized(image, 0.5),
    "crop 5%": lambda image, rng: cropped(image, 0.05, rng),
    "crop 10%": lambda image, rng: cropped(image, 0.10, rng),
    "shift": shifted,
    "flip": lambda image, rng: image[:, ::-1],
    "annotated": annotated,
    "gain": regained,
    "combined": combined,
    "flip + combined": lambda image, rng: combined(image[:, ::-1], rng),
}
