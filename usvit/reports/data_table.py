"""Tables of a page that can be sorted, filtered and paged: rows as JSON, written while they are read.

``templates/scores.js`` shows a hundred rows at a time.
"""

import base64
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from markupsafe import Markup
from numpy.typing import NDArray

from usvit.files import TABLE_BYTES, regular_file

PORTION = 2_000
"""Rows in memory at once."""
DIGITS = 6
"""Significant digits on the page; the table files have more."""

_Portions = Callable[[], Iterator[pd.DataFrame]]
Thumbnail = tuple[str, int, bytes]


@dataclass(frozen=True)
class DataColumn:
    """A column of the page's table."""

    key: str
    """Name in the table of the scored set; "" for thumbnails, which are in no table."""
    title: str
    kind: str = "text"
    """``text``, ``id``, ``count``, ``number``, ``prob`` (in [0, 1], with a bar), ``decision``, ``flags`` (``unusual``
    and ``seen`` first, where the row says so) or ``picture``."""

    @property
    def numeric(self) -> bool:
        return self.kind in ("count", "number", "prob")


@dataclass
class DataTable:
    """A table of the page; its rows and thumbnails can be read only once."""

    columns: tuple[DataColumn, ...]
    portions: _Portions
    shown: NDArray[np.bool_]
    """(N,) rows of the table that are on the page."""
    sort: str | None = None
    """Key of the initial sort column (descending); None keeps the order of the rows."""
    thumbnails: Iterator[Markup] = field(default_factory=lambda: iter(()))
    """JSON of an object, number of a shown row -> JPEG in base64, in pieces."""
    n_pictured: int = 0
    """Rows that may have a thumbnail."""

    @classmethod
    def of_parquet(cls, path: Path, columns: Sequence[DataColumn], shown: NDArray[np.bool_], sort: str) -> "DataTable":
        """Create the table from some rows of a Parquet file."""
        return cls(tuple(columns), lambda: parquet_portions(path), shown, sort)

    @classmethod
    def of_csv(cls, path: Path, columns: Sequence[DataColumn], max_rows: int, sort: str | None = None) -> "DataTable":
        """Create the table from a CSV file: the first ``max_rows`` rows, or those highest in column ``sort``.

        A completely empty column is left out, unless it is the first or the sort column.
        """
        by: list[NDArray[np.float64]] = [np.empty(0)]
        filled = {columns[0].key, sort}
        for rows in _csv_portions(path):
            by.append(pd.to_numeric(rows[sort]).to_numpy(np.float64) if sort else np.zeros(len(rows)))
            filled.update(one.key for one in columns if (rows[one.key] != "").any())
        kept = tuple(one for one in columns if one.key in filled)
        return cls(kept, lambda: _csv_portions(path), highest(np.concatenate(by), max_rows), sort)

    def picture(self, first: Thumbnail, more: Iterator[Thumbnail], pictured: NDArray[np.bool_]) -> None:
        """Add a first column with thumbnails.

        Args:
            first, more: (item_id, frame, JPEG) in the order of the table's rows.
            pictured: (N,) rows that may have one.
        """
        self.columns = (DataColumn("", "Thumbnail", "picture"), *self.columns)
        self.n_pictured = int(pictured.sum())
        self.thumbnails = self._pictured(first, more, pictured)

    @property
    def n_rows(self) -> int:
        """Number of rows of the whole table."""
        return len(self.shown)

    @property
    def n_shown(self) -> int:
        """Number of rows on the page."""
        return int(self.shown.sum())

    def elements(self, name: str, caption: str, file: str, shown: Mapping[str, Any]) -> Iterator[Markup]:
        """Yield the elements of JSON that the page's script reads, in pieces: how the table is shown, and its rows.

        Args:
            name: the name of the ``ScriptTable`` in the document.
            caption: what the table shows.
            file: the file that holds all rows.
            shown: ``positive`` (the class), ``threshold`` and ``tools`` (whether rows can be filtered).
        """
        keys = [one.key for one in self.columns]
        sort = keys.index(self.sort) if self.sort else -1
        rest = ""
        if self.n_shown < self.n_rows:
            which = f"{self.n_shown:,} {'highest' if self.sort else 'first'}"
            rest = f" Of {self.n_rows:,} rows, the {which} are on this page; {file} holds all of them."
        columns = [[one.title, one.kind] for one in self.columns]
        spec = {**shown, "columns": columns, "sort": sort, "caption": caption, "rest": rest}
        parts = [("spec", iter([_escaped_json(spec)])), ("rows", self.rows())]
        parts += [("pictures", self.thumbnails)] if self.n_pictured else []
        for part, pieces in parts:
            yield Markup('<script type="application/json" id="{}-{}">').format(name, part)
            yield from pieces
            yield Markup("</script>\n")

    def rows(self) -> Iterator[Markup]:
        """Yield the JSON of an array of rows, each an array of cells, in pieces."""
        yield Markup("[")
        written, at = False, 0
        for rows in self.portions():
            own = rows[self.shown[at : at + len(rows)]]
            at += len(rows)
            if own.empty:
                continue
            cells = zip(*(_cells(own, one) for one in self.columns), strict=True)
            lines = ",\n".join(_escaped_json(row) for row in cells)
            yield Markup((",\n" if written else "\n") + lines)
            written = True
        yield Markup("\n]")

    def _pictured(self, first: Thumbnail, more: Iterator[Thumbnail], pictured: NDArray[np.bool_]) -> Iterator[Markup]:
        yield Markup("{")
        waiting: Thumbnail | None = first
        separator, at, number = "\n", 0, -1
        for rows in self.portions():
            for item_id, frame in zip(rows["item_id"].tolist(), rows["frame"].tolist(), strict=True):
                number += int(self.shown[at])
                if waiting is not None and waiting[:2] == (item_id, frame):
                    if self.shown[at] and pictured[at]:
                        yield Markup(f'{separator}"{number}":"{base64.b64encode(waiting[2]).decode()}"')
                        separator = ",\n"
                    waiting = next(more, None)
                at += 1
        yield Markup("\n}")


def highest(values: NDArray[np.float64], n: int) -> NDArray[np.bool_]:
    """Return (N,) bool, True for the ``n`` largest, the first of equal ones; NaN counts as the smallest."""
    chosen = np.zeros(len(values), dtype=bool)
    chosen[np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")[:n]] = True
    return chosen


def _escaped_json(value: Any) -> Markup:
    """Encode JSON for a script element: ASCII only, and nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def parquet_portions(path: Path) -> Iterator[pd.DataFrame]:
    """Yield a Parquet table, ``PORTION`` rows at a time."""
    with regular_file(path) as opened, pq.ParquetFile(opened) as file:
        for batch in file.iter_batches(batch_size=PORTION):
            yield batch.to_pandas()


def _csv_portions(path: Path) -> Iterator[pd.DataFrame]:
    """Yield a CSV table, ``PORTION`` rows at a time; cells are text because an id may look like a number."""
    with (
        regular_file(path, limit=TABLE_BYTES) as file,
        pd.read_csv(file, dtype=str, keep_default_na=False, chunksize=PORTION) as portions,
    ):
        yield from portions


def _cells(rows: pd.DataFrame, column: DataColumn) -> Iterator[Any]:
    if column.kind == "picture":
        return itertools.repeat(0, len(rows))  # the script puts it there
    if column.kind == "flags":
        return (_flags(*row) for row in zip(rows["unusual"], rows["seen"], rows[column.key], strict=True))
    if column.kind == "count":
        return (None if _absent(value) else int(value) for value in rows[column.key])
    if column.numeric:
        return (None if _absent(value) else float(f"{float(value):.{DIGITS}g}") for value in rows[column.key])
    return ("" if _absent(value) else str(value) for value in rows[column.key])


def _flags(unusual: object, seen: object, flags: object) -> list[str]:
    own = ["unusual"] * (unusual is True) + ["seen"] * (seen is True)
    return own if _absent(flags) else own + str(flags).split(";")


def _absent(value: object) -> bool:
    return value is None or value == "" or value is pd.NA or value != value
