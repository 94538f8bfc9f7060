"""Measure which planted near-duplicates are found; each image gets one of each kind.

    PYTHONPATH=. python benchmarks/planted_copies.py --patients 240
    PYTHONPATH=. python benchmarks/planted_copies.py --patients 60 --busi DIR

The kinds are those of tests/data/near_duplicates/planting.py, and ``OTHERS``, for which nothing was tuned. The
originals are phantom patients, or images of BUSI. With BUSI, the planted images are searched among all its images, and
a pair with another near-duplicate of the original also counts as found. The benchmark prints a Markdown table.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pandas as pd

from tests.data.near_duplicates.planting import EXPORTS, KINDS, dual, fitted, squeezed_dual
from usvit.data.io.decoding import read_image, read_masks
from usvit.data.io.types import UInt8
from usvit.data.near_duplicates import clusters, describe, find_near_duplicates, find_near_duplicates_between
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.progress import NoProgress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=240, help="number of originals")
    parser.add_argument("--busi", type=Path, help="folder of BUSI; without it, phantoms of 256 px")
    args = parser.parse_args()
    images, boxes = phantoms(args.patients) if args.busi is None else busi(args.busi)
    known = [describe(image) for image in images]
    cluster = clusters(len(known), find_near_duplicates(known, NoProgress()))
    chosen = np.random.default_rng(0).permutation(len(images))[: args.patients]
    rng = np.random.default_rng(1)
    kinds: dict[str, Callable[[UInt8, np.random.Generator], UInt8]] = dict(KINDS)
    kinds |= {name: plant for name, (_, plant) in EXPORTS.items()} | OTHERS
    print("| planted | found | least similarity | wrong pairs |")
    print("|---|---|---|---|")
    for kind, plant in kinds.items():
        planted = [describe(np.ascontiguousarray(plant(images[n], rng))) for n in chosen]
        report(kind, [{cluster[n]} for n in chosen], cluster, find_near_duplicates_between(known, planted))
    partner = np.roll(chosen, 1)
    for kind, join in (("dual view: its left half", dual), ("dual view in 224 x 224: its left half", squeezed_dual)):
        planted = [describe(join(images[n], images[other])) for n, other in zip(chosen, partner, strict=True)]
        pairs = find_near_duplicates_between(known, planted)
        report(kind, [{cluster[n]} for n in chosen], cluster, pairs, also=[{cluster[n]} for n in partner])
    tiles = [[images[n] for n in np.roll(chosen, -start)[:4]] for start in range(len(chosen))]
    pairs = find_near_duplicates_between(known, [describe(mosaic(four)) for four in tiles])
    others = [{cluster[n] for n in np.roll(chosen, -start)[1:4]} for start in range(len(chosen))]
    report("mosaic of 2 x 2 in 224 x 224: its first view", [{cluster[n]} for n in chosen], cluster, pairs, also=others)
    with_lesion = [n for n, box in enumerate(boxes) if box is not None]
    chosen = np.random.default_rng(2).permutation(with_lesion)[: args.patients]
    for margin in (0.15, 0.25, 0.5, 1.0):
        parts = [lesion(images[n], boxes[n], margin) for n in chosen]
        for where, store in (("", describe), (", in 224 x 224", lambda part: describe(fitted(part, 224, 224)))):
            pairs = find_near_duplicates_between(known, [store(part) for part in parts])
            kind = f"lesion cut out with a margin of {margin:.0%}{where}"
            report(kind, [{cluster[n]} for n in chosen], cluster, pairs)
    insets(images, cluster)


def watermark(image: UInt8, share: float) -> UInt8:
    """Add three lines of large letters across the picture, brighter by a share of full brightness."""
    height, width = image.shape[:2]
    mask = np.zeros((height, width), np.uint8)
    for line in range(3):
        place, thick = (int(0.02 * width), int((0.3 + 0.3 * line) * height)), max(2, width // 80)
        cv2.putText(mask, "SAMPLE COPY", place, cv2.FONT_HERSHEY_SIMPLEX, width / 220, (255,), thick, cv2.LINE_AA)
    return np.clip(image + (share * mask)[..., None], 0, 255).astype(np.uint8)


def warped(image: UInt8, rng: np.random.Generator) -> UInt8:
    """Warp the picture smoothly by about 1 % of its width."""
    height, width = image.shape[:2]
    y, x = np.mgrid[:height, :width].astype(np.float32)
    bend = [
        0.012
        * width
        * cv2.resize(rng.normal(size=(5, 5)).astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
        for _ in "xy"
    ]
    return np.asarray(cv2.remap(image, x + bend[0], y + bend[1], cv2.INTER_LINEAR), dtype=np.uint8)


def covered(image: UInt8) -> UInt8:
    """Cover the middle ninth by a grey box."""
    height, width = image.shape[:2]
    image = image.copy()
    image[height // 3 : 2 * height // 3, width // 3 : 2 * width // 3] = 128
    return image


def shown(image: UInt8, share: float) -> UInt8:
    """Shrink the picture and place it on a screen of 1920 x 1080 pixels."""
    screen = np.full((1080, 1920, 3), 40, np.uint8)
    size = (int(image.shape[1] * share), int(image.shape[0] * share))
    screen[300 : 300 + size[1], 500 : 500 + size[0]] = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    return screen


def salted(image: UInt8, rng: np.random.Generator) -> UInt8:
    """Set 3 % of the pixels to black or white."""
    where = rng.random(image.shape[:2]) < 0.03
    image = image.copy()
    image[where] = 255 * rng.integers(0, 2, (int(where.sum()), 1))
    return image


def turned_inverted(image: UInt8) -> UInt8:
    """Invert the picture, turn it by 7 degrees, and pad it."""
    height, width = image.shape[:2]
    matrix = cv2.getRotationMatrix2D((width / 2, height / 2), 7, 1)
    turned = cv2.warpAffine(255 - image, matrix, (width, height))
    return np.asarray(cv2.copyMakeBorder(turned, 50, 50, 90, 90, cv2.BORDER_CONSTANT), dtype=np.uint8)


OTHERS: dict[str, Callable[[UInt8, np.random.Generator], UInt8]] = {
    "watermark, 1/6 of full brightness": lambda image, rng: watermark(image, 1 / 6),
    "watermark, 1/3 of full brightness": lambda image, rng: watermark(image, 1 / 3),
    "grey box over the middle ninth": lambda image, rng: covered(image),
    "bent by 1 % of the width": warped,
    "mirrored and turned by 90 degrees": lambda image, rng: np.rot90(image[:, ::-1]),
    "median of 9 x 9": lambda image, rng: np.asarray(cv2.medianBlur(image, 9), dtype=np.uint8),
    "sharpened": lambda image, rng: np.asarray(
        cv2.addWeighted(image, 2.5, cv2.GaussianBlur(image, (0, 0), 2), -1.5, 0), dtype=np.uint8
    ),
    "8 grey levels": lambda image, rng: image // 32 * 32,
    "multiplied noise, 40 %": lambda image, rng: np.clip(
        image * (1 + 0.4 * rng.normal(size=image.shape[:2])[..., None]), 0, 255
    ).astype(np.uint8),
    "3 % black and white pixels": salted,
    "gamma 0.4": lambda image, rng: (255 * (image / 255) ** 0.4).astype(np.uint8),
    "contrast trebled": lambda image, rng: np.clip(3 * (image - 76.0), 0, 255).astype(np.uint8),
    "at 0.64 of its size on a screen": lambda image, rng: shown(image, 0.64),
    "at 0.35 of its size on a screen": lambda image, rng: shown(image, 0.35),
    "32 x 32": lambda image, rng: np.asarray(cv2.resize(image, (32, 32), interpolation=cv2.INTER_AREA), dtype=np.uint8),
    "inverted, turned by 7 degrees, padded": lambda image, rng: turned_inverted(image),
}


def insets(images: list[UInt8], cluster: np.ndarray) -> None:
    """Print how many pairs of different frames are found as near-duplicates if they share a picture in a corner."""
    chosen = np.sort(np.random.default_rng(3).permutation(len(images))[:60])
    apart = len(chosen) * (len(chosen) - 1) // 2
    print("\n| the same inset in 60 images: its side, of the shorter side | wrong pairs |")
    print("|---|---|")
    for side in (0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6):
        marked = []
        for n in chosen:
            length = int(side * min(images[n].shape[:2]))
            image = images[n].copy()
            inset = cv2.resize(images[5][50:250, 100:300], (length, length))
            image[-length - 4 : -4, -length - 4 : -4] = inset
            marked.append(describe(image))
        pairs = find_near_duplicates(marked, NoProgress())
        wrong = sum(cluster[chosen[pair.first]] != cluster[chosen[pair.second]] for pair in pairs)
        print(f"| {side:.0%} | {wrong} of {apart:,} |", flush=True)


def report(kind: str, right: list[set[int]], cluster: np.ndarray, pairs: list, also: list | None = None) -> None:
    good = [pair for pair in pairs if cluster[pair.first] in right[pair.second]]
    other = [pair for pair in pairs if also is not None and cluster[pair.first] in also[pair.second]]
    found = len({pair.second for pair in good})
    least = min((pair.similarity for pair in good), default=float("nan"))
    wrong = len({(pair.first, pair.second) for pair in pairs} - {(pair.first, pair.second) for pair in [*good, *other]})
    print(f"| {kind} | {found} of {len(right)} | {least:.2f} | {wrong} |", flush=True)


Box = tuple[int, int, int, int]
"""First row, last row, first column and last column of a lesion."""


def lesion(image: UInt8, box: Box, margin: float) -> UInt8:
    """Cut a lesion out, with a margin to each side as a share of the lesion's height and width."""
    top, bottom, left, right = box
    down, across = round(margin * (bottom - top)), round(margin * (right - left))
    rows, columns = slice(max(0, top - down), bottom + down + 1), slice(max(0, left - across), right + across + 1)
    return np.ascontiguousarray(image[rows, columns])


def mosaic(four: list[UInt8]) -> UInt8:
    a, b, c, d = (fitted(image, 112, 112) for image in four)
    return np.vstack([np.hstack([a, b]), np.hstack([c, d])])


def box_of(image: UInt8, masks: list[Path]) -> Box | None:
    mask = read_masks(masks, image.shape[:2])
    rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return (rows[0], rows[-1], columns[0], columns[-1]) if len(rows) else None


def phantoms(n: int) -> tuple[list[UInt8], list[Box | None]]:
    """Return one image of each of n patients, and the box of its lesion."""
    with tempfile.TemporaryDirectory() as folder:
        root = write_phantom(PhantomSpec(n=2 * n, size=256, seed=7), Path(folder) / "phantom")
        table = pd.read_csv(root / "phantom.csv").drop_duplicates("patient_id")
        images = [read_image(root / path) for path in table.path[:n]]
        masks = [[root / name] if isinstance(name, str) else [] for name in table.mask_path[:n]]
        return images, [box_of(image, mask) for image, mask in zip(images, masks, strict=True)]


def busi(root: Path) -> tuple[list[UInt8], list[Box | None]]:
    paths = [path for path in sorted(root.glob("*/*.png")) if "_mask" not in path.name]
    images = [read_image(path) for path in paths]
    masks = [sorted(path.parent.glob(f"{path.stem}_mask*.png")) for path in paths]
    return images, [box_of(image, mask) for image, mask in zip(images, masks, strict=True)]


if __name__ == "__main__":
    main()
