"""Measure how time and peak memory of each command grow with its input, and how long ``usvit --help`` takes.

    python -m benchmarks.growth                      # about 30 minutes of CPU
    python -m benchmarks.growth --quick              # one small size: shows that the benchmark works
    python -m benchmarks.growth --only score --json growth.json

Each measurement is a process of its own with one thread of PyTorch, on generated inputs. Time is CPU time (user and
system, child processes included), which other work on the machine disturbs less than wall time. Memory is the sum over
the process and its children, sampled every 0.02 s: "held" is anonymous and shared memory, which the system
cannot take back; "resident" also counts pages of files, such as memory-mapped pixels, which it can.

The exponent p of a cost is that of a + b n^p, fitted by least squares of the logarithms (``growth_fit``): a is the
start-up. The training of ``usvit cv`` has a fixed number of steps, whatever the number of images, so that the rest of
the run shows. ``--json`` keeps the measurements, and a later call with ``--only`` replaces some of them.
"""

import argparse
import hashlib
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from benchmarks import growth_inputs as inputs
from benchmarks.growth_fit import fit_growth
from benchmarks.processes import Measured, measure

REPOSITORY = Path(__file__).resolve().parent.parent
LIMIT_GB = 16.0
CACHE_GB = 4.0
"""Default of ``input.cache_gb``: a run keeps at most this much of its pixels in memory."""
GOAL, STARTUP_GOAL = 1.1, 1.2
TEMPLATE = 100
"""Images of the run whose networks score, and whose results a study copies."""
PIXELS = 224
"""Image size of the rows about pixels; all other rows use networks of 32 px."""
BARE_APP = """import typer
app = typer.Typer()
@app.command()
def one(name: str = typer.Option("x", help="A name.")) -> None: print(name)
@app.command()
def two(name: str = typer.Option("x", help="A name.")) -> None: print(name)
app()
"""


@dataclass(frozen=True)
class AtSize(Measured):
    """The cost of a command with an input of ``n``."""

    n: int


@dataclass(frozen=True)
class Case:
    """A row of the table."""

    name: str
    unit: str
    sizes: tuple[int, ...]
    quick: int
    """The only size of ``--quick``."""
    command: Callable[["Work", int], list[str]]
    """Command line of one size; it also makes its inputs, which is not measured."""
    limit_gb: float = LIMIT_GB
    """Held memory at which the number of the last column is reached."""


class Work:
    """The folder of the inputs and outputs, which are made when they are needed first."""

    def __init__(self, folder: Path):
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        key = folder / "pseudonym.key"
        key.write_text(f"{hashlib.sha256(b'growth').hexdigest()}\n")
        key.chmod(0o600)
        names = {"OMP_NUM_THREADS": "1", "USVIT_KEY": str(key), "PYTHONPATH": str(REPOSITORY)}
        self.environment = {**os.environ, **names}
        self._pool = 0

    def images(self, n: int) -> Path:
        """Return the data set of ``n`` images."""
        folder = self.folder / f"images-{n}"
        if not folder.is_dir():
            if self._pool < n:
                inputs.make_images(self.folder / "pool", n)
                self._pool = n
            inputs.make_dataset(self.folder / "pool", folder, n)
        return folder

    def fresh(self, name: str) -> Path:
        """Return a folder that does not exist; an earlier one of this name is removed."""
        folder = self.folder / name
        shutil.rmtree(folder, ignore_errors=True)
        return folder

    def run_of(self, n: int) -> Path:
        """Return a cross-validation of ``n`` images."""
        folder = self.folder / f"cv-{n}"
        if not (folder / "report.html").is_file():
            measure(cross_validation(self, n), self.environment)
        return folder


def usvit(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "usvit", *map(str, arguments)]


def python(call: str) -> list[str]:
    """Return a call of a function of another file of this benchmark, such as ``growth_inputs.resample(50)``."""
    module = call.partition(".")[0]
    return [sys.executable, "-c", f"from pathlib import Path; from benchmarks import {module}; {call}"]


def cross_validation(work: Work, n: int) -> list[str]:
    settings = ("model.image_size=32", "train.batch_size=32", "train.steps=20", "train.eval_every=20", "split.folds=2")
    return usvit(
        *("cv", "--dataset", "table", "--data-root", work.images(n), "--out", work.fresh(f"cv-{n}")),
        *("--model", "timm:test_resnet", "--recipe", "demo", "--device", "cpu", "--precision", "fp32"),
        *(part for setting in settings for part in ("--set", setting)),
    )


def audit(work: Work, n: int) -> list[str]:
    return usvit(
        *("data", "audit", "--dataset", "table", "--data-root", work.images(n), "--out", work.fresh(f"audit-{n}"))
    )


def score(work: Work, n: int) -> list[str]:
    return usvit(
        *("score", "--model", work.run_of(TEMPLATE), "--input", work.images(n) / "images", "--workers", 1),
        *("--out", work.fresh(f"scores-{n}"), "--key", work.folder / "pseudonym.key", "--device", "cpu"),
    )


def evaluate(work: Work, n: int) -> list[str]:
    table = inputs.make_predictions(work.folder / f"predictions-{n}" / "table.csv", n)
    return usvit("evaluate", table, "--by", "device", "--out", work.fresh(f"metrics-{n}"))


def report(work: Work, n: int) -> list[str]:
    return usvit("report", work.run_of(n), "--out", work.fresh(f"report-{n}"))


def resample(work: Work, n: int) -> list[str]:
    return python(f"growth_inputs.resample({n})")


def pixels(memory_gb: float) -> Callable[[Work, int], list[str]]:
    return lambda work, n: python(
        f"growth_inputs.read_pixels(Path({str(work.images(TEMPLATE))!r}), {n}, {PIXELS}, {memory_gb})"
    )


def study(work: Work, n: int, *, again: bool = False) -> list[str]:
    file = inputs.make_study(work.folder / f"study-{n}.yaml", n)
    out, template = work.folder / f"study-{n}", work.run_of(TEMPLATE)
    if not again:
        work.fresh(out.name)
    elif not (out / "study.html").is_file():
        measure(study(work, n), work.environment)
    return python(f"growth_study.run_copied_study(Path({str(file)!r}), Path({str(out)!r}), Path({str(template)!r}))")


SMALL, LARGE, QUICK = (32, 100, 320, 1000, 3200), (100, 320, 1000, 3200, 10_000), TEMPLATE
"""Sizes over two decades, smaller ones for commands that take tens of milliseconds for each image or run. The quick
size is that of the run whose networks score, so that this run is made once."""
CASES = (
    Case("`usvit cv`, 2 folds of 20 steps", "images", SMALL, QUICK, cross_validation, LIMIT_GB - CACHE_GB),
    Case(f"pixels of a run at {PIXELS} px, in memory", "images", LARGE, QUICK, pixels(1e3)),
    Case(f"pixels of a run at {PIXELS} px, memory-mapped", "images", LARGE, QUICK, pixels(0)),
    Case("`usvit data audit`", "images", SMALL, QUICK, audit),
    Case("`usvit score`, 2 networks, 1 reader", "files", LARGE, QUICK, score),
    Case("`usvit evaluate` of a table", "rows", LARGE, QUICK, evaluate),
    Case("figures of 500 images with intervals", "resamples", (200, 640, 2000, 6400, 20_000), QUICK, resample),
    Case("`usvit report`", "images", SMALL, QUICK, report),
    Case("study: plan, copied runs, state, pages", "runs", SMALL, 8, study),
    Case("study: the same again, nothing to do", "runs", SMALL, 8, partial(study, again=True)),
)
KEYS = ("cv", "pixels", "mapped", "audit", "score", "evaluate", "resamples", "report", "study", "resume")
"""Names of ``CASES`` for ``--only``, in their order; ``startup`` is the measurement of ``usvit --help``."""


def measure_at(n: int, command: Sequence[str], environment: dict[str, str]) -> AtSize:
    return AtSize(**asdict(measure(command, environment)), n=n)


def measure_startup(work: Work, runs: int) -> dict[str, list[float]]:
    """Return the CPU times in seconds of ``usvit --help`` and of a bare typer application's ``--help``, in turns."""
    bare = work.folder / "bare.py"
    bare.write_text(BARE_APP)
    commands = {"usvit": usvit("--help"), "bare": [sys.executable, str(bare), "--help"]}
    times: dict[str, list[float]] = {name: [] for name in commands}
    for round_ in range(runs + 1):
        for name, command in commands.items():
            seconds = measure(command, work.environment).cpu
            if round_:  # the first round fills the caches of files and byte code
                times[name].append(seconds)
    return times


def table(found: dict[str, list[AtSize]], startup: dict[str, list[float]]) -> str:
    """Return the measurements as Markdown."""
    lines = [
        "| what | sizes | s CPU, smallest to largest | exponent of time (slope with start-up) | exponent of memory "
        f"| peak at the largest: held (resident), MB | held reaches {LIMIT_GB:.0f} GB at |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [row(case, found[key]) for key, case in zip(KEYS, CASES, strict=True) if key in found]
    if startup:
        ours, bare = (statistics.median(startup[name]) for name in ("usvit", "bare"))
        lines += [
            "",
            f"Start-up, CPU time, median of {len(startup['usvit'])} in turns: `usvit --help` {ours:.3f} s, a bare "
            f"typer application with `--help` {bare:.3f} s: ratio {ours / bare:.2f} (goal: at most {STARTUP_GOAL}).",
        ]
    return "\n".join(lines)


def row(case: Case, measured: list[AtSize]) -> str:
    sizes = sorted({one.n for one in measured})
    least = {n: min(one.cpu for one in measured if one.n == n) for n in sizes}
    held = {n: max(one.held for one in measured if one.n == n) for n in sizes}
    of_time, of_memory, limit = "not fitted", "not fitted", "not fitted"
    if len(sizes) > 1:
        seconds, memory = fit_growth(sizes, list(least.values())), fit_growth(sizes, list(held.values()))
        of_time, of_memory = f"{exponent(seconds.exponent)} ({seconds.slope:.2f})", exponent(memory.exponent)
        full = memory.size_at(case.limit_gb * 1e9)
        limit = "hardly grows" if full is None else f"{float(f'{full:.2g}'):,.0f} {case.unit}"
    cells = (
        case.name,
        f"{', '.join(f'{n:,}' for n in sizes)} {case.unit}",
        f"{least[sizes[0]]:.1f} to {least[sizes[-1]]:.1f}",
        of_time,
        of_memory,
        f"{held[sizes[-1]] / 1e6:,.0f} ({max(one.resident for one in measured) / 1e6:,.0f})",
        limit,
    )
    return f"| {' | '.join(cells)} |"


def exponent(value: float | None) -> str:
    if value is None:
        return "hardly grows"
    return f"{value:.2f}" if value <= GOAL else f"**{value:.2f}**"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one small size, which says nothing about growth")
    parser.add_argument("--only", nargs="+", choices=(*KEYS, "startup"), default=[*KEYS, "startup"])
    parser.add_argument("--repeats", type=int, default=2, help="measurements of all sizes but the two largest")
    parser.add_argument("--work", type=Path, help="folder of inputs and outputs, kept (default: a temporary folder)")
    parser.add_argument(
        "--json", type=Path, help="file that keeps the measurements; those of other cases are shown too"
    )
    options = parser.parse_args(arguments)
    if sys.platform != "linux":
        parser.error("the memory of processes is read from Linux's /proc")
    kept = json.loads(options.json.read_text()) if options.json and options.json.is_file() else {}
    found = {key: [AtSize(**one) for one in kept.get(key, [])] for key in KEYS if key in kept}
    startup: dict[str, list[float]] = kept.get("startup", {})
    with tempfile.TemporaryDirectory() as temporary:
        work = Work((options.work or Path(temporary)).absolute())
        for key, case in zip(KEYS, CASES, strict=True):
            if key in options.only:
                sizes = (case.quick,) if options.quick else case.sizes
                work.images(max(sizes[-1], TEMPLATE) if case.unit in ("images", "files") else TEMPLATE)
                found[key] = []
                for n in sizes:
                    for _ in range(1 if options.quick or n in sizes[-2:] else options.repeats):
                        found[key].append(measure_at(n, case.command(work, n), work.environment))
                        print(f"{key}: {found[key][-1]}", file=sys.stderr, flush=True)
                keep(options.json, found, startup)
        if "startup" in options.only:
            startup = measure_startup(work, 3 if options.quick else 15)
            keep(options.json, found, startup)
    print(table(found, startup))


def keep(path: Path | None, found: dict[str, list[AtSize]], startup: dict[str, list[float]]) -> None:
    if path is not None:
        content = {key: [asdict(one) for one in measured] for key, measured in found.items()}
        path.write_text(json.dumps({**content, "startup": startup}, indent=1) + "\n")


if __name__ == "__main__":
    main()
