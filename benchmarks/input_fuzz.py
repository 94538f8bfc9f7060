"""Hostile values in YAML files, cells in tables, and bytes in caches, each given to a command.

    python -m benchmarks.input_fuzz [--part yaml tables caches] [--n 150] [--seed 0] [--only "cv --folds"]

Healthy files come from a small world of phantoms (``benchmarks.run_fuzz``). Each case damages one of them:

- **yaml**: one value of recipes, studies, cards, pins, answers and configurations of the node becomes one of another
  type, size, depth or place; or the whole text is damaged (bombs of anchors, NULs, encodings, keys twice, tabs).
- **tables**: cells, columns, rows, quotes and encodings of CSV, Excel and Parquet files that a user names.
- **caches**: files of the user's cache folder are cut, exchanged, forged, replaced by special files before the command
  or while it runs. The command must give what it gives with an empty cache.

The checks are those of ``benchmarks.hostile``. The exit code is 1 if a case is bad.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml

from benchmarks import list_fuzz
from benchmarks.file_fuzz import PLACES, TINY, Limits, Place, make, run_case
from benchmarks.hostile import (
    SPECIAL_FILES,
    Ended,
    Rng,
    changes,
    put_special,
    run_apart,
    run_command,
    show_bad,
    snapshot,
    tell,
)
from benchmarks.run_fuzz import CELLS, Raw, World, csv_cell, import_everything, json_value, parquet_column, whole_text

ROOT = Path(__file__).parents[1]
PARTS = ("yaml", "tables", "caches")
YAML_VALUES = (
    *(Raw("0x" + "f" * 5000), Raw("1:1:1"), Raw("2001-01-01"), Raw("2001-99-99"), Raw("!!binary x"), Raw("!!set {a}")),
    *(
        Raw("!!python/object/apply:os.system [id]"),
        Raw("*nowhere"),
        Raw("&a [*a]"),
        Raw(".nan"),
        Raw("-.inf"),
        Raw("~"),
    ),
    *("\u202e\u2066\ufeff", "\ud800", "a/../../b", "~/x", "$HOME/x", "-", "--help", "%s{0}", "a\nb", " ", "1e-400"),
    *("A" * 5_000, "A/" * 3_000, "9" * 500, "%s.yaml" % ("A" * 300), list(range(10_000))),
)
"""Values that only YAML has, or that are hostile where a text is a path, an option or a format."""


def yaml_text(content: str, rng: Rng) -> tuple[bytes, str]:
    """Damage the whole text of a YAML file."""
    lines = content.splitlines()
    bombs = {name: write for name, (kind, write) in list_fuzz.attacks().items() if kind == "recipe"}
    plain = content.encode()
    options: dict[str, bytes] = {
        "keys twice": plain + b"\n" + plain,
        "two documents": plain + b"\n---\n" + plain,
        "tabs": plain.replace(b"  ", b"\t"),
        "NUL inside": plain.replace(b":", b":\0", 1),
        "utf-16": content.encode("utf-16"),
        "latin-1": plain.replace(b"a", b"\xe4", 5),
        "BOM": b"\xef\xbb\xbf" + plain,
        "line ends of old Macs": plain.replace(b"\n", b"\r"),
        "controls": plain.replace(b":", b":\x1b[2J\x07", 3),
        "a line of a million": plain + b"\nx: " + b"y" * 1_000_000,
        "a key of a million": plain + b"\n" + b"y" * 1_000_000 + b": x",
        "a key that is a list": plain + b"\n? [a, b]\n: c\n",
        "a merge of a number": plain + b"\n<<: 3\n",
        "cut": plain[: int(rng.integers(len(plain)))],
        "lines in another order": "\n".join(np.array(lines)[rng.permutation(len(lines))]).encode(),
    }
    name = [*options, *bombs][rng.integers(len(options) + len(bombs))]
    if name in options:
        return options[name], name
    with tempfile.TemporaryDirectory() as folder:
        return bombs[name](Path(folder)).read_bytes(), name


@dataclass(frozen=True)
class Healthy:
    """A healthy file: its content, and the command that reads it."""

    content: Callable[[World], Any]
    """Mapping for YAML, table for CSV, Excel and Parquet."""
    command: Callable[[World, Path, Path], list[str]]


def _yaml(path: str) -> Callable[[World], Any]:
    return lambda w: yaml.safe_load((ROOT / path).read_text().split("\n---")[0].removeprefix("---"))


def _config(w: World) -> Any:
    return json.loads((w.run / "run.json").read_text())["config"]


def _place(name: str) -> Callable[[World, Path, Path], list[str]]:
    return PLACES[name].command


def _node(w: World) -> Any:
    told = _yaml("deploy/node.yaml")(w)
    told["folder"], told["models"]["main"]["path"] = "node", str(w.run)
    return told


YAML: dict[str, tuple[str, Healthy]] = {
    "cv --recipe": ("r.yaml", Healthy(_config, _place("cv --recipe"))),
    "cv --dataset CARD": ("own.md", Healthy(_yaml("data_cards/busi.md"), _place("cv --dataset CARD"))),
    "data info CARD": ("own.md", Healthy(_yaml("data_cards/bus_uclm.md"), _place("data info CARD"))),
    "pretrain --recipe": (
        "r.yaml",
        Healthy(
            _yaml("configs/pretrain/mae_phantom.yaml"),
            lambda w, f, out: [
                *("pretrain", "--recipe", str(f), "--source", "folder", "--path", str(w.data)),
                *("--device", "cpu", "--set", "train.batch_size=4", "--set", "train.steps=1", "--out", str(out)),
            ],
        ),
    ),
    "transfer --recipe": ("r.yaml", Healthy(_yaml("configs/transfer/vit.yaml"), _place("transfer --recipe"))),
    "study FILE": ("s.yaml", Healthy(_yaml("configs/studies/gheflati2022_table1.yaml"), _place("study FILE"))),
    "study FILE of sizes": (
        "s.yaml",
        Healthy(_yaml("configs/studies/dosovitskiy2021_figure3.yaml"), _place("study FILE")),
    ),
    "node doctor": ("node.yaml", Healthy(_node, _place("node doctor"))),
    "node status": ("node.yaml", Healthy(_node, _place("node status"))),
    "report --answers": (
        "a.yaml",
        Healthy(
            lambda w: {"summary": "s", "limits": ["a"], "watts": 100, "watts_source": "x", "claim_2024": {"1": "a"}},
            _place("report --answers"),
        ),
    ),
}
"""Name -> (file, what it holds and which command reads it)."""


def damage_yaml(path: Path, healthy: Any, rng: Rng) -> str:
    """Write a damaged YAML file, or a card with a damaged header; return what is wrong."""
    if rng.random() < 0.25:
        raw, what = yaml_text(yaml.safe_dump(healthy, sort_keys=False), rng)
    else:
        path.write_text(json.dumps(healthy, default=str))
        what = "; ".join(json_value(path, rng, YAML_VALUES) for _ in range(rng.choice([1, 1, 2])) if _is_json(path))
        raw = path.read_bytes()
    path.write_bytes(b"---\n" + raw + b"\n---\n\n# Card\n" if path.suffix == ".md" else raw)
    return what


def _is_json(path: Path) -> bool:
    try:
        return bool(json.loads(path.read_text()))
    except (ValueError, RecursionError):
        return False


# Tables


def _table(name: str) -> Callable[[World], pd.DataFrame]:
    def read(w: World) -> pd.DataFrame:
        path = w.root / name
        return pd.read_parquet(path) if path.suffix == ".parquet" else pd.read_csv(path, dtype=str)

    return read


def _frame(**columns: list[str]) -> Callable[[World], pd.DataFrame]:
    return lambda w: pd.DataFrame(columns)


def _shapes(w: World) -> pd.DataFrame:
    grid = [(width, depth, flops) for width in (64, 128, 256) for depth in (2, 4, 8) for flops in (1.0, 10.0, 100.0)]
    rows = [(width, depth, 4 * width, flops, 1 / width + 1 / depth + flops**-0.1) for width, depth, flops in grid]
    return pd.DataFrame(rows, columns=["width", "depth", "mlp", "gflops", "loss"])


_KEEP = _frame(dataset=["phantom"] * 2, image_id=["phantom-00000", "phantom-00001"])
TABLES: dict[str, tuple[str, Callable[[World], pd.DataFrame]]] = {
    "cv --keep-list": ("keep.csv", _KEEP),
    "data split --keep-list": ("keep.csv", _KEEP),
    "cv --folds": ("folds.csv", _table("run/folds.csv")),
    "cv --manifest": ("m.parquet", _table("run/manifest.parquet")),
    "cv, table of the data set": ("phantom.csv", _table("data/phantom.csv")),
    "data split --manifest": ("m.parquet", _table("run/manifest.parquet")),
    "pretrain source.coarse": (
        "coarse.csv",
        lambda w: pd.DataFrame({"class": ["benign", "malignant", "normal"], "coarse": ["x", "y", "y"]}),
    ),
    "shape fit TABLE": ("t.csv", _shapes),
    "evaluate TABLE": ("t.csv", _table("run/predictions.csv")),
    "evaluate TABLE.parquet": ("t.parquet", _table("run/predictions.csv")),
    "evaluate --manifest": ("m.parquet", _table("run/manifest.parquet")),
    "evaluate --labels .csv": ("l.csv", _table("labels.csv")),
    "evaluate --labels .xlsx": ("l.xlsx", _table("labels.csv")),
    "evaluate --labels .parquet": ("l.parquet", _table("labels.csv")),
    "recalibrate --labels .csv": ("l.csv", _table("labels.csv")),
    "compare RUN TABLE": ("t.csv", _table("run/predictions.csv")),
    "plan validation --like": ("t.csv", _table("run/predictions.csv")),
    "score --input LIST.csv": ("l.csv", _frame(path=["a.png", "b.png"], patient_id=["p", "q"])),
    "score --input LIST.xlsx": ("l.xlsx", _frame(path=["a.png", "b.png"], patient_id=["p", "q"])),
    "score --link": ("link.csv", _frame(item_id=["a"], name=["b"], path=["c"])),
    "dicom send --record": (
        "sent.csv",
        _frame(
            file=["a"], sha256=["0" * 64], to=["A@127.0.0.1:9"], state=["sent"], status=["0"], error=[""], time=["now"]
        ),
    ),
    "data coarse --wordnet": ("data.noun", _frame(a=["00001740 03 n 01 entity 0 003 ~ 00001930 n 0000 | that which"])),
}
"""Place of ``file_fuzz`` -> (file, healthy table)."""


def csv_text(path: Path, rng: Rng) -> str:
    """Damage the whole text of a CSV file: its encoding, separators, line ends, header, quotes or width."""
    text = path.read_text()
    head, _, rest = text.partition("\n")
    options = {
        "utf-16": text.encode("utf-16"),
        "utf-16 without a mark": text.encode("utf-16-le"),
        "mixed encodings": text.replace("a", "ä").encode() + text.replace("a", "ä").encode("latin-1"),
        "BOM twice": b"\xef\xbb\xbf\xef\xbb\xbf" + text.encode(),
        "semicolons": text.replace(",", ";").encode(),
        "tabs": text.replace(",", "\t").encode(),
        "line ends of old Macs": text.replace("\n", "\r").encode(),
        "names twice": f"{head},{head}\n{rest}".encode(),
        "no header": rest.encode(),
        "header alone": f"{head}\n".encode(),
        "header of the last column": (text.replace("\n", ",x\n", 1)).encode(),
        "rows too long": text.replace("\n", ",1,2\n").replace(f"{head},1,2", head).encode(),
        "a million columns": ("a," * 1_000_000 + "\n" + "1," * 1_000_000).encode(),
        "a column of a million names": f"{head},{'x' * 1_000_000}\n{rest}".encode(),
        "a quote that never ends": f'{head}\n"{rest}'.encode(),
        "quotes inside": text.replace(",", '",', 7).encode(),
        "NULs": text.replace(",", ",\0", 3).encode(),
        "NULs at the end": text.encode() + bytes(10_000),
        "half a line": text.encode()[: -max(2, len(rest) // 7)],
        "empty lines": text.replace("\n", "\n\n\n").encode(),
        "formulas": text.replace("\n", "\n=cmd|' /C calc'!A0").encode(),
        "controls": text.replace("\n", "\n\x1b[2J\u202e").encode(),
    }
    name = list(options)[rng.integers(len(options))]
    path.write_bytes(options[name])
    return name


def excel(path: Path, table: pd.DataFrame, rng: Rng) -> str:
    """Write an Excel file with hostile cells, or one of the hostile files of ``list_fuzz``."""
    import openpyxl

    books = [(name, write) for name, (kind, write) in list_fuzz.attacks().items() if kind == "xlsx"]
    if rng.random() < 0.3:
        name, write = books[rng.integers(len(books))]
        os.replace(write(path.parent), path)
        return name
    values = [
        *CELLS[:8],
        "=1+1",
        '=HYPERLINK("file:///etc/passwd")',
        "#N/A",
        True,
        10**300,
        -1.5,
        1e308,
        pd.Timestamp(0),
    ]
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    for cells in [list(table.columns), *table.to_numpy().tolist()]:
        sheet.append(cells)
    kind = rng.integers(5)
    row, column = (int(rng.integers(1, most + 1)) for most in (min(sheet.max_row, 5), sheet.max_column))
    value = values[rng.integers(len(values))]
    if kind == 4:
        sheet.merge_cells(start_row=1, start_column=1, end_row=sheet.max_row, end_column=1)
    for one in range(row, sheet.max_row + 1) if kind == 3 else [row] * int(kind < 3):
        sheet.cell(one, column).value = value
    book.save(path)
    return f"merged cells ({row})" if kind == 4 else f"cell {row},{column} = {str(value)[:30]!r}"


def damage_table(path: Path, table: pd.DataFrame, rng: Rng) -> str:
    """Write a damaged table in the format of the file's name; return what is wrong."""
    if path.suffix == ".xlsx":
        return excel(path, table, rng)
    if path.suffix == ".parquet":
        table.to_parquet(path, index=False)
        return whole_text(path, rng) if rng.random() < 0.25 else parquet_column(path, rng)
    table.to_csv(path, index=False)
    chance = rng.random()
    return csv_text(path, rng) if chance < 0.45 else whole_text(path, rng) if chance < 0.55 else csv_cell(path, rng)


# Caches


@dataclass(frozen=True)
class Cache:
    """A command that uses a cache: where it is below the cache folder, and the file of its result."""

    files: str
    command: Callable[[World, Path], list[str]]
    result: str


def _data(w: World) -> list[str]:
    return ["--dataset", "phantom", "--data-root", str(w.data)]


def _shards(w: World, out: Path) -> list[str]:
    small = ("model.image_size=32", "train.batch_size=4", "train.steps=1", "mae.decoder_depth=1")
    settings = [word for one in small for word in ("--set", one)]
    source = ("--source", "shards", "--path", str(w.root / "a-000{000..001}.tar"), "--device", "cpu")
    return ["pretrain", "--recipe", "mae", "--model", "vit_ti16", *source, *settings, "--out", str(out)]


CACHES: dict[str, Cache] = {
    "examined images": Cache(
        "examined.sqlite", lambda w, out: ["data", "audit", *_data(w), "--out", str(out)], "keep.csv"
    ),
    "pixels": Cache(
        "pixels/*",
        lambda w, out: ["cv", *TINY, *_data(w), "--set", "split.folds=2", "--out", str(out)],
        "predictions.csv",
    ),
    "indexes of shards": Cache("shards/*.npz", _shards, "fold-0/model.safetensors"),
}


def damage_cache(file: Path, rng: Rng) -> str:
    """Damage a file of a cache, or put something else in its place."""
    others = [one for one in file.parent.iterdir() if one.is_file() and one != file]
    kind = rng.integers(4)
    if kind == 0:
        special = list(SPECIAL_FILES)[rng.integers(len(SPECIAL_FILES))]
        put_special(file, special)
        return special
    if kind == 1 and others:
        shutil.copyfile(others[rng.integers(len(others))], file)
        return "the content of another file"
    if kind == 2:
        data = bytearray(file.read_bytes())
        for at in rng.integers(len(data), size=int(rng.choice([1, 20, 500]))):
            data[at] ^= 1 << int(rng.integers(8))
        file.write_bytes(data)
        return "flipped bits"
    return whole_text(file, rng)


def _exchanging(file: Path, healthy: bytes, seed: int) -> Callable[[], None]:
    """Return a function that damages and mends a file until the process ends."""
    rng = np.random.default_rng(seed)

    def go() -> None:
        while True:
            for content in (healthy, healthy[: len(healthy) // 2], rng.bytes(5000), healthy[::-1]):
                file.with_name("new").write_bytes(content)
                os.replace(file.with_name("new"), file)
                time.sleep(float(rng.random()) * 0.02)

    return go


def cache_case(world: World, name: str, expected: dict[str, bytes], limits: Limits, rng: Rng) -> Ended:
    """Run a command beside a damaged copy of the warm cache; its result must be that without a cache."""
    from usvit.cli import main

    cache, place = CACHES[name], world.root / "case"
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(world.root / "warm" / name, place / "cache")
    files = sorted(path for path in (place / "cache").glob(cache.files) if path.is_file())
    file = files[rng.integers(len(files))]
    healthy, moving = file.read_bytes(), rng.random() < 0.2
    what = "exchanged all the time" if moving else damage_cache(file, rng)
    go = _exchanging(file, healthy, int(rng.integers(10**6)))
    before = snapshot(world.outside)
    os.environ["USVIT_CACHE"] = str(place / "cache")
    arguments = cache.command(world, place / "out")

    def work() -> None:
        if moving:
            threading.Thread(target=go, daemon=True).start()
        sys.argv = ["usvit", *arguments]
        main()

    ended = run_apart(work, seconds=limits.seconds, memory_gb=limits.memory, folder=place)
    result = place / "out" / cache.result
    ended.kind, ended.name = "caches", f"{name}: {file.name[:20]} {what}"
    ended.changed = changes(before, snapshot(world.outside))
    if ended.outcome == "passed" and result.read_bytes() != expected[name]:
        ended.changed.append(f"{cache.result} is another one")
    return ended


def warm_caches(world: World) -> dict[str, bytes]:
    """Fill a cache for each command, and return what the commands write."""
    import tarfile

    results = {}
    images = sorted((world.root / "new").rglob("*.png"))
    for number in range(2):
        with tarfile.open(world.root / f"a-00000{number}.tar", "w") as tar:
            for image in images[number::2]:
                tar.add(image, image.name)
    for name, cache in CACHES.items():
        os.environ["USVIT_CACHE"] = str(world.root / "warm" / name)
        ended = run_command(cache.command(world, world.root / "first" / name), seconds=600, memory_gb=20)
        found = list((world.root / "warm" / name).glob(cache.files))
        if ended.status != 0 or not found:
            raise SystemExit(f"{name}: {ended.status}, {len(found)} files\n{ended.text}")
        results[name] = (world.root / "first" / name / cache.result).read_bytes()
    return results


# The run


def run(root: Path, parts: tuple[str, ...], n: int, seed: int, limits: Limits, only: str = "") -> Iterator[Ended]:
    """Run ``n`` cases of each part one after the other; ``root`` is an empty folder."""
    os.environ.update(HOME=str(root / "home"), USVIT_CACHE=str(root / "cache"), OMP_NUM_THREADS="1")
    os.environ.update(USVIT_DATA="", HF_HUB_OFFLINE="1")
    import_everything()
    world = make(root)
    expected = warm_caches(world) if "caches" in parts else {}
    os.environ["USVIT_CACHE"] = str(root / "cache")
    known: dict[str, list[str]] = {"yaml": list(YAML), "tables": list(TABLES), "caches": list(CACHES)}
    for part in parts:
        names = [name for name in known[part] if only in name]
        for number in range(n if names else 0):
            rng = np.random.default_rng([seed, PARTS.index(part), number])
            name = names[number % len(names)]
            if part == "caches":
                yield cache_case(world, name, expected, limits, rng)
            else:
                yield _content_case(world, part, name, limits, rng)


def _content_case(world: World, part: str, name: str, limits: Limits, rng: Rng) -> Ended:
    """Run one command on a damaged YAML file or table."""
    damage: Callable[[Path, Any, Rng], str]
    if part == "yaml":
        file, healthy = YAML[name]
        content, place, damage = healthy.content(world), Place(file, healthy.command), damage_yaml
    else:
        file, table = TABLES[name]
        content, place, damage = table(world), Place(file, PLACES[name].command), damage_table
    said = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ended = run_case(world, name, place, lambda path: said.append(damage(path, content, rng)), limits)
    ended.kind, ended.name = part, f"{name}: {said[0]}"
    return ended


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--n", type=int, default=150, help="cases of each part")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a part of the name of the place")
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--memory", type=float, default=3)
    parser.add_argument("--say", action="store_true", help="print the last line of each case")
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as root:
        limits = Limits(options.seconds, options.memory)
        cases = show_bad(run(Path(root), options.part, options.n, options.seed, limits, options.only), options.say)
    tell(cases)
    print(f"{time.monotonic() - start:.0f} s")
    sys.exit(any(case.bad for case in cases))


if __name__ == "__main__":
    main()
