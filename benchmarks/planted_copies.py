"""Which planted copies are found: one of each kind for each of many images.

    PYTHONPATH=. python benchmarks/planted_copies.py --patients 240
    PYTHONPATH=. python benchmarks/planted_copies.py --patients 60 --busi DIR

The kinds are those of tests/data/copies/planting.py. The originals are phantom patients, or images of BUSI. With BUSI
the planted copies are looked for among all its images, and one that is found with a copy of its original is right.
Prints a Markdown table.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from tests.data.copies.planting import EXPORTS, KINDS, dual
from usvit.data.copies import clusters, describe, find_copies, find_copies_between
from usvit.data.images import UInt8, read_image
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.progress import NoProgress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=240, help="originals")
    parser.add_argument("--busi", type=Path, help="folder of BUSI; without it, phantoms of 256 px")
    args = parser.parse_args()
    images = phantoms(args.patients) if args.busi is None else busi(args.busi)
    known = [describe(image) for image in images]
    cluster = clusters(len(known), find_copies(known, NoProgress()))
    chosen = np.random.default_rng(0).permutation(len(images))[: args.patients]
    rng = np.random.default_rng(1)
    kinds: dict[str, Callable[[UInt8, np.random.Generator], UInt8]] = dict(KINDS)
    kinds |= {name: plant for name, (_, plant) in EXPORTS.items()}
    print("| planted | found | least similarity | wrong pairs |")
    print("|---|---|---|---|")
    for kind, plant in kinds.items():
        planted = [describe(np.ascontiguousarray(plant(images[n], rng))) for n in chosen]
        report(kind, [{cluster[n]} for n in chosen], cluster, find_copies_between(known, planted))
    partner = np.roll(chosen, 1)
    planted = [describe(dual(images[n], images[other])) for n, other in zip(chosen, partner, strict=True)]
    pairs = find_copies_between(known, planted)
    report(
        "dual view: its left half", [{cluster[n]} for n in chosen], cluster, pairs, also=[cluster[n] for n in partner]
    )


def report(kind: str, right: list[set[int]], cluster: np.ndarray, pairs: list, also: list | None = None) -> None:
    good = [pair for pair in pairs if cluster[pair.first] in right[pair.second]]
    other = [pair for pair in pairs if also is not None and cluster[pair.first] == also[pair.second]]
    found = len({pair.second for pair in good})
    least = min((pair.similarity for pair in good), default=float("nan"))
    wrong = len({(pair.first, pair.second) for pair in pairs} - {(pair.first, pair.second) for pair in [*good, *other]})
    print(f"| {kind} | {found} of {len(right)} | {least:.2f} | {wrong} |", flush=True)


def phantoms(n: int) -> list[UInt8]:
    """One image of each of n patients."""
    with tempfile.TemporaryDirectory() as folder:
        root = write_phantom(PhantomSpec(n=2 * n, size=256, seed=7), Path(folder) / "phantom")
        table = pd.read_csv(root / "phantom.csv").drop_duplicates("patient_id")
        return [read_image(root / path) for path in table.path[:n]]


def busi(root: Path) -> list[UInt8]:
    return [read_image(path) for path in sorted(root.glob("*/*.png")) if "_mask" not in path.name]


if __name__ == "__main__":
    main()
