"""Measure how long ``usvit cv`` takes from its start to the first training step, first without and then with its cache.

    python -m benchmarks.first_step --dataset busi --data-root DIR

Each measurement is a process of its own, which does what ``usvit cv`` does with its defaults for this data set: import,
examine the images (hash, decode, search for near-duplicates), draw the folds, decode the images, and build the network.
It ends when the first step begins. The first process has an empty cache folder; the others find what it left.
``bare`` is a process that only imports PyTorch, timm and Lightning Fabric: no training with them starts earlier.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.processes import measure

BARE = "import torch, timm, lightning_fabric, pandas"
GOAL_SECONDS = 6.0


def until_first_step(dataset: str, data_root: str, model: str, out: str) -> None:
    """Run a cross-validation until its training begins, and end the process there."""
    from usvit.experiments import cross_validate
    from usvit.progress import NoProgress

    class UntilFirstStep(NoProgress):
        def start(self, name: str, total: int, unit: str, done: int = 0) -> None:
            if unit == "steps":
                os._exit(0)

    overrides = {"folds_at_once": 1}  # a process of its own would import everything again
    cross_validate(
        dataset,
        model,
        weights="scratch",
        data_root=data_root,
        out=out,
        progress=UntilFirstStep(),
        overrides=overrides,
    )
    raise SystemExit("The cross-validation ended without a training step.")


def seconds_of(call: str, environment: dict[str, str]) -> float:
    return measure([sys.executable, "-c", call], environment).wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", default="busi")
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--model", default="vit_b32")
    parser.add_argument("--rounds", type=int, default=3, help="number of measurements with the cache")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "USVIT_CACHE": f"{folder}/cache", "PYTHONPATH": os.pathsep.join(sys.path)}
        found: dict[str, list[float]] = {"first": [], "with the cache": [], "bare": []}
        seconds_of(BARE, environment)  # fills the system's cache of files
        for round_ in range(options.rounds + 1):
            arguments = (options.dataset, str(Path(options.data_root).resolve()), options.model, f"{folder}/{round_}")
            call = f"from benchmarks.first_step import until_first_step; until_first_step(*{arguments!r})"
            found["with the cache" if round_ else "first"].append(seconds_of(call, environment))
            found["bare"].append(seconds_of(BARE, environment))
    for name, times in found.items():
        print(f"{name:15} {statistics.median(times):6.2f} s  ({', '.join(f'{one:.2f}' for one in times)})")
    print(f"goal with the cache: {GOAL_SECONDS} s")


if __name__ == "__main__":
    main()
