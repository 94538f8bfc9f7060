"""The ways in which a frame is stored again, for tests and studies that know the truth."""

import io
from collections.abc import Callable

import cv2
import numpy as np
from PIL import Image, ImageDraw

from usvit.data.io.types import UInt8


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


def canvas(image: UInt8, rng: np.random.Generator) -> UInt8:
    """A scanner's screen of 1024 x 768: the frame somewhere in it, captions, a grey bar and a depth scale around."""
    width, height = 1024, 768
    if max(image.shape[0] / (height - 160), image.shape[1] / (width - 260)) > 1:
        image = resized(image, min((height - 160) / image.shape[0], (width - 260) / image.shape[1]))
    screen = np.full((height, width, 3), 12, np.uint8)
    y, x = (int(rng.integers(80, free)) for free in (height - image.shape[0] - 79, width - image.shape[1] - 149))
    screen[y : y + image.shape[0], x : x + image.shape[1]] = image
    screen[100:356, width - 39 : width - 25] = np.arange(255, -1, -1, dtype=np.uint8)[:, None, None]
    picture = Image.fromarray(screen)
    draw = ImageDraw.Draw(picture)
    draw.text((20, 20), "GENERAL HOSPITAL  US-17  12:34:56", fill=(220, 220, 220))
    for line in range(10):
        draw.text((width - 130, 100 + 20 * line), f"Gn {line * 7}  DR 6{line}", fill=(230, 230, 230))
    for tick in range(12):
        at = y + tick * image.shape[0] // 12
        draw.line([x + image.shape[1] + 4, at, x + image.shape[1] + 10, at], fill=(255, 255, 255))
    return np.asarray(picture)


def screenshot(image: UInt8, rng: np.random.Generator) -> UInt8:
    """A viewer's window: a bright menu, a list of series, a black border."""
    height, width = image.shape[:2]
    window = np.full((height + 150, width + 320, 3), 240, np.uint8)
    window[:40], window[40:, :200] = (40, 60, 120), (200, 205, 215)
    y, x = 60 + int(rng.integers(30)), 220 + int(rng.integers(60))
    window[y - 10 : y + height + 10, x - 10 : x + width + 10] = 0
    window[y : y + height, x : x + width] = image
    picture = Image.fromarray(window)
    draw = ImageDraw.Draw(picture)
    for line in range(6):
        draw.text((15, 60 + 24 * line), f"Series {line}: BREAST L", fill=(10, 10, 10))
        draw.rectangle([210 + 30 * line, 8, 232 + 30 * line, 30], outline=(255, 255, 255))
    return np.asarray(picture)


def padded(image: UInt8) -> UInt8:
    """Black on both sides, 1.4 times as wide."""
    margin = round(0.2 * image.shape[1])
    return np.pad(image, ((0, 0), (margin, margin), (0, 0)))


def turned(image: UInt8, degrees: float, rng: np.random.Generator) -> UInt8:
    """Either way, corners cut, black where nothing is left."""
    height, width = image.shape[:2]
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), degrees * float(rng.choice([-1, 1])), 1)
    return np.asarray(cv2.warpAffine(np.ascontiguousarray(image), matrix, (width, height)), dtype=np.uint8)


def dual(image: UInt8, other: UInt8) -> UInt8:
    """Two views side by side, as scanners store them."""
    height, width = image.shape[:2]
    other = np.asarray(Image.fromarray(other).resize((width, height)))
    return np.concatenate([image, np.zeros((height, 6, 3), np.uint8), other], axis=1)


def squeezed_dual(image: UInt8, other: UInt8, side: int = 224) -> UInt8:
    """Two views side by side in a square, as data sets for training store them."""
    return fitted(dual(image, other), side, side)


def middle_part(image: UInt8, width: float, height: float) -> UInt8:
    """The middle of the image, in shares of its width and height."""
    rows, columns = (
        round((1 - share) / 2 * length) for share, length in zip((height, width), image.shape, strict=False)
    )
    return image[rows : image.shape[0] - rows, columns : image.shape[1] - columns]


def fitted(image: UInt8, width: int, height: int) -> UInt8:
    return np.asarray(Image.fromarray(image).resize((width, height), Image.Resampling.BICUBIC))


def perspective(image: UInt8, rng: np.random.Generator) -> UInt8:
    """A photograph of a screen: corners moved by up to 5 %, out of focus, noise."""
    height, width = image.shape[:2]
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], np.float32)
    moved = corners + rng.uniform(-0.05, 0.05, (4, 2)) * [width, height] + [0.08 * width, 0.08 * height]
    matrix = cv2.getPerspectiveTransform(corners, moved.astype(np.float32))
    seen = cv2.warpPerspective(np.ascontiguousarray(image), matrix, (round(1.16 * width), round(1.16 * height)))
    return noisy(np.asarray(cv2.GaussianBlur(seen, (0, 0), 0.8), dtype=np.uint8), 6, rng)


def noisy(image: UInt8, sigma: float, rng: np.random.Generator) -> UInt8:
    return np.clip(image + rng.normal(0, sigma, image.shape[:2])[..., None], 0, 255).astype(np.uint8)


def _grey(image: UInt8) -> UInt8:
    return np.asarray(cv2.cvtColor(np.ascontiguousarray(image), cv2.COLOR_RGB2GRAY), dtype=np.uint8)


def coloured(image: UInt8, colour_map: int) -> UInt8:
    return np.ascontiguousarray(cv2.applyColorMap(_grey(image), colour_map)[..., ::-1])


def equalised(image: UInt8) -> UInt8:
    return np.repeat(cv2.createCLAHE(4.0, (8, 8)).apply(_grey(image))[..., None], 3, axis=2)


EXPORTS: dict[str, tuple[str, Callable[[UInt8, np.random.Generator], UInt8]]] = {
    "padded": ("same frame", lambda image, rng: padded(image)),
    "scanner's screen 1024 x 768": ("same frame", canvas),
    "viewer's window": ("same frame", screenshot),
    "turned by 2 degrees": ("same frame", lambda image, rng: turned(image, 2, rng)),
    "turned by 5 degrees": ("same frame", lambda image, rng: turned(image, 5, rng)),
    "turned by 45 degrees": ("turned", lambda image, rng: turned(image, 45, rng)),
    "turned by 90 degrees": ("turned", lambda image, rng: np.rot90(image)),
    "turned by 180 degrees": ("turned", lambda image, rng: image[::-1, ::-1]),
    "upside down": ("flipped", lambda image, rng: image[::-1]),
    "inverted": ("inverted", lambda image, rng: 255 - image),
    "inverted, mirrored, cropped by 20 %": ("inverted", lambda image, rng: 255 - cropped(image[:, ::-1], 0.2, rng)),
    "cropped by 30 %": ("same frame", lambda image, rng: cropped(image, 0.3, rng)),
    "cropped by 50 %": ("same frame", lambda image, rng: cropped(image, 0.5, rng)),
    "stretched by 1.33": ("same frame", lambda image, rng: fitted(image, round(1.33 * image.shape[1]), image.shape[0])),
    "stretched by 1.6": ("same frame", lambda image, rng: fitted(image, round(1.6 * image.shape[1]), image.shape[0])),
    "a wide part, squeezed into a square": (
        "same frame",
        lambda image, rng: fitted(middle_part(image, 0.9, 0.55), 224, 224),
    ),
    "perspective, noise": ("same frame", perspective),
    "gamma 2": ("same frame", lambda image, rng: np.round(255 * (image / 255) ** 2).astype(np.uint8)),
    "contrast equalised (CLAHE)": ("same frame", lambda image, rng: equalised(image)),
    "colour map jet": ("same frame", lambda image, rng: coloured(image, cv2.COLORMAP_JET)),
    "noise, sigma 25": ("same frame", lambda image, rng: noisy(image, 25, rng)),
    "smoothed, sigma 2": ("same frame", lambda image, rng: np.asarray(cv2.GaussianBlur(image, (0, 0), 2), np.uint8)),
    "JPEG, quality 10": ("same frame", lambda image, rng: jpeg(image, 10)),
    "64 x 64": ("same frame", lambda image, rng: fitted(image, 64, 64)),
    "28 x 28": ("same frame", lambda image, rng: fitted(image, 28, 28)),
    "enlarged twice": ("same frame", lambda image, rng: resized(image, 2)),
}
"""Kind -> how the finder calls it, and how it is made: exports of scanners, viewers and programs."""
