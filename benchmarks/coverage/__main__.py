"""Print one table of the simulations of coverage.

    python -m benchmarks.coverage                                    # the names of the tables
    python -m benchmarks.coverage headline                           # with the default number of studies
    python -m benchmarks.coverage shares --n-studies 50 --rows 0 7   # a quick look at two rows

Study k of a row draws from generators that are seeded by k; with ``--seed S``, k counts from 1,000,000 S.
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.coverage import (
    choice,
    comparisons,
    ensembles,
    fixed,
    mrmc,
    planned,
    probability,
    readers,
    recalibration,
    repeatability,
    selective,
    shapes,
    thresholds,
    trained,
    units,
    watching,
)
from benchmarks.coverage.harness import Table

MODULES = (
    *(fixed, trained, comparisons, ensembles, choice, selective, repeatability, thresholds, probability, recalibration),
    *(planned, shapes, units, watching, readers, mrmc),
)
TABLES: dict[str, Table[Any]] = {name: table for module in MODULES for name, table in module.TABLES.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES, nargs="?")
    parser.add_argument("--n-studies", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rows", type=int, nargs="+", help="numbers of rows, from 0")
    given = parser.parse_args()
    if given.table is None:
        print("\n".join(f"{name}: {(table.study.__doc__ or '').splitlines()[0]}" for name, table in TABLES.items()))
        return
    table, start = TABLES[given.table], time.process_time()
    n = given.n_studies or table.n_studies
    warnings.filterwarnings("ignore", module="sklearn")  # networks that are stopped early
    print(f"{n} studies a row; Monte Carlo error {np.sqrt(0.95 * 0.05 / n):.4f} at 0.95 or 0.05\n")
    table.print(n, given.seed * 1_000_000, given.rows or range(len(table.rows)))
    print(f"\n{time.process_time() - start:.0f} s of CPU")


if __name__ == "__main__":
    main()
