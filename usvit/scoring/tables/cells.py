"""Cells of the tables of a scored set: identical bytes everywhere, and nothing that a spreadsheet would execute."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from usvit.files import guarded
from usvit.scoring.items import DESCRIPTION, FAILURE_COLUMNS, PRIVATE_COLUMNS

Rows = pd.DataFrame | Sequence[Mapping[str, Any]]
"""Rows of one table. File names that are not UTF-8 are possible in mappings only."""
DIGITS = 9
"""Significant digits of a number, enough to restore a float32 bit for bit."""
ROW_GROUP = 5_000
"""Rows of a Parquet row group. It is fixed, so that the same rows give the same bytes in portions of any size."""

_TEXT = {"item_id", "instance_id", "study_id", "patient_id", "kind", "decision", "abstained"}
_TEXT |= {
    "side",
    "breast_id",
    "threshold_origin",
    "flags",
    "pixel_sha256",
    "file_sha256",
    "model_sha256",
    "max_item_id",
    "lesion_unit",
}
_TEXT |= {*PRIVATE_COLUMNS, *FAILURE_COLUMNS} - {"frame"}
_FLAGS = {"unusual", "seen"}
_COUNTS = {"frame", "n_frames", "max_frame", "n_files", "n_used", "n_unusual", "n_seen", "n_positive", "n_studies"}
_COUNTS |= {"width", "height"}
_CONTROL = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")


def plain(text: object) -> str:
    """Return a text as it is written into the tables. Apply it to a path before comparing it with a table.

    Control characters (such as a line feed in a file name) and bytes that are not UTF-8 become escapes such as
    ``\\x0a``. Missing values become "".
    """
    if type(text) is str and text.isascii() and text.isprintable():  # fast path for nearly all texts
        return text
    if text is None or text is pd.NA or (isinstance(text, float) and math.isnan(text)):
        return ""
    visible = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", str(text))
    return visible.encode("utf-8", "backslashreplace").decode()


def digits(values: Sequence[float | None]) -> NDArray[np.float64]:
    """Return (n,) numbers rounded to ``DIGITS`` significant digits; non-finite values become NaN, an empty cell."""
    return np.array([digit(value) for value in values], dtype=np.float64)


def digit(value: float | None) -> float:
    """Round one number like ``digits``."""
    if value is None or value is pd.NA or not math.isfinite(value):
        return np.nan
    return float(f"{value:.{DIGITS}g}") + 0.0  # -0 becomes 0


def decide(value: float | None, threshold: float | None, positive: str) -> str:
    """Return ``positive`` from the threshold on, else ``not <positive>``; "" without a value or threshold.

    Both are rounded as in the tables, so that ``usvit evaluate`` reaches the same decision from the table.
    """
    shown, limit = digit(value), digit(threshold)
    if math.isnan(shown) or math.isnan(limit):
        return ""
    return positive if shown >= limit else f"not {positive}"


def typed(rows: Rows, columns: Sequence[str]) -> pd.DataFrame:
    """Return rows with these columns in this order, text converted by ``plain`` and numbers by ``digits``.

    Args:
        rows: rows of scores, failures or a roll-up; other columns are left out.
        columns: names of the columns, which determine their types; unknown names hold numbers.

    Raises:
        KeyError: a column is missing.
    """
    table = isinstance(rows, pd.DataFrame)
    own = {name: rows[name].tolist() if table else [row[name] for row in rows] for name in columns}  # type: ignore[call-overload,index]
    return pd.DataFrame({name: _typed(values, name) for name, values in own.items()}, columns=list(columns))


def _typed(values: list[Any], name: str) -> pd.Series:
    if name in _TEXT:
        return pd.Series([plain(value) for value in values], dtype=object)
    if name in _FLAGS:
        return pd.Series(pd.array([None if pd.isna(value) else bool(value) for value in values], dtype="boolean"))
    if name in _COUNTS:
        return pd.Series(pd.array([None if pd.isna(value) else int(value) for value in values], dtype="Int64"))
    return pd.Series(digits(values))


def append_csv(file: BinaryIO, rows: pd.DataFrame, *, header: bool = False) -> None:
    """Append typed rows to a CSV file, with the names of the columns if ``header`` is true."""
    texts = {name: rows[name].map(guarded) for name in rows if name in _TEXT}
    rows = rows.assign(**texts)
    file.write(rows.to_csv(index=False, header=header, lineterminator="\n").encode("utf-8"))


@contextmanager
def parquet_rows(file: BinaryIO, columns: Sequence[str]) -> Iterator[Callable[[pd.DataFrame], None]]:
    """Open a Parquet file to which typed rows are added in portions. Empty cells become null, in text columns too."""
    schema = pa.schema([(name, _arrow(name)) for name in columns])
    waiting = schema.empty_table()

    def add(rows: pd.DataFrame) -> None:
        nonlocal waiting
        columns = [
            pa.array(_nulls(rows[name]), type=schema.field(name).type, from_pandas=True) for name in schema.names
        ]
        waiting = pa.concat_tables([waiting, pa.table(columns, schema=schema)])
        while len(waiting) >= ROW_GROUP:
            writer.write_table(waiting.slice(0, ROW_GROUP))
            waiting = waiting.slice(ROW_GROUP).combine_chunks()

    with pq.ParquetWriter(file, schema) as writer:
        yield add
        if len(waiting):
            writer.write_table(waiting)


def _nulls(values: pd.Series) -> pd.Series:
    if values.name == DESCRIPTION:
        return values
    return values.where(values != "", None) if values.dtype == object else values


def _arrow(name: str) -> pa.DataType:
    if name in _TEXT:
        return pa.string()
    if name == DESCRIPTION:
        return pa.binary()
    return pa.bool_() if name in _FLAGS else pa.int64() if name in _COUNTS else pa.float64()
