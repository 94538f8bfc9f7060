"""Measure how often words in a picture are missed, by height and contrast, and how often there are false alarms.

    PYTHONPATH=. python benchmarks/burned_in_text.py --images 60 [--busi FOLDER]

Invented names are drawn in memory, in five fonts and at five places, on phantoms and (``--busi``) on images of BUSI in
which ``has_text`` finds no words. Nothing is written to the disk. The benchmark prints Markdown tables for
``has_text``, which audits use, and ``may_show_words``, which is checked before a picture is shown.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
from matplotlib import get_data_path
from PIL import Image, ImageDraw, ImageFont

from usvit.data.burned_in.marks import has_text
from usvit.data.burned_in.text import may_show_words
from usvit.data.io.decoding import read_image
from usvit.data.phantom import PhantomSpec, write_phantom

HEIGHTS = (6, 8, 12, 16, 24, 32)
"""Heights of capital letters in pixels."""
INKS: dict[str, Callable[[float], tuple[int, int, int]]] = {
    "white": lambda _: (255, 255, 255),
    "grey, 80 above": lambda around: _grey(around + 80),
    "grey, 40 above": lambda around: _grey(around + 40),
    "grey, 20 above": lambda around: _grey(around + 20),
    "grey, 40 below": lambda around: _grey(around - 40),
    "black": lambda _: (0, 0, 0),
    "yellow": lambda _: (255, 220, 0),
    "dark green": lambda _: (0, 110, 40),
    "blue": lambda _: (40, 60, 200),
}
"""Ink -> function that returns its colour, from the median grey level of the background."""
FONTS = ("DejaVuSans.ttf", "DejaVuSansMono.ttf", "DejaVuSerif.ttf", "DejaVuSans-Bold.ttf")
FAMILY, GIVEN = ("MUSTER", "DOE", "SMITH", "GARCIA", "NGUYEN", "Kowalska"), ("ERIKA", "JANE", "ANN", "MARIA", "Eva")


def _grey(level: float) -> tuple[int, int, int]:
    value = int(np.clip(level, 0, 255))
    return value, value, value


def name(rng: np.random.Generator) -> str:
    """Invent a patient's name in the format of scanners."""
    day, month, year = rng.integers(1, 29), rng.integers(1, 13), rng.integers(1930, 2000)
    return f"{rng.choice(FAMILY)}, {rng.choice(GIVEN)}  {day:02}.{month:02}.{year}"


def drawn(image: np.ndarray, height: int, ink: str, rng: np.random.Generator) -> np.ndarray | None:
    """Draw a name on a copy of an image; return None if it does not fit, or would not differ from its background.

    Args:
        image: (H, W, 3) uint8.
        height: Height of a capital letter in pixels.
        ink: One of ``INKS``.
        rng: Random generator of font, name and place.
    """
    text, kind = name(rng), int(rng.integers(len(FONTS) + 1))
    if kind == len(FONTS):  # OpenCV's strokes, as simple burners use
        size = cv2.getFontScaleFromHeight(cv2.FONT_HERSHEY_SIMPLEX, height)
        (width, tall), below = cv2.getTextSize(text, cv2.FONT_HERSHEY_SIMPLEX, size, 1)
        mask = np.zeros((tall + below + 2, width + 2), np.uint8)
        cv2.putText(mask, text, (1, tall + 1), cv2.FONT_HERSHEY_SIMPLEX, size, 255, 1, cv2.LINE_AA)
    else:
        font = ImageFont.truetype(str(Path(get_data_path()) / "fonts" / "ttf" / FONTS[kind]), round(height / 0.73))
        left, top, right, bottom = font.getbbox(text)
        canvas = Image.new("L", (int(right - left) + 2, int(bottom - top) + 2))
        ImageDraw.Draw(canvas).text((1 - left, 1 - top), text, fill=255, font=font)
        mask = np.asarray(canvas)
    rows, columns = image.shape[0] - mask.shape[0] - 6, image.shape[1] - mask.shape[1] - 6
    if rows < 6 or columns < 6:
        return None
    place = int(rng.integers(5))
    y, x = ((6, 6), (6, columns), (rows, 6), (rows, columns), (rows // 2, columns // 2))[place]
    where = image[y : y + mask.shape[0], x : x + mask.shape[1]]
    around = float(np.median(where))
    colour = np.array(INKS[ink](around), dtype=np.float64)
    if np.abs(colour - around).max() < 15:  # black on black, which nobody can read
        return None
    alpha = mask[:, :, None] / 255
    out = image.copy()
    out[y : y + mask.shape[0], x : x + mask.shape[1]] = (where * (1 - alpha) + colour * alpha).round().astype(np.uint8)
    return out


def table(images: list[np.ndarray], sees: Callable[[np.ndarray], bool], seed: int = 0) -> None:
    """Print the share of pictures whose words are missed, with one row per ink and one column per height."""
    print(f"| ink | {' | '.join(f'{height} px' for height in HEIGHTS)} |")
    print(f"|---|{'---|' * len(HEIGHTS)}")
    for ink in INKS:
        cells = []
        for height in HEIGHTS:
            rng = np.random.default_rng((seed, height, list(INKS).index(ink)))
            there = [one for image in images if (one := drawn(image, height, ink, rng)) is not None]
            missed = sum(not sees(one) for one in there)
            cells.append(f"{missed} of {len(there)}" if there else "-")
        print(f"| {ink} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=60)
    parser.add_argument("--busi", type=Path, help="folder of BUSI, to use its images in which has_text finds no words")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = write_phantom(PhantomSpec(n=given.images, size=512, seed=11), Path(folder) / "phantom")
        sets = {"phantoms": [read_image(root / path) for path in pd.read_csv(root / "phantom.csv").path]}
    if given.busi is not None:
        paths = sorted(path for path in given.busi.rglob("*.png") if "_mask" not in path.name)
        busi: list[np.ndarray] = []
        for path in np.random.default_rng(0).permutation(np.array(paths, dtype=object)):
            if len(busi) < given.images and not has_text(image := read_image(path)):
                busi.append(image)
        sets["BUSI"] = busi
    for title, images in sets.items():
        for sees in (has_text, may_show_words):
            alarms = sum(map(sees, images))
            print(f"\n{title}, {sees.__name__}: missed; false alarms without words {alarms} of {len(images)}\n")
            table(images, sees)


if __name__ == "__main__":
    main()
