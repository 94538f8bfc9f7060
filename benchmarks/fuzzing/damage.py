"""Damage to JSON, CSV and Parquet files; each function changes a file and returns a description of the change."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.fuzzing.harness import Rng


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
