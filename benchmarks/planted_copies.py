"""Which planted copies are found: one of each kind for each of many phantom patients.

    PYTHONPATH=. python benchmarks/planted_copies.py --patients 240

The kinds are those of tests/data/copies/planting.py. Prints a Markdown table.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from tests.data.copies.planting import KINDS
from usvit.data.copies import describe, find_copies
from usvit.data.images import read_image
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.progress import PlainProgress


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--patients", type=int, default=240)
    n = parser.parse_args().patients
    with tempfile.TemporaryDirectory() as folder:
        root = write_phantom(PhantomSpec(n=2 * n, size=256, seed=7), Path(folder) / "phantom")
        table = pd.read_csv(root / "phantom.csv").drop_duplicates("patient_id")
        originals = [read_image(root / path) for path in table.path]
    described = [describe(image) for image in originals]
    print("| planted | found | least similarity | pairs of different patients |")
    print("|---|---|---|---|")
    for kind, plant in KINDS.items():
        rng = np.random.default_rng(0)
        copies = find_copies(described + [describe(plant(image, rng)) for image in originals], PlainProgress())
        right = [copy.similarity for copy in copies if copy.second - copy.first == len(originals)]
        print(
            f"| {kind} | {len(right)} of {len(originals)} | {min(right):.2f} | {len(copies) - len(right)} |", flush=True
        )


if __name__ == "__main__":
    main()
