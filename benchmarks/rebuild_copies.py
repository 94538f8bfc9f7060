"""Attack near-duplicate descriptions: measure how well an image can be reconstructed from its description.

    PYTHONPATH=. python benchmarks/rebuild_copies.py --busi DIR --out pictures.png

The attacker knows the format and has the images of half of the patients (whole groups of near-duplicates). There are
two attacks on the other half:

1. *Ridge regression* from a map of the landmarks (the first hash bits of each, spread on a grid) to a thumbnail.
2. *Pasting*: for each landmark, the attacker's patch with the nearest hash is placed at the landmark's position with
   its size and direction; overlapping patches are averaged.

The reconstruction is compared with the true image by the correlation of the pixels of 64 x 64 thumbnails, for local
contrast (from which the hashes are computed) and for brightness. The baselines are the mean image of the attacker's
half, and the reconstruction from another image's description. The second attack is repeated on parts of the
descriptions, with fewer bits or fewer landmarks. Then a name is drawn over the tissue of 60 images, and the landmarks
on the name that are small enough to show letters are counted, because pieces of a name could be pasted from them.

The benchmark prints Markdown tables, and draws the true images and the reconstructions side by side.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from benchmarks.planted_copies import busi
from usvit.data.io.types import UInt8
from usvit.data.near_duplicates import Description, clusters, describe, find_near_duplicates
from usvit.data.near_duplicates.description import BITS, SCALE_STEPS, normalised
from usvit.data.near_duplicates.working_image import SIDE, _grey, _textured_part, working_image
from usvit.progress import NoProgress

SMALL = 64
CELLS = 16
PATCH_SIDE = 32
Array = NDArray[np.float32]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busi", type=Path, required=True)
    parser.add_argument("--out", type=Path, help="picture file of the first eight images")
    parser.add_argument("--n", type=int, default=780, help="number of images")
    args = parser.parse_args()
    images = busi(args.busi)[0][:: max(1, 780 // args.n)]
    described = [describe(image) for image in images]
    group = clusters(len(images), find_near_duplicates(described, NoProgress()))
    owned = np.random.default_rng(0).permutation(group.max() + 1)[group] % 2 == 0
    ours, theirs = np.flatnonzero(owned), np.flatnonzero(~owned)
    work = [working_image(image).grey for image in images]
    truths = {
        "local contrast": np.array([small(normalised(image)) for image in work]),
        "brightness": np.array([small(image) for image in work]),
    }
    features = np.array([spread(one) for one in described])
    library = [(work[n], described[n]) for n in ours]
    pasted = paste(library, [described[n] for n in theirs], work, theirs)
    print("| thumbnail | attack | correlation: rebuilt | mean image | another image's |")
    print("|---|---|---|---|---|")
    pictures = {}
    for name, truth in truths.items():
        mean = truth[ours].mean(axis=0)
        for attack, rebuilt in (("regression", regress(features, truth, ours, theirs)), ("pasting", pasted)):
            pictures[name, attack] = rebuilt
            mine = [correlation(one, truth[n]) for one, n in zip(rebuilt, theirs, strict=True)]
            base = [correlation(mean, truth[n]) for n in theirs]
            other = [correlation(one, truth[n]) for one, n in zip(np.roll(rebuilt, 1, axis=0), theirs, strict=True)]
            print(
                f"| {name} | {attack} | {np.mean(mine):.2f} | {np.mean(base):.2f} | {np.mean(other):.2f} |",
                flush=True,
            )
    print("\n| parts of the descriptions | correlation of local contrast: pasted |")
    print("|---|---|")
    few = theirs[::4]
    for name, bits, every in (("all", 48, 1), ("32 bits", 32, 1), ("16 bits", 16, 1), ("half the landmarks", 48, 2)):
        reduced = [part(one, bits, every) for one in described]
        rebuilt = paste([(work[n], reduced[n]) for n in ours], [reduced[n] for n in few], work, few)
        mine = [correlation(one, truths["local contrast"][n]) for one, n in zip(rebuilt, few, strict=True)]
        print(f"| {name} | {np.mean(mine):.2f} |", flush=True)
    names(images)
    if args.out:
        rows = []
        for place in range(0, len(theirs), max(1, len(theirs) // 8)):
            cells = [truths["brightness"][theirs[place]], pictures["brightness", "regression"][place]]
            cells += [
                truths["local contrast"][theirs[place]],
                pictures["local contrast", "regression"][place],
                pasted[place],
            ]
            rows.append(np.concatenate([cv2.resize(stretched(cell), (192, 192)) for cell in cells], axis=1))
        cv2.imwrite(str(args.out), np.concatenate(rows[:8], axis=0))


def small(image: Array | UInt8) -> Array:
    return np.asarray(cv2.resize(image, (SMALL, SMALL), interpolation=cv2.INTER_AREA), dtype=np.float32)


def spread(one: Description) -> Array:
    """Return the input of the regression: hash bits, scale and direction of landmarks, summed at their positions."""
    n = len(one.hashes) - one.n_stretched
    kept, hashes = one.landmarks[:n].astype(np.float32), one.hashes[:n]
    bits = ((hashes[:, None] >> np.arange(BITS, dtype=np.uint64)) & np.uint64(1)).astype(np.float32) * 2 - 1
    turn = kept[:, 3] * 2 * np.pi / 256
    # Only the lowest bits, rotated back to the picture's axes, because a linear attacker can use these.
    values = np.stack([bits[:, 0] * np.cos(turn), bits[:, 0] * np.sin(turn), bits[:, 1] * np.cos(turn),
                       bits[:, 1] * np.sin(turn), bits[:, 2], bits[:, 3], bits[:, 4], np.ones(n)], axis=1)  # fmt: skip
    grid = np.zeros((CELLS, CELLS, values.shape[1]), np.float32)
    wide = one.landmarks[:n, :2].max(axis=0, initial=1).astype(np.float32) + 1
    at = np.minimum((kept[:, :2] / wide * CELLS).astype(int), CELLS - 1)
    np.add.at(grid, (at[:, 1], at[:, 0]), values)
    return grid.ravel()


def regress(features: Array, truth: Array, ours: NDArray[np.int64], theirs: NDArray[np.int64]) -> Array:
    x, y = features[ours], truth[ours].reshape(len(ours), -1)
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    kernel = (x - mean_x) @ (x - mean_x).T
    weights = np.linalg.solve(kernel + np.trace(kernel) / len(kernel) * np.eye(len(kernel)), y - mean_y)
    rebuilt = (features[theirs] - mean_x) @ (x - mean_x).T @ weights + mean_y
    return np.asarray(rebuilt.reshape(-1, SMALL, SMALL), dtype=np.float32)


def paste(
    library: list[tuple[UInt8, Description]], described: list[Description], work: list[UInt8], theirs: NDArray[np.int64]
) -> Array:
    """Reconstruct local contrast from the attacker's patches with the nearest hashes."""
    patches, hashes = [], []
    for image, one in library:
        normal, n = normalised(image), len(one.hashes) - one.n_stretched
        for (x, y, scale, direction), code in zip(one.landmarks[:n].astype(float), one.hashes[:n], strict=True):
            matrix = placement(x, y, scale, direction)
            patches.append(
                cv2.warpAffine(normal, matrix, (PATCH_SIDE,) * 2, flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP)
            )
            hashes.append(code)
    codes = np.array(hashes)
    rebuilt = []
    for one, n in zip(described, theirs, strict=True):
        height, width = work[n].shape  # an attacker would estimate it from the positions of the landmarks
        total, weight = np.zeros((height, width), np.float32), np.full((height, width), 1e-3, np.float32)
        window = np.outer(np.hanning(PATCH_SIDE + 2)[1:-1], np.hanning(PATCH_SIDE + 2)[1:-1]).astype(np.float32)
        for (x, y, scale, direction), code in zip(
            one.landmarks.astype(float), one.hashes[: len(one.hashes) - one.n_stretched], strict=False
        ):
            patch = patches[int(np.bitwise_count(codes ^ code).argmin())]
            matrix = placement(x, y, scale, direction)
            fine = 2 ** (-scale / SCALE_STEPS)  # small blobs show more detail than large ones
            total += fine * cv2.warpAffine(patch * window, matrix, (width, height))
            weight += fine * cv2.warpAffine(window, matrix, (width, height))
        rebuilt.append(small((total / weight).astype(np.float32)))
    return np.array(rebuilt)


def part(one: Description, bits: int, every: int) -> Description:
    """Return the lowest bits of some of the landmarks."""
    which = np.arange(0, len(one.hashes) - one.n_stretched, every)
    return replace(
        one, landmarks=one.landmarks[which], hashes=one.hashes[which] & np.uint64(2**bits - 1), n_stretched=0
    )


def names(images: list[UInt8]) -> None:
    """Print how much of a name on tissue is covered by landmarks that could show letters."""
    chosen = np.random.default_rng(0).permutation(len(images))[:60]
    print(
        "\n| name over the tissue | height of a letter, of the width | landmarks on it, mean | images with any, of 60 |"
    )
    print("|---|---|---|---|")
    for ink, size in product(INKS, (0.03, 0.05, 0.08)):
        found = [on_name(images[n], ink, size) for n in chosen]
        print(f"| {ink} | {size:.0%} | {np.mean(found):.1f} | {np.count_nonzero(found)} |", flush=True)


def on_name(image: UInt8, ink: str, size: float) -> int:
    """Return the landmarks that are centred on or near a name drawn over the image and not wider than a letter."""
    height, width = image.shape[:2]
    scale, mask = size * width / 22, np.zeros((height, width), np.uint8)
    place, thick = (int(0.2 * width), int(0.55 * height)), max(1, round(1.6 * scale))
    cv2.putText(mask, "NOVAK 1957", place, cv2.FONT_HERSHEY_SIMPLEX, scale, (255,), thick, cv2.LINE_AA)
    share = (mask / 255)[..., None]
    drawn = (image * (1 - share) + INKS[ink](image.astype(float)) * share).astype(np.uint8)
    y, x = np.nonzero(mask > 128)
    one, grey = describe(drawn), _grey(drawn)
    rows, columns = _textured_part(grey)
    work = working_image(drawn).grey.shape
    factors = np.array([work[1] / (columns.stop - columns.start), work[0] / (rows.stop - rows.start)])
    low, high = (np.array(corner) - [columns.start, rows.start] for corner in ((x.min(), y.min()), (x.max(), y.max())))
    low, high = low * factors, high * factors
    own = one.landmarks[: len(one.hashes) - one.n_stretched].astype(float)
    sigma = 2 ** (own[:, 2] / SCALE_STEPS)
    away = np.linalg.norm(np.maximum(np.maximum(low - own[:, :2], own[:, :2] - high), 0), axis=1)
    return int(((away < 2.5 * sigma) & (sigma < high[1] - low[1])).sum())


INKS: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "white": lambda image: np.full_like(image, 255),
    "yellow": lambda image: np.broadcast_to(np.array([255.0, 230, 0]), image.shape),
    "60 grey levels brighter": lambda image: np.clip(image + 60, 0, 255),
    "40 grey levels brighter": lambda image: np.clip(image + 40, 0, 255),
    "black": np.zeros_like,
}
"""Ink -> picture that is filled with this ink."""


def placement(x: float, y: float, scale: float, direction: float) -> NDArray[np.float64]:
    """Return the transform from pixels of a patch to those of the picture."""
    step = 2 ** (scale / SCALE_STEPS) * 10 / PATCH_SIDE
    turn = direction * 2 * np.pi / 256
    along, across = step * np.cos(turn), step * np.sin(turn)
    middle = (PATCH_SIDE - 1) / 2
    return np.array([[along, -across, x - (along - across) * middle], [across, along, y - (across + along) * middle]])


def correlation(a: Array, b: Array) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def stretched(image: Array) -> NDArray[np.uint8]:
    low, high = np.percentile(image, [1, 99])
    return np.asarray(np.clip((image - low) / max(high - low, 1e-6) * 255, 0, 255), dtype=np.uint8)


assert SIDE == 256  # the places of landmarks are bytes

if __name__ == "__main__":
    main()
