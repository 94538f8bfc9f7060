"""Optional marks on phantom images: text, calipers and near-duplicates.

They are the shortcuts and leaks that an audit has to find. None of them depends on the class.
"""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from usvit.data.phantom.lesion import ANGLES, Lesion, outline

Grey = NDArray[np.uint8]
_REFERENCE_SIZE = 256  # px; the marks are designed for this size and grow with the image
INK = 255


def burn_text(image: Grey, frequency_mhz: float, rng: np.random.Generator) -> Grey:
    """Return a copy with a line of scanner text, such as ``BREAST L 2 o'clock  7.5 MHz``.

    Side and hour are random, and there is no name.
    """
    text = f"BREAST {rng.choice(['L', 'R'])} {rng.integers(1, 13)} o'clock  {frequency_mhz:.1f} MHz"
    line = text_line(text, image.shape[0])
    canvas = Image.fromarray(image)
    margin = round(4 * image.shape[0] / _REFERENCE_SIZE)
    left = margin if rng.random() < 0.5 else canvas.width - line.width - margin
    top = margin if rng.random() < 0.5 else canvas.height - line.height - margin
    # The line is its own mask: bright letters without a box, as scanners burn them in.
    canvas.paste(INK, (max(0, left), top), line)
    return np.asarray(canvas)


def text_line(text: str, height: int) -> Image.Image:
    """Return a line of text as an 8-bit mask, 255 in the ink, sized for an image of this height in pixels."""
    # Pillow's bitmap font needs neither a font file nor hinting, and gives the same pixels everywhere.
    font = ImageFont.load_default_imagefont()
    box = font.getbbox(text)
    line = Image.new("L", (int(box[2]) + 2, int(box[3]) + 2))
    ImageDraw.Draw(line).text((1, 1), text, fill=INK, font=font)
    scale = height / _REFERENCE_SIZE
    return line.resize((max(1, round(line.width * scale)), max(1, round(line.height * scale))))


def burn_calipers(image: Grey, lesion: Lesion) -> Grey:
    """Return a copy with crosses at the ends of the longest diameter and of the perpendicular one.

    Args:
        image: (H, W) uint8.
        lesion: The lesion in the section of this view; it need not be in the image.
    """
    size = image.shape[0]
    radius = outline(lesion, float(size))
    half, quarter = ANGLES // 2, ANGLES // 4
    longest = int(np.argmax(radius + np.roll(radius, -half)))
    canvas = Image.fromarray(image)
    draw = ImageDraw.Draw(canvas)
    arm = max(2, round(4 * size / _REFERENCE_SIZE))
    for start in (longest, longest + quarter):
        ends = [_point(lesion, radius, start % ANGLES, size), _point(lesion, radius, (start + half) % ANGLES, size)]
        for x, y in ends:
            draw.line((x - arm, y, x + arm, y), fill=INK)
            draw.line((x, y - arm, x, y + arm), fill=INK)
        length = float(np.hypot(ends[1][0] - ends[0][0], ends[1][1] - ends[0][1]))
        for share in np.linspace(0, 1, max(2, int(length / arm))):
            draw.point([a + share * (b - a) for a, b in zip(*ends, strict=True)], fill=INK)
    return np.asarray(canvas)


def near_duplicate(image: Grey, mask: NDArray[np.bool_], rng: np.random.Generator) -> tuple[Grey, NDArray[np.bool_]]:
    """Return a near-duplicate of a picture: with another gain, shifted by a few pixels, and compressed by JPEG.

    Args:
        image: (H, W) uint8.
        mask: (H, W) bool, shifted in the same way.
        rng: draws gain, shift and quality.

    Returns:
        Image and mask of the same shapes.
    """
    reach = max(1, round(3 * image.shape[0] / _REFERENCE_SIZE))
    down, across = rng.integers(-reach, reach + 1, 2)
    shifted = _shift(image, down, across, "edge")
    regained = np.clip(shifted * rng.uniform(0.9, 1.1) + rng.uniform(-8, 8), 0, 255)
    buffer = io.BytesIO()
    Image.fromarray(np.rint(regained).astype(np.uint8)).save(buffer, "JPEG", quality=int(rng.integers(75, 93)))
    return np.asarray(Image.open(buffer)), _shift(mask, down, across, "constant")


def _point(lesion: Lesion, radius: NDArray[np.float64], index: int, size: int) -> tuple[float, float]:
    angle = -np.pi + 2 * np.pi * index / ANGLES
    return (
        lesion.across * size + radius[index] * float(np.cos(angle)),
        lesion.depth * size + radius[index] * float(np.sin(angle)),
    )


def _shift(array: np.ndarray, down: int, across: int, mode: str) -> np.ndarray:
    reach = max(abs(down), abs(across))
    padded = np.pad(array, reach, mode=mode)  # type: ignore[call-overload]
    height, width = array.shape
    return padded[reach - down : reach - down + height, reach - across : reach - across + width]
