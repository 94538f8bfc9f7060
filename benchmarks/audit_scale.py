"""Measure time and memory of the search for near-duplicates, as a function of the number of images.

    usvit data phantom --out p50k --n 50000 --size 128 --seed 11 --near-duplicates 0.1
    for n in 780 10000 50000; do python benchmarks/audit_scale.py --root p50k --n $n; done

The benchmark decodes and describes the images on all cores, finds the near-duplicates, and compares them with those
that the phantom planted. It prints one row of a Markdown table. Memory is the peak of the process, so each size runs in
a separate process.
"""

import argparse
import os
import resource
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

from usvit.data.io.decoding import read_image
from usvit.data.near_duplicates import Description, describe, find_near_duplicates
from usvit.data.near_duplicates.candidates import find_candidates
from usvit.progress import make_progress

HEADER = "| images | copies planted | found | other pairs of one patient | of two patients | candidates "
HEADER += "| describe (s) | find (s) | CPU (s) | peak memory (MB) |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True, help="folder of a phantom data set")
    parser.add_argument("--n", type=int, default=780, help="number of images to use; the first ones by patient")
    args = parser.parse_args()
    table = pd.read_csv(args.root / "phantom.csv", keep_default_na=False).iloc[: args.n]

    started, cpu_started = time.perf_counter(), time.process_time()
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        descriptions = list(pool.map(lambda path: describe_file(args.root / path), table.path))
    described = time.perf_counter()
    copies = find_near_duplicates(descriptions, make_progress())
    found, cpu = time.perf_counter(), time.process_time() - cpu_started
    # Linux counts in KiB, macOS in bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)

    number = {image_id: row for row, image_id in enumerate(table.image_id)}
    source = [
        number.get(original or image_id, -1)
        for original, image_id in zip(table.duplicate_of, table.image_id, strict=True)
    ]
    planted = sum(bool(original) for original in table.duplicate_of)
    pairs = {(copy.first, copy.second) for copy in copies}
    recalled = sum(
        (min(row, of), max(row, of)) in pairs for row, of in enumerate(source) if table.duplicate_of.iloc[row]
    )
    patient = table.patient_id.to_numpy()
    # Two near-duplicates of one frame are near-duplicates of each other.
    others = [(one, two) for one, two in pairs if source[one] != source[two]]
    across = sum(patient[one] != patient[two] for one, two in others)
    print(HEADER)
    print("|" + "---:|" * (HEADER.count("|") - 1))
    print(
        f"| {len(table):,} | {planted:,} | {recalled:,} | {len(others) - across:,} | {across:,} "
        f"| {len(find_candidates(descriptions)):,} | {described - started:.1f} | {found - described:.1f} "
        f"| {cpu:.1f} | {peak:,.0f} |"
    )


def describe_file(path: Path) -> Description:
    return describe(read_image(path))


if __name__ == "__main__":
    main()
