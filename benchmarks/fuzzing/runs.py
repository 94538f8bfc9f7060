"""Damaged, forged and booby-trapped runs and folders of scores, given to the commands that read them.

Each case copies a healthy cross-validation or folder of scores, and applies one or two mutations: JSON values of the
wrong type, size or depth; damaged CSV, Parquet and weights; FIFOs, devices or symbolic links in place of files, of
temporary files and of folders; paths that lead outside. A case is also bad if a report shows a picture from outside.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.fuzzing.child import Ended, run_command
from benchmarks.fuzzing.damage import csv_cell, dumped, json_value, parquet_column, sparse, whole_text
from benchmarks.fuzzing.harness import Options, Rng
from benchmarks.fuzzing.world import World, make_world

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

COMMANDS = {
    "report": "report {file} --data-root {data} --include-images",
    "report --figures": "report {file} --figures svg",
    "evaluate": "evaluate {file} --out {out}",
    "compare": "compare {run} {file} --out {out}",
    "explain": "explain {file} --images 1 --data-root {data}",
    "export": "models export {file}/fold-0 --format safetensors --out {out}",
    # One network, because the networks of some folds may have no temperature.
    "score": "score --input {image} --model {file} --out {out} --workers 1 --fold 0",
}
SCORED = {
    "evaluate --labels": "evaluate {file} --labels {root}/labels.csv --out {out}",
    "recalibrate": "recalibrate {file} --labels {root}/labels.csv --out {out}/calibration.json",
}
SHARES = ["report"] * 6 + ["report --figures"] + ["evaluate"] * 4 + ["compare"] * 2
SHARES += ["explain"] * 2 + ["export"] * 2 + ["score"] * 2 + ["evaluate --labels"] * 2 + ["recalibrate"]


def runs(root: Path, options: Options) -> Iterator[Ended]:
    world = make_world(root)
    shutil.copytree(world.outside, root / "outside-kept")
    shares = options.chosen(SHARES)
    for number in options.numbers:
        rng = options.rng(number)
        ended = run_on_folder(world, shares[rng.integers(len(shares))], rng, options)
        if ended.changed:  # the next case starts with intact files
            shutil.rmtree(world.outside)
            shutil.copytree(root / "outside-kept", world.outside)
        yield ended


def run_on_folder(world: World, command: str, rng: Rng, options: Options) -> Ended:
    """Run one command on a damaged copy of the run or of the scores."""
    shutil.rmtree(world.case, ignore_errors=True)
    folder = world.case / "given"
    shutil.copytree(world.scores if command in SCORED else world.run, folder)
    (folder / "report.html").unlink(missing_ok=True)
    mutations = mutate(folder, rng)
    arguments = world.arguments({**COMMANDS, **SCORED}[command], folder)
    limits = {**options.limits, "address_gb": options.memory_gb}
    ended = run_command(arguments, outside=(world.outside,), kind=command, name=mutations, **limits)
    page = folder / "report.html"
    found = page.read_text(errors="replace") if page.is_file() and not page.is_symlink() else ""
    if "all pictures at" in mutations and "data:image/jpeg" in found:
        ended.changed.append("the report shows a picture from outside")
    return ended
