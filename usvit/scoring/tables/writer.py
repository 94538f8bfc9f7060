"""Write the tables of a scored set in one pass over the rows, each file atomically and with constant memory."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from usvit.files import atomic, sha256_of_file
from usvit.records import AbstentionZone, ScoredTable, SummaryRecord, save_record
from usvit.scoring.items import COPY_COLUMNS, DESCRIPTION, FAILURE_COLUMNS, score_columns
from usvit.scoring.tables.cells import Rows, append_csv, parquet_rows, typed
from usvit.scoring.tables.rollup import RollUps, roll_ups
from usvit.scoring.tables.summary import JobFacts, Summary

_ROLL_UPS = {"files.csv": "file", "breasts.csv": "breast", "studies.csv": "study", "patients.csv": "patient"}
"""Table -> its unit. ``breasts.csv`` is written if an image states the breast that it shows."""
TABLES = ("scores.csv", "scores.parquet", "copies.parquet", "failures.csv", *_ROLL_UPS)
"""Files that ``write_tables`` writes besides ``summary.json``; docs/reference/files.md describes their columns."""


def write_tables(
    out: Path,
    scores: Iterable[Rows],
    failures: Iterable[Rows],
    job: JobFacts,
    *,
    classes: tuple[str, ...],
    positive: str,
    threshold: float | None = None,
    threshold_origin: str = "",
    abstain: bool = False,
    zone: AbstentionZone | None = None,
    sides: bool = False,
    pooled: Mapping[str, float | None] | None = None,
    lesions: bool = False,
    concepts: Sequence[str] = (),
) -> SummaryRecord:
    """Write ``TABLES`` and ``summary.json`` into a folder.

    ``summary.json`` is deleted first and written last: if it exists, all tables are complete and belong to one job. The
    same rows give the same bytes, regardless of the number of portions.

    Args:
        out: folder to write, created if missing.
        scores: portions of rows with the columns of ``score_columns``. The rows of a file must be adjacent and in the
            order of its frames. Flags are joined by ``;``; None and NaN are empty cells. Rows that are mappings may
            hold the near-duplicate description of their image (``items.DESCRIPTION``, bytes) for ``copies.parquet``.
        failures: portions of rows with ``FAILURE_COLUMNS``.
        job: what the job tells about itself.
        classes: names of the classes, in the order of the network's outputs.
        positive: the positive class.
        threshold: threshold on the calibrated probability of a single image; None: no decision is made.
        threshold_origin: description of the threshold.
        abstain: whether unusual images get no decision. They are then also left out of the figures of files, breasts,
            studies and patients.
        zone: probabilities for which no decision is made, of images and of means.
        sides: whether a row states the breast that its image shows (``score_columns``).
        pooled: id of each file, breast, study or patient -> calibrated probability that is pooled from its images
            (``ViewPooling``), None without an image; None if it is their mean or highest.
        lesions: whether the rows have the area of the lesion (``score_columns``).
        concepts: values of concepts of which the rows have scores (``score_columns``).

    Returns:
        The content of ``summary.json``.

    Raises:
        UsvitError: the disk is full or cannot be written.
        ValueError: rows are out of order, or the rows of a file are not adjacent.
    """
    (out / "summary.json").unlink(missing_ok=True)
    counted = Summary(
        classes=classes,
        positive=positive,
        threshold=threshold,
        threshold_origin=threshold_origin,
        zone=zone,
    )
    own = job.model.unit
    weights = pooled is not None and own is not None and own.pooling == "attention"
    columns = score_columns(classes, positive, sides=sides, weights=weights, lesions=lesions, concepts=concepts)
    rows: dict[str, int] = {}
    with roll_ups(positive, threshold, abstain=abstain, zone=zone, own=own, pooled=pooled) as rolled:
        with (
            atomic(out / "scores.parquet") as parquet,
            parquet_rows(parquet, columns) as add,
            atomic(out / "copies.parquet") as copies,
            parquet_rows(copies, COPY_COLUMNS) as add_copies,
        ):

            def seen_by_all() -> Iterator[pd.DataFrame]:
                for portion in scores:
                    one = typed(portion, columns)
                    add_copies(_with_descriptions(one, portion))
                    counted.add_scores(one)
                    rolled.add(one)
                    add(one)
                    yield one
                rolled.end()

            rows["scores.csv"] = rows["scores.parquet"] = rows["copies.parquet"] = _write(
                out / "scores.csv", columns, seen_by_all()
            )
        rows["failures.csv"] = _write(out / "failures.csv", FAILURE_COLUMNS, _failed(failures, counted, rolled))
        for name, unit in _ROLL_UPS.items():
            if name == "breasts.csv" and not sides:
                (out / name).unlink(missing_ok=True)
                continue
            rows[name] = _write(out / name, rolled.columns(unit), rolled.rows(unit))
        counts = rolled.counts()
    files = {name: ScoredTable(rows=rows[name], sha256=sha256_of_file(out / name)) for name in TABLES if name in rows}
    record = counted.record(job, counts, files)
    save_record(out / "summary.json", record)
    return record


def write_rows(path: Path, columns: Sequence[str], rows: Rows) -> None:
    """Write one table as CSV, with the cells that ``write_tables`` writes.

    Args:
        path: the file.
        columns: ``score_columns`` or ``FAILURE_COLUMNS``.
        rows: its rows.

    Raises:
        UsvitError: the disk is full or cannot be written.
    """
    _write(path, columns, [typed(rows, columns)])


def _with_descriptions(rows: pd.DataFrame, portion: Rows) -> pd.DataFrame:
    """Return the rows of ``copies.parquet``; the description is null for an image without one."""
    own = [None] * len(rows)
    if not isinstance(portion, pd.DataFrame):
        own = [row.get(DESCRIPTION) or None for row in portion]
    elif DESCRIPTION in portion:
        own = [one or None for one in portion[DESCRIPTION]]
    return rows[["item_id", "frame", "pixel_sha256"]].assign(**{DESCRIPTION: pd.Series(own, dtype=object)})


def _failed(portions: Iterable[Rows], counted: Summary, rolled: RollUps) -> Iterator[pd.DataFrame]:
    for portion in portions:
        rows = typed(portion, FAILURE_COLUMNS)
        counted.add_failures(rows)
        for item_id in rows["item_id"]:
            rolled.fail(item_id)
        yield rows


def _write(path: Path, columns: Sequence[str], portions: Iterable[pd.DataFrame]) -> int:
    """Write a CSV table portion by portion, and return the number of rows."""
    n_rows = 0
    with atomic(path) as file:
        append_csv(file, pd.DataFrame(columns=list(columns)), header=True)
        for portion in portions:
            append_csv(file, portion)
            n_rows += len(portion)
    return n_rows
