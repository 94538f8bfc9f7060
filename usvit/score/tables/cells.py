"""How values stand in the tables of a scored set: the same bytes everywhere, nothing that a spreadsheet would run."""

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

from usvit.score.records import DESCRIPTION, FAILURE_COLUMNS, PRIVATE_COLUMNS

Rows = pd.DataFrame | Sequence[Mapping[str, Any]]
"""Rows of one table: names of files that are no UTF-8 stand in mappings alone, a DataFrame takes none."""
DIGITS = 9
"""Significant digits of a number: what reads a float32 back bit for bit."""
ROW_GROUP = 5_000
"""Rows of a Parquet row group, however many come at once: the same rows give the same bytes."""

_TEXT = {"item_id", "instance_id", "study_id", "patient_id", "kind", "decision", "threshold_origin", "flags"}
_TEXT |= {"pixel_sha256", "file_sha256", "model_sha256", "max_item_id"}
_TEXT |= {*PRIVATE_COLUMNS, *FAILURE_COLUMNS} - {"frame"}
_FLAGS = {"unusual", "seen"}
_COUNTS = {"frame", "n_frames", "max_frame", "n_files", "n_used", "n_unusual", "n_seen", "n_positive", "n_studies"}
_FORMULA = ("=", "+", "-", "@", "'")
_CONTROL = re.compile("[\x00-\x1f\x7f\x85\u2028\u2029]")


def plain(text: object) -> str:
    """A text as it stands in the tables; to compare a path of one's own with theirs, put it through this first.

    Control characters (a line feed in a file's name) and bytes that are no UTF-8 become ``\\x0a``; what is missing
    becomes "".
    """
    if type(text) is str and text.isascii() and text.isprintable():  # nearly all of them, in a tenth of the time
        return text
    if text is None or text is pd.NA or (isinstance(text, float) and math.isnan(text)):
        return ""
    visible = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", str(text))
    return visible.encode("utf-8", "backslashreplace").decode()


def guarded(text: str) -> str:
    """A text as it stands in a CSV file, which a spreadsheet may open.

    A spreadsheet takes a cell that begins with ``=``, ``+``, ``-`` or ``@`` for a formula and runs it. Such a text gets
    an apostrophe in front, and one that begins with an apostrophe a second, so that one may always be taken off again.
    Only what the user asked to keep (``--keep-ids``), or the name of a class, can begin so.

    Source: OWASP, "CSV Injection".
    """
    return f"'{text}" if text.startswith(_FORMULA) else text


def digits(values: Sequence[float | None]) -> NDArray[np.float64]:
    """(n,) numbers rounded to ``DIGITS`` significant digits; what is not finite becomes NaN, an empty cell."""
    return np.array([digit(value) for value in values], dtype=np.float64)


def digit(value: float | None) -> float:
    """One number as ``digits`` rounds it."""
    if value is None or value is pd.NA or not math.isfinite(value):
        return np.nan
    return float(f"{value:.{DIGITS}g}") + 0.0  # -0 becomes 0


def decide(value: float | None, threshold: float | None, positive: str) -> str:
    """``positive`` from the threshold on, else ``not <positive>``; "" where there is no value or no threshold.

    Both are compared as the tables show them, so that who decides again from the table (``usvit evaluate``) agrees.
    """
    shown, limit = digit(value), digit(threshold)
    if math.isnan(shown) or math.isnan(limit):
        return ""
    return positive if shown >= limit else f"not {positive}"


def typed(rows: Rows, columns: Sequence[str]) -> pd.DataFrame:
    """Rows as they are written: these columns in this order, text through ``plain``, numbers through ``digits``.

    Args:
        rows: of scores, failures or a roll-up; more columns are left out.
        columns: their names say what they hold; those that are not known here hold numbers.

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
    """Add typed rows to a CSV file, or begin it with the names of its columns."""
    texts = {name: rows[name].map(guarded) for name in rows if name in _TEXT}
    rows = rows.assign(**texts)
    file.write(rows.to_csv(index=False, header=header, lineterminator="\n").encode("utf-8"))


@contextmanager
def parquet_rows(file: BinaryIO, columns: Sequence[str]) -> Iterator[Callable[[pd.DataFrame], None]]:
    """A Parquet file that takes typed rows piece by piece; an empty cell is null there, text too."""
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
