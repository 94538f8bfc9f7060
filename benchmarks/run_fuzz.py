"""Fuzz the commands that read runs: they get damaged, forged and booby-trapped run folders and score folders.

    python -m benchmarks.run_fuzz [--n 600] [--first 0] [--seed 0] [--timeout 10] [--only report] [--keep FOLDER]

First, a healthy cross-validation and a healthy score folder of phantoms are created. Each case copies one of them,
applies one or two mutations (JSON values of the wrong type, size or depth; damaged CSV, Parquet and weights; FIFOs,
devices or symbolic links in place of files, of temporary files and of folders; paths that lead outside), and runs one
command on the copy in a forked child process, which has limits on address space and time.

The benchmark prints the outcomes by command, and lists each traceback, each hang, each change to files outside of the
case's folders (the canary), each report that shows a picture from outside, and the largest memory. The exit code is 1
if there was any failure. It runs on Linux only.
"""

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.hostile import Ended, Rng, changes, run_command, snapshot

MEMORY_GB = 3.0
"""Address space that a case may take beyond that of the parent process, in GB."""
NET = "do not fit together"
"""Text in the message of the last safety net of ``usvit.records``. It is counted, since a precise message is better."""


# The healthy folders.


@dataclass(frozen=True)
class World:
    """Paths of one fuzz run."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def run(self) -> Path:
        return self.root / "run"

    @property
    def scores(self) -> Path:
        return self.root / "scores"

    @property
    def outside(self) -> Path:
        """Return the files that no command may change or show."""
        return self.root / "outside"


def make_world(root: Path) -> World:
    """Train on 36 phantoms for a few steps, explain, score, and create the canary."""
    from usvit.data.phantom import PhantomSpec, write_phantom

    world = World(root)
    write_phantom(PhantomSpec(n=36, seed=3, size=64), world.data, workers=1)
    tiny = ["--model", "timm:test_vit", "--weights", "scratch", "--device", "cpu", "--precision", "fp32"]
    for setting in ("model.image_size=160", "train.batch_size=8", "train.steps=2", "train.eval_every=2"):
        tiny += ["--set", setting]
    data = ["--data-root", str(world.data)]
    _must(["cv", "--dataset", "phantom", *data, *tiny, "--set", "split.folds=2", "--out", str(world.run)])
    _must(["explain", str(world.run), "--images", "1", *data])
    write_phantom(PhantomSpec(n=24, seed=4, size=64), root / "new", workers=1)
    _must(["score", "--input", str(root / "new"), "--model", str(world.run), "--fold", "0", "--out", str(world.scores)])
    outside = world.outside
    outside.mkdir()
    (outside / "profile").write_text("the user's own\n")
    shutil.copytree(world.data, outside / "pictures")
    shutil.copyfile(world.run / "metrics.json", outside / "metrics.json")
    (outside / "folder").mkdir()
    (outside / "folder" / "report.html").write_text("the user's own page\n")
    pd.read_csv(root / "new" / "phantom.csv")[["path", "label"]].to_csv(root / "labels.csv", index=False)
    return world


def _must(arguments: list[str]) -> None:
    ended = run_command(arguments, seconds=600, memory_gb=20, address_gb=None)
    if ended.bad or ended.status == 2:
        raise SystemExit(f"usvit {' '.join(arguments)} ended with {ended.status}:\n{ended.text}")


# Mutations. Each takes the folder and the generator, changes the folder, and returns a description of the change.


class Raw(str):
    """Text that is inserted into JSON without escaping."""


HOSTILE: tuple[Any, ...] = (
    *(None, True, "", "x", "nan", "../../outside/metrics.json", "/etc/passwd", "\x1b[2J\x07", "\x00", "é" * 300),
    *(-1, 0, 1, 2.5, 1e9, 10**9, 10**30, 1e308, -(2**63)),
    *([], {}, [[]], [None], {"a": {"b": []}}, ["x"] * 50_000, "A" * 1_000_000),
    *(Raw("NaN"), Raw("Infinity"), Raw("-Infinity"), Raw("1e999"), Raw("7" * 5000)),
    *(Raw("[" * 900 + "]" * 900), Raw("[" * 200_000 + "]" * 200_000), Raw('{"a":' * 5000 + "1" + "}" * 5000)),
)


def dumped(content: Any) -> str:
    """Return JSON, with ``Raw`` values inserted unchanged."""
    raws: list[str] = []

    def plain(value: Any) -> Any:
        if isinstance(value, Raw):
            raws.append(str(value))
            return f"@raw{len(raws) - 1}@"
        if isinstance(value, dict):
            return {key: plain(inner) for key, inner in value.items()}
        return [plain(inner) for inner in value] if isinstance(value, list) else value

    text = json.dumps(plain(content))
    return re.sub(r'"@raw(\d+)@"', lambda match: raws[int(match[1])], text)


def places(content: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of the values in a tree; shallow ones first, and only the first item of each list."""
    found = [path] if path else []
    if isinstance(content, dict):
        for key, inner in content.items():
            found += places(inner, (*path, key))
    elif isinstance(content, list):
        for index, inner in enumerate(content[:2]):
            found += places(inner, (*path, index))
    return found


def json_value(file: Path, rng: Rng, more: tuple[Any, ...] = ()) -> str:
    """Replace one value by one of ``HOSTILE`` or ``more``, or remove it; each depth is equally likely."""
    content = json.loads(file.read_text())
    there = places(content)
    depth = rng.choice(sorted({len(one) for one in there}))
    of_depth = [one for one in there if len(one) == depth]
    path = of_depth[rng.integers(len(of_depth))]
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    if rng.random() < 0.2:
        del inner[path[-1]]
        what = "removed"
    else:
        value = (*HOSTILE, *more)[rng.integers(len(HOSTILE) + len(more))]
        inner[path[-1]] = value
        what = f"= {str(value)[:30]!r}"
    file.write_text(dumped(content))
    return f"{file.name}:{'.'.join(map(str, path))} {what}"


AIMED: tuple[tuple[str, tuple[Any, ...], Any], ...] = (
    ("run.json", ("folds", "n"), 10**9),
    ("run.json", ("folds", "n"), 0),
    ("run.json", ("folds", "n"), -1),
    ("run.json", ("data", "classes"), [f"c{i}" for i in range(20_000)]),
    ("run.json", ("data", "datasets"), ["../../outside/x.md"]),
    ("run.json", ("name",), "A" * 2_000_000),
    ("run.json", ("results",), [{"fold": "../../outside"}]),
    ("fold-0/model.json", ("vit",), {"depth": 10**6}),
    ("fold-0/model.json", ("vit",), {"depth": 10**6, "width": 10**6}),
    ("fold-0/model.json", ("architecture",), "vit_b16"),
    ("fold-0/model.json", ("architecture",), "timm:vit_giant_patch14_dinov2"),
    ("fold-0/model.json", ("architecture",), "timm:hf_hub:someone/model"),
    ("fold-0/model.json", ("preprocessing", "image_size"), 10**9),
    ("fold-0/model.json", ("preprocessing", "image_size"), 16_000),
    ("fold-0/model.json", ("preprocessing", "std"), [0, 0, 0]),
    ("fold-0/model.json", ("classes",), [f"c{i}" for i in range(10**6)]),
    ("fold-0/model.json", ("temperature",), 1e-300),
    ("metrics.json", ("folds",), [{"fold": "../../outside"}]),
    ("metrics.json", ("folds", 0, "fold"), 10**12),
    ("metrics.json", ("classes",), ["malignant"]),
    ("metrics.json", ("confusion", "counts"), [[1]]),
    ("metrics.json", ("positive_class",), "nobody"),
    ("explain/explain.json", ("methods",), {}),
)


def aimed(folder: Path, rng: Rng) -> str:
    name, path, value = AIMED[rng.integers(len(AIMED))]
    file = folder / name
    content = json.loads(file.read_text())
    inner = content
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    file.write_text(dumped(content))
    return f"{name}:{'.'.join(map(str, path))} = {str(value)[:40]}"


def whole_text(file: Path, rng: Rng) -> str:
    """Replace the whole content of the file, or truncate it."""
    data = file.read_bytes()
    bits = bytearray(data)
    for at in rng.integers(max(len(data), 1), size=20):
        if data:
            bits[at] ^= 1 << rng.integers(8)
    options = {
        "empty": b"",
        "null": b"null",
        "list": b"[]",
        "number": b"1",
        "cut": data[: int(rng.integers(len(data) + 1))],
        "utf-16": b"\xff\xfe" + data[:200],
        "NUL bytes": bytes(5000),
        "deep": b"[" * 1_000_000,
        "deep objects": b'{"a":' * 100_000,
        "flipped": bytes(bits),
        "twice": data + data,
        "one long line": b"a," * 2_000_000,
        "one quote": b'"' + data,
    }
    name = list(options)[rng.integers(len(options))]
    file.write_bytes(options[name])
    return f"{file.name} {name}"


def sparse(file: Path, rng: Rng) -> str:
    """Create a sparse file of gigabytes, which uses no disk space."""
    with open(file, "r+b") as opened:
        opened.truncate(int(rng.choice([2, 20, 2000])) * 10**9)
    return f"{file.name} of gigabytes"


CELLS = ("", "x", "-1", "1e9", "1e999", "nan", "inf", "9" * 400, "../../x", "/etc/passwd", "\x00", '"', "\x1b[2J", "0")


def csv_cell(file: Path, rng: Rng) -> str:
    lines = [line.split(",") for line in file.read_text().splitlines()]
    row, kind = int(rng.integers(len(lines))), rng.integers(6)
    if kind < 3:
        column = int(rng.integers(len(lines[row])))
        lines[row][column] = CELLS[rng.integers(len(CELLS))]
        what = f"cell {row},{column} = {lines[row][column][:20]!r}"
    elif kind == 3:
        column = int(rng.integers(len(lines[0])))
        cell = CELLS[rng.integers(len(CELLS))]
        lines[1:] = [[*line[:column], cell, *line[column + 1 :]] for line in lines[1:]]
        what = f"column {lines[0][column]} = {cell[:20]!r}"
    elif kind == 4:
        column = int(rng.integers(len(lines[0])))
        what = f"without column {lines[0][column]}"
        lines = [line[:column] + line[column + 1 :] for line in lines]
    else:
        lines += lines[1:] * 3
        what = "rows four times"
    file.write_text("\n".join(map(",".join, lines)) + "\n")
    return f"{file.name} {what}"


def parquet_column(file: Path, rng: Rng) -> str:
    table = pd.read_parquet(file)
    name = str(rng.choice(table.columns))
    n, kind = len(table), rng.integers(9)
    if kind == 8:  # 3 GB of text in a file of some kilobytes
        bomb = pa.DictionaryArray.from_arrays(pa.array(np.zeros(3_000_000, np.int32)), pa.array(["x" * 1000]))
        pq.write_table(pa.table(dict.fromkeys(table.columns[:4], bomb)), file, compression="zstd")
        return f"{file.name} bomb"
    if kind == 7:
        table = table.drop(columns=name)
    else:
        values: list[Any] = [*(None, "../../outside/pictures/x", 10**12, float("nan"), ["nested"], b"\xff\xfe", True)]
        table[name] = pd.Series([values[kind]] * n, index=table.index)
    table.to_parquet(file, index=False)
    return f"{file.name} column {name} kind {kind}"


def outside_pictures(folder: Path, rng: Rng) -> str:
    """Move every picture of the manifest outside of the data root, with different kinds of paths."""
    world = World(folder.parent.parent)
    file = folder / "manifest.parquet"
    table = pd.read_parquet(file)
    kind = rng.integers(2)
    start = [f"{world.outside}/pictures/", "../outside/pictures/"][kind]
    table["path"] = [f"{start}{path}" for path in table["path"]]
    table.to_parquet(file, index=False)
    return f"all pictures at {['an absolute', 'a parent'][kind]} path"


def trap(folder: Path, rng: Rng) -> str:
    """Put a symbolic link, FIFO, device or folder in place of a file or folder that is read or written."""
    outside = World(folder.parent.parent).outside
    written = [
        *("report.html", "report.md", ".lock", "figures/roc.svg", "explain/explain.json", "explain/.lock", "job.json"),
        *(".report.partial.html", ".report.partial.md", ".explain.partial.json", "scores.html", ".scores.partial.html"),
    ]
    read = [str(one.relative_to(folder)) for one in sorted(folder.rglob("*")) if one.is_file()]
    folders = ["fold-0", "figures", "explain", "audit"]
    kind = rng.integers(7)
    if kind < 2:
        name, make = str(rng.choice(written)), "link"
    elif kind == 2:
        name, make = str(rng.choice(folders)), "folder link"
    else:
        name, make = str(rng.choice(read)), ("fifo", "device", "folder", "link")[kind - 3]
    place = folder / name
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    if not place.parent.is_symlink():
        place.parent.mkdir(parents=True, exist_ok=True)
    if make == "link":
        place.symlink_to(outside / ("metrics.json" if place.name == "metrics.json" else "profile"))
    elif make == "folder link":
        place.symlink_to(outside / "folder")
    elif make == "fifo":
        os.mkfifo(place)
    elif make == "device":
        place.symlink_to("/dev/zero")
    else:
        place.mkdir()
    return f"{name} is a {make}"


def lost(folder: Path, rng: Rng) -> str:
    files = sorted(one for one in folder.rglob("*") if one.is_file())
    file = files[rng.integers(len(files))]
    file.unlink()
    return f"{file.relative_to(folder)} missing"


def any_file(folder: Path, rng: Rng) -> str:
    """Apply one mutation that suits the kind of a file."""
    files = sorted(one for one in folder.rglob("*") if one.is_file() and not one.is_symlink() and one.stat().st_size)
    by_kind: dict[str, list[Path]] = {}
    for one in files:
        by_kind.setdefault(one.suffix, []).append(one)
    suffix = str(rng.choice(["json"] * 6 + ["csv"] * 2 + ["parquet"] * 2 + ["safetensors"]))
    chosen = by_kind.get(f".{suffix}") or files
    file = chosen[rng.integers(len(chosen))]
    if rng.random() < 0.15:
        return whole_text(file, rng)
    if rng.random() < 0.03:
        return sparse(file, rng)
    ways = {".json": json_value, ".csv": csv_cell, ".parquet": parquet_column}
    try:
        return ways.get(file.suffix, whole_text)(file, rng)
    except Exception:  # an earlier mutation has made it unreadable here
        return whole_text(file, rng)


def mutate(folder: Path, rng: Rng) -> str:
    """Apply one or two mutations, and return their names."""
    special = [aimed, trap, lost] + ([outside_pictures] if (folder / "manifest.parquet").is_file() else [])
    if not (folder / "fold-0").is_dir():
        special = [trap, lost]
    said = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        way = any_file if rng.random() < 0.65 else special[rng.integers(len(special))]
        try:
            said.append(way(folder, rng))
        except (OSError, ValueError, KeyError, TypeError, IndexError):  # after another mutation
            said.append("(not possible)")
    return "; ".join(said)


# Commands that read a mutated run or a mutated score folder, with their arguments.

COMMANDS: dict[str, Callable[[World, Path, Path], list[str]]] = {
    "report": lambda w, run, out: ["report", str(run), "--data-root", str(w.data), "--include-images"],
    "report --figures": lambda w, run, out: ["report", str(run), "--figures", "svg"],
    "evaluate": lambda w, run, out: ["evaluate", str(run), "--out", str(out)],
    "compare": lambda w, run, out: ["compare", str(w.run), str(run), "--out", str(out)],
    "explain": lambda w, run, out: ["explain", str(run), "--images", "1", "--data-root", str(w.data)],
    "export": lambda w, run, out: ["models", "export", f"{run}/fold-0", "--format", "safetensors", "--out", str(out)],
    "score": lambda w, run, out: [
        *("score", "--input", str(min((w.root / "new").rglob("*.png"))), "--model", str(run), "--out", str(out)),
        *("--workers", "1", "--fold", "0"),  # one network, because the networks of some folds may have no temperature
    ],
}
SCORED: dict[str, Callable[[World, Path, Path], list[str]]] = {
    "evaluate --labels": lambda w, scores, out: [
        *("evaluate", str(scores), "--labels", str(w.root / "labels.csv"), "--out", str(out)),
    ],
    "recalibrate": lambda w, scores, out: [
        *("recalibrate", str(scores), "--labels", str(w.root / "labels.csv"), "--out", str(out / "calibration.json")),
    ],
}
SHARES = ["report"] * 6 + ["report --figures"] + ["evaluate"] * 4 + ["compare"] * 2
SHARES += ["explain"] * 2 + ["export"] * 2 + ["score"] * 2 + ["evaluate --labels"] * 2 + ["recalibrate"]


# One case.


@dataclass
class Case:
    number: int
    command: str
    mutations: str
    ended: Ended
    shown: bool
    """True if a report shows a picture from outside."""

    @property
    def outcome(self) -> str:
        return "SHOWED OUTSIDE" if self.shown and not self.ended.bad else self.ended.outcome

    @property
    def wrong(self) -> bool:
        return self.outcome.isupper()


def one_case(world: World, number: int, seed: int, only: str | None, timeout: float) -> Case:
    rng = np.random.default_rng([seed, number])
    command = only or SHARES[rng.integers(len(SHARES))]
    scored = command in SCORED
    place = world.root / "case"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    folder, out = place / "given", place / "out"
    shutil.copytree(world.scores if scored else world.run, folder)
    (folder / "report.html").unlink(missing_ok=True)
    mutations = mutate(folder, rng)
    before = snapshot(world.outside)
    arguments = (SCORED if scored else COMMANDS)[command](world, folder, out)
    ended = run_command(arguments, seconds=timeout, memory_gb=MEMORY_GB, address_gb=MEMORY_GB)
    ended.changed = changes(before, snapshot(world.outside))
    if ended.changed:  # the next case starts with an intact canary
        _restore(world)
    page = folder / "report.html"
    found = page.read_text(errors="replace") if page.is_file() and not page.is_symlink() else ""
    shown = "all pictures at" in mutations and "data:image/jpeg" in found
    return Case(number, command, mutations, ended, shown)


def _restore(world: World) -> None:
    shutil.rmtree(world.outside)
    shutil.copytree(world.root / "outside-kept", world.outside)


def run(
    n: int, seed: int, root: Path, *, first: int = 0, only: str | None = None, timeout: float = 10
) -> Iterator[Case]:
    """Run the cases ``first`` to ``first + n - 1`` one after the other; ``root`` is an empty folder."""
    os.environ["HOME"] = str(root / "home")
    os.environ.update(OMP_NUM_THREADS="1", USVIT_DATA_ROOT="", HF_HUB_OFFLINE="1")
    import_everything()
    world = make_world(root)
    shutil.copytree(world.outside, root / "outside-kept")
    for number in range(first, first + n):
        yield one_case(world, number, seed, only, timeout)


def import_everything() -> None:
    """Import once the modules that the children need."""
    import torch

    torch.set_num_threads(1)
    import usvit.cli
    import usvit.experiments.cross_validation
    import usvit.explaining.explanation
    import usvit.exporting
    import usvit.reports.comparison
    import usvit.scoring.external.evaluation
    import usvit.scoring.external.recalibration
    import usvit.scoring.job  # noqa: F401


def show(case: Case, keep: Path | None) -> None:
    """Print a failed case at once."""
    print(f"  {case.outcome} {case.number} {case.command} | {case.mutations} | {case.ended.status}")
    print(f"      {', '.join(case.ended.changed[:3]) or case.ended.last_line}", flush=True)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        (keep / f"{case.number:05d}.txt").write_text(f"{case.command}\n{case.mutations}\n{case.ended.text}")


def tell(cases: list[Case]) -> None:
    for command in sorted({case.command for case in cases}):
        counts = Counter(case.outcome for case in cases if case.command == command)
        print(f"{command:20s}" + ", ".join(f"{name} {count}" for name, count in counts.most_common()))
    total = Counter(case.outcome for case in cases)
    slowest, largest = (
        max(cases, key=lambda case: case.ended.seconds),
        max(cases, key=lambda case: case.ended.gigabytes),
    )
    print(f"{len(cases)} cases: {dict(total)}")
    print(f"caught by the last net: {sum(NET in case.ended.text for case in cases)}")
    print(f"slowest {slowest.ended.seconds:.1f} s: {slowest.number} {slowest.command} | {slowest.mutations}")
    size = f"{largest.ended.gigabytes:.2f} GB beyond the imports"
    print(f"largest {size}: {largest.number} {largest.command} | {largest.mutations}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--n", type=int, default=600)
    parser.add_argument("--first", type=int, default=0, help="number of the first case, to divide the work")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--timeout", type=float, default=10)
    parser.add_argument("--only", choices=[*COMMANDS, *SCORED])
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    start = time.monotonic()
    cases = []
    with tempfile.TemporaryDirectory() as root:
        settings = {"first": options.first, "only": options.only, "timeout": options.timeout}
        for case in run(options.n, options.seed, Path(root), **settings):
            cases.append(case)
            if case.wrong:
                show(case, options.keep)
            if len(cases) % 50 == 0:
                print(f"after {len(cases)}: {dict(Counter(one.outcome for one in cases))}", flush=True)
    tell(cases)
    print(f"{time.monotonic() - start:.0f} s")
    sys.exit(any(case.wrong for case in cases))


if __name__ == "__main__":
    main()
