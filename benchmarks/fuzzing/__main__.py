"""Attack usvit, and report each traceback, hang, excess of memory, and change outside of a case's folders.

    python -m benchmarks.fuzzing                              # the names of the suites
    python -m benchmarks.fuzzing runs                         # with the default number of cases and limits
    python -m benchmarks.fuzzing tables --only "cv --folds" --n 50 --seed 1
    python -m benchmarks.fuzzing runs --first 37 --n 1 --work case-37    # one case again, whose files are kept

Case k of a suite depends on the seed and k alone. The exit code is 1 if a case is bad. It runs on Linux only.
"""

import argparse
import sys
import time
from pathlib import Path

from benchmarks.fuzzing.associations import associations
from benchmarks.fuzzing.caches import caches
from benchmarks.fuzzing.clocks import clocks
from benchmarks.fuzzing.files import files
from benchmarks.fuzzing.folders import folders
from benchmarks.fuzzing.harness import Options, Suite, run, show_bad, tell, work_folder
from benchmarks.fuzzing.images import images
from benchmarks.fuzzing.lists import lists
from benchmarks.fuzzing.peers import peers
from benchmarks.fuzzing.runs import runs
from benchmarks.fuzzing.tables import tables
from benchmarks.fuzzing.yaml_files import yaml_files

SUITES = {
    "files": Suite(files, 400),
    "lists": Suite(lists, 300),
    "runs": Suite(runs, 600),
    "yaml": Suite(yaml_files, 220),
    "tables": Suite(tables, 220),
    "caches": Suite(caches, 60),
    "images": Suite(images, 2000, seconds=5, memory_gb=2),
    # A client that waits is ended after three times as long.
    "peers": Suite(peers, 72, seconds=3.4, memory_gb=1),
    "folders": Suite(folders, 100, memory_gb=1),
    "clocks": Suite(clocks, 72, memory_gb=1),
    "associations": Suite(associations, 2000, memory_gb=0.05),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=SUITES, nargs="?")
    parser.add_argument("--n", type=int, help="number of cases")
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="text in the names of the commands that are attacked")
    parser.add_argument("--seconds", type=float, help="limit of the CPU time of a case")
    parser.add_argument("--memory", type=float, help="limit of the memory of a case in GB")
    parser.add_argument("--work", type=Path, help="new folder of the files, kept (default: a temporary folder)")
    given = parser.parse_args()
    if given.suite is None:
        for name, suite in SUITES.items():
            print(f"{name}: {(sys.modules[suite.cases.__module__].__doc__ or '').splitlines()[0]} {suite.n} cases.")
        return
    suite, start = SUITES[given.suite], time.monotonic()
    limits = {"seconds": given.seconds or suite.seconds, "memory_gb": given.memory or suite.memory_gb}
    options = Options(given.n or suite.n, given.seed, given.first, given.only, **limits)
    with work_folder(given.work) as root:
        cases = show_bad(run(suite, root, options))
    tell(cases)
    print(f"{time.monotonic() - start:.0f} s")
    sys.exit(any(case.bad for case in cases))


if __name__ == "__main__":
    main()
