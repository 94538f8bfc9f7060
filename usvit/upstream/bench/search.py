"""Search over batch sizes: the largest that fits, the fastest, or a list. Each trial is one measurement."""

from collections.abc import Callable
from dataclasses import replace

from usvit.upstream.bench.case import BenchmarkCase
from usvit.upstream.records.bench import BenchResult, Search

Measure = Callable[[BenchmarkCase], list[BenchResult]]

_FASTER = 1.01
"""Speed ratio from which a doubled batch counts as faster; smaller gains are noise."""
PATIENCE = 2
"""A sweep ends after so many doublings without a gain; a single one may be a disturbance."""


def search(kind: Search, case: BenchmarkCase, measure: Measure, *, max_batch: int) -> list[BenchResult]:
    """Measure a case with a protocol's search.

    Args:
        kind: the protocol's search.
        case: the case; its batch is the first one of the search.
        measure: runs one case.
        max_batch: the largest batch of the search.

    Returns:
        All rows; steps of the search have ``reported`` False.
    """
    if kind == "largest":
        return _largest(case, measure, max_batch)
    if kind == "fastest":
        return _fastest(case, measure, max_batch)
    if kind == "batches":
        return _batches(case, measure, max_batch)
    return measure(case)


def _largest(case: BenchmarkCase, measure: Measure, max_batch: int) -> list[BenchResult]:
    """Double or halve until one batch fits and one does not, bisect to an eighth, then measure with all repeats."""
    rows: list[BenchResult] = []
    fits, too_large, batch = 0, 0, min(case.batch, max_batch)
    while True:
        (row,) = measure(replace(case, batch=batch, repeats=1))
        if row.status not in ("ok", "out_of_memory", "timeout"):
            return [*rows, row]
        rows.append(row.model_copy(update={"reported": False}))
        fits, too_large = (batch, too_large) if row.status == "ok" else (fits, batch)
        if not fits:
            if batch == 1:
                return [*rows[:-1], row]
            batch //= 2
        elif not too_large:
            if batch == max_batch:
                break
            batch = min(2 * batch, max_batch)
        elif too_large - fits <= max(1, fits // 8):
            break
        else:
            batch = (fits + too_large) // 2
    while True:  # many repeats may need slightly more memory than one
        (row,) = measure(replace(case, batch=fits))
        if row.status == "ok" or fits == 1:
            return [*rows, row]
        rows.append(row.model_copy(update={"reported": False}))
        fits = fits * 7 // 8


def _fastest(case: BenchmarkCase, measure: Measure, max_batch: int) -> list[BenchResult]:
    rows: list[BenchResult] = []
    best, slower, batch = 0, 0, min(case.batch, max_batch)
    while batch <= max_batch and slower < PATIENCE:
        (row,) = measure(replace(case, batch=batch))
        rows.append(row.model_copy(update={"reported": False}))
        if row.images_per_second is None:
            break
        record = rows[best].images_per_second or 0.0
        slower = 0 if len(rows) == 1 or row.images_per_second > _FASTER * record else slower + 1
        if row.images_per_second > record:
            best = len(rows) - 1
        batch *= 2
    rows[best] = rows[best].model_copy(update={"reported": True})
    return rows


def _batches(case: BenchmarkCase, measure: Measure, max_batch: int) -> list[BenchResult]:
    rows: list[BenchResult] = []
    batch = case.batch
    while batch <= max_batch:
        rows += measure(replace(case, batch=batch))
        if rows[-1].status != "ok":
            break
        batch *= 2
    return rows
