"""BI-RADS categories of readers beside a predictions table: from the manifest of a run, or from a table of the user."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from usvit.errors import UsvitError, unknown
from usvit.evaluation.birads import categories_of
from usvit.evaluation.evaluate_predictions import KEY, Predictions
from usvit.evaluation.foreign_tables import read_raw, text_of
from usvit.evaluation.tables_beside_runs import image_column, stem


def read_readers(found: Predictions, columns: Sequence[str], path: Path | None = None) -> pd.DataFrame:
    """Return the categories of all readers of the rows of a predictions table.

    Args:
        found: the predictions; their manifest has the columns, unless ``path`` is given.
        columns: one for each reader, or one for several (``4a/4b``).
        path: CSV, Excel or Parquet file with one row for each image, which is found by ``dataset`` and ``image_id``, or
            by a column of names of images, with or without folder and suffix. Images without a row have no reading.

    Returns:
        One column for each reader, with categories as ``birads.categories_of`` returns them, in the order of the rows
        of ``found.table``.

    Raises:
        UsvitError: there is no such table or column, an image has two rows, or a cell is no category.
    """
    source = found.columns if path is None else read_raw(path)
    if source is None:
        raise UsvitError(
            f"{found.name} has no manifest with the categories of readers. Name a table of its images with --manifest."
        )
    for name in columns:
        if name not in source:
            raise unknown("column of a reader", name, map(str, source.columns))
    if len(set(columns)) < len(columns):
        raise UsvitError("--readers names a column twice. Name each column once.")
    row = _rows_beside(found, source, path)
    images = found.table["image_id"].astype(str).tolist()
    readers: dict[str, np.ndarray] = {}
    for name in columns:
        cells = [*text_of(source, name), ""]  # the last one stands for an image without a row
        readers |= categories_of([cells[at] for at in row], name, images)
    return pd.DataFrame(readers, index=found.table.index)


def _rows_beside(found: Predictions, source: pd.DataFrame, path: Path | None) -> list[int]:
    """Return the row of ``source`` for each row of the predictions; -1 for an image without one."""
    where = "The manifest" if path is None else str(path)
    table = found.table
    if {*KEY} <= {*source.columns}:
        ours = list(zip(*(table[name].astype(str) for name in KEY), strict=True))
        theirs = list(zip(*(text_of(source, name) for name in KEY), strict=True))
    else:
        column = image_column(source, table, path or Path(where), found.name)
        ours = [(stem(one),) for one in table["image_id"].astype(str)]
        theirs = [(stem(one),) for one in text_of(source, column)]
        if len(set(ours)) < len(table[KEY].drop_duplicates()):
            raise UsvitError(f"{where}: several images of {found.name} have one name. Add the column dataset.")
    place = {one: at for at, one in enumerate(theirs)}
    wanted = set(ours)
    if double := [one for at, one in enumerate(theirs) if one in wanted and place[one] != at]:
        raise UsvitError(f"{where} has several rows for the image '{double[0][-1]}'. Each image needs one row at most.")
    if not wanted & place.keys():
        raise UsvitError(
            f"{where} has no row for any image of {found.name}, such as '{table['image_id'].iloc[0]}'. The columns "
            "dataset and image_id, or a column of names of images, must be those of the run (predictions.csv)."
        )
    return [place.get(one, -1) for one in ours]
