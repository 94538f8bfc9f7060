"""What all suites share: the cases that are chosen, an isolated environment, checks, and the summary."""

import contextlib
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fuzzing.child import Ended

Rng = np.random.Generator


@dataclass(frozen=True)
class Options:
    """Which cases of a suite are run, and the limits of each."""

    n: int
    """Number of cases."""
    seed: int = 0
    first: int = 0
    """Number of the first case. Case k of a seed is the same whatever ``n`` and ``first`` are."""
    only: str = ""
    """Text in the names of the commands or readers that are attacked."""
    seconds: float = 10
    """CPU time of a case."""
    memory_gb: float = 3
    """Resident memory of a case beyond that of the benchmark."""

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.n)

    @property
    def limits(self) -> dict[str, Any]:
        """Return the limits as arguments of ``run_apart``."""
        return {"seconds": self.seconds, "memory_gb": self.memory_gb}

    def rng(self, number: int) -> Rng:
        return np.random.default_rng([self.seed, number])

    def random(self, number: int) -> random.Random:
        return random.Random(f"{self.seed} {number}")

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Return the names that contain ``only``.

        Raises:
            SystemExit: There is none.
        """
        found = [name for name in names if self.only in name]
        if not found:
            raise SystemExit(f"no name contains {self.only!r}")
        return found


@dataclass(frozen=True)
class Suite:
    """A kind of attack."""

    cases: Callable[[Path, Options], Iterator[Ended]]
    """(empty folder, options) -> how the cases ended, one after the other."""
    n: int
    """Number of cases by default."""
    seconds: float = 10
    memory_gb: float = 3


def run(suite: Suite, root: Path, options: Options) -> Iterator[Ended]:
    """Run cases of a suite in an empty folder; the home directory and the caches of the user are not used."""
    with isolated(root):
        yield from suite.cases(root, options)


@contextlib.contextmanager
def isolated(root: Path) -> Iterator[None]:
    """Let this process and its children use a home directory and a cache in a folder, one thread and no network hub."""
    before = dict(os.environ)
    # A forked child has no threads and would wait for those of its parent.
    os.environ.update(HOME=str(root / "home"), USVIT_CACHE=str(root / "cache"), OMP_NUM_THREADS="1")
    os.environ.update(USVIT_DATA="", HF_HUB_OFFLINE="1")
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def show_bad(cases: Iterable[Ended]) -> list[Ended]:
    """Return the cases in a list; each bad one is printed as soon as it has ended."""
    found = []
    for case in cases:
        found.append(case)
        if case.bad:
            what = ", ".join(case.changed[:3]) or case.last_line
            print(f"  {case.outcome} {case.kind}: {case.name}: {what}", file=sys.stderr, flush=True)
    return found


def tell(cases: Sequence[Ended]) -> None:
    """Print the outcomes by kind, the slowest and the largest cases, and the failures."""
    for kind in dict.fromkeys(case.kind for case in cases):
        counts = Counter(case.outcome for case in cases if case.kind == kind)
        print(f"{kind:24}  " + ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    slow = sorted(cases, key=lambda case: -case.seconds)[:4]
    large = sorted(cases, key=lambda case: -case.gigabytes)[:4]
    print("slowest (CPU time): " + ", ".join(f"{one.kind}, {one.name}: {one.seconds:.1f} s" for one in slow))
    print("largest: " + ", ".join(f"{one.kind}, {one.name}: {one.gigabytes:.2f} GB" for one in large))
    total = Counter(case.outcome for case in cases)
    bad = sum(case.bad for case in cases)
    print(
        f"{len(cases)} cases, {bad} bad: " + ", ".join(f"{count} {outcome}" for outcome, count in total.most_common())
    )


@contextlib.contextmanager
def work_folder(kept: Path | None) -> Iterator[Path]:
    """Yield a new folder, or a temporary one that is removed at the end."""
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="fuzzing-") as folder:
        yield Path(folder)
