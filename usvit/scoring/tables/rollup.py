"""Roll up one row per frame to one row per file, breast, study and patient, with about 300 bytes of memory per file.

**A file counts once.** The figure of a study or patient is the mean, over its files, of each file's mean over its
frames, so that a cine loop of 200 frames weighs no more than a still image. **The decision uses this mean** and the
threshold of single images. For a maximum, that threshold would be too low, and the more so the more images a patient
has. The highest single frame and its number are given as well, so that one suspicious frame among many is found. A
model or calibration with a threshold of files, studies or patients decides these by its own pooling and threshold.
"""

import itertools
import math
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

from usvit.errors import UsvitError
from usvit.records import AbstentionZone, UnitPointRecord
from usvit.scoring.abstention import decide_or_abstain
from usvit.scoring.items import Row
from usvit.scoring.tables.cells import plain, typed

PORTION = 2_000
"""Number of rows yielded at once."""


def roll_up_columns(unit: str, positive: str, own: UnitPointRecord | None = None) -> list[str]:
    """Return the columns of the table of a ``file``, ``breast``, ``study`` or ``patient``.

    ``own`` is the threshold that decides this table, if there is one.
    """
    counts = ["n_frames", "n_used", "n_unusual", "n_seen", "n_positive"]
    figures = [f"mean_calibrated_{positive}", f"max_calibrated_{positive}"]
    figures += [own.column(positive)] if own and own.column(positive) not in figures else []
    if unit == "file":
        return [
            "item_id",
            "study_id",
            "patient_id",
            *counts,
            *figures,
            "max_frame",
            "decision",
            "abstained",
            "threshold",
        ]
    ids, more, kept = {
        "breast": (["breast_id", "patient_id"], ["n_studies", "n_files"], ["original_patient_id"]),
        "study": (["study_id", "patient_id"], ["n_files"], ["study_instance_uid", "original_patient_id"]),
        "patient": (["patient_id"], ["n_studies", "n_files"], ["original_patient_id"]),
    }[unit]
    return [*ids, *more, *counts, *figures, "max_item_id", "max_frame", "decision", "abstained", "threshold", *kept]


class _FileRollUp(NamedTuple):
    """The figures of a file, a row of the database."""

    item_id: str
    study_id: str
    patient_id: str
    breast_id: str
    study_instance_uid: str
    original_patient_id: str
    n_frames: int
    n_unusual: int
    n_seen: int
    n_used: int
    n_positive: int
    mean: float | None
    max: float | None
    max_frame: int | None


@dataclass
class _Open:
    """The file whose rows are being added."""

    ids: tuple[str, str, str, str, str, str]
    last_frame: int = -1
    n_frames: int = 0
    n_unusual: int = 0
    n_seen: int = 0
    n_positive: int = 0
    used: list[tuple[float, int]] = field(default_factory=list)
    """(calibrated probability, frame) of the frames that the figures are computed from."""

    def closed(self) -> _FileRollUp:
        highest, frame = max(self.used, key=lambda one: (one[0], -one[1]), default=(None, None))
        mean = math.fsum(value for value, _ in self.used) / len(self.used) if self.used else None
        counts = (self.n_frames, self.n_unusual, self.n_seen, len(self.used), self.n_positive)
        return _FileRollUp(*self.ids, *counts, mean, highest, frame)


class RollUps:
    """Figures of the files, breasts, studies and patients of a scored set; ``roll_ups`` creates it."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        positive: str,
        threshold: float | None,
        abstain: bool,
        zone: AbstentionZone | None = None,
        own: UnitPointRecord | None = None,
        pooled: Mapping[str, float | None] | None = None,
    ):
        self._connection = connection
        self._positive, self._threshold, self._abstain, self._zone = positive, threshold, abstain, zone
        self._own, self._pooled = own, pooled
        self._open: _Open | None = None

    def add(self, rows: pd.DataFrame) -> None:
        """Add the next typed rows of ``scores.csv``.

        Raises:
            ValueError: the rows of a file are not adjacent, or its frames are not in order.
        """
        closed: list[_FileRollUp] = []
        names = _FileRollUp._fields[:6]
        ids = zip(*(rows[name] if name in rows else itertools.repeat("", len(rows)) for name in names), strict=True)
        facts = (
            rows[name].tolist() for name in ("frame", f"calibrated_{self._positive}", "unusual", "seen", "decision")
        )
        for own, frame, value, unusual, seen, decision in zip(ids, *facts, strict=True):
            if self._open is None or self._open.ids[0] != own[0]:
                if self._open is not None:
                    closed.append(self._open.closed())
                self._open = _Open(own)
            one = self._open
            if frame <= one.last_frame:
                raise ValueError(f"Frame {frame} of item {own[0]} comes after its frame {one.last_frame}.")
            is_unusual = unusual is True
            one.last_frame = frame
            one.n_frames += 1
            one.n_unusual += is_unusual
            one.n_seen += seen is True
            one.n_positive += decision == plain(self._positive)
            if not (is_unusual and self._abstain) and not math.isnan(value):
                one.used.append((value, frame))
        self._keep(closed)

    def end(self) -> None:
        """Complete the last file, after the last row."""
        if self._open is not None:
            self._keep([self._open.closed()])
            self._open = None

    def fail(self, item_id: str) -> None:
        """Record that this file, or a frame of it, was not scored."""
        self._connection.execute("INSERT OR IGNORE INTO failed VALUES (?)", (item_id,))

    def counts(self) -> dict[str, int]:
        """Return the numbers of files (scored, failed, or both), of units above, and of files without their id."""
        one = self._connection.execute
        scored = one("SELECT count(*) FROM files").fetchone()[0]
        failed = one("SELECT count(*) FROM failed").fetchone()[0]
        both = one("SELECT count(*) FROM files JOIN failed USING (item_id)").fetchone()[0]
        found = {
            "files": scored + failed - both,
            "files_scored": scored,
            "files_failed": failed,
            "files_partly": both,
        }
        for unit, many in (("breast", "breasts"), ("study", "studies"), ("patient", "patients")):
            known = f"count(DISTINCT nullif({unit}_id, '')), coalesce(sum({unit}_id = ''), 0)"
            found[many], found[f"files_without_{unit}"] = one(f"SELECT {known} FROM files").fetchone()
        return found

    def columns(self, unit: str) -> list[str]:
        """Return ``roll_up_columns`` of this job."""
        return roll_up_columns(unit, self._positive, self._own_of(unit))

    def rows(self, unit: str) -> Iterator[pd.DataFrame]:
        """Yield one row per file in the order of the scores, or per breast, study or patient in the order of their ids.

        Files without the id of a breast, study or patient are left out of these.

        Args:
            unit: ``file``, ``breast``, ``study`` or ``patient``.

        Yields:
            Typed rows with these ``columns``.
        """
        made = self._file_rows() if unit == "file" else self._group_rows(unit)
        columns = self.columns(unit)
        while portion := list(itertools.islice(made, PORTION)):
            yield typed(portion, columns)

    def _file_rows(self) -> Iterator[Row]:
        for row in self._connection.execute(f"SELECT {', '.join(_FileRollUp._fields)} FROM files ORDER BY seq"):
            one = _FileRollUp(*row)
            yield one._asdict() | self._figures(one.mean, one.max, "file", one.item_id)

    def _group_rows(self, unit: str) -> Iterator[Row]:
        key = f"{unit}_id"
        found = self._connection.execute(
            f"SELECT {', '.join(_FileRollUp._fields)} FROM files WHERE {key} != '' ORDER BY {key}, seq"
        )
        for name, own in itertools.groupby(map(_FileRollUp._make, found), lambda one: getattr(one, key)):
            yield {key: name, **self._group(list(own), unit, name)}

    def _group(self, files: list[_FileRollUp], unit: str, name: str) -> Row:
        used = [one for one in files if one.mean is not None]
        mean = math.fsum(one.mean for one in used if one.mean is not None) / len(used) if used else None
        highest = max(used, key=lambda one: one.max or 0.0, default=None)  # the first of equals
        same = {key: {getattr(one, key) for one in files} for key in ("patient_id", *_KEPT)}
        return {
            # If the files of a study name different patients, the cell stays empty.
            **{key: values.pop() if len(values) == 1 else "" for key, values in same.items()},
            "n_studies": len({one.study_id for one in files} - {""}),
            "n_files": len(files),
            **{key: sum(getattr(one, key) for one in files) for key in _FileRollUp._fields if key.startswith("n_")},
            **self._figures(mean, highest.max if highest else None, unit, name),
            "max_item_id": highest.item_id if highest else "",
            "max_frame": highest.max_frame if highest else None,
        }

    def _own_of(self, unit: str) -> UnitPointRecord | None:
        """Return the threshold that decides a table of ``rows``, if it is not that of a single image."""
        own = self._own
        return own if own and own.decides and {"exam": "study"}.get(own.unit, own.unit) == unit else None

    def _figures(self, mean: float | None, highest: float | None, unit: str, name: str) -> Row:
        none_left = mean is None and self._abstain
        figures = {f"mean_calibrated_{self._positive}": mean, f"max_calibrated_{self._positive}": highest}
        value, threshold = mean, self._threshold
        if own := self._own_of(unit):
            if self._pooled is not None:
                figures[own.column(self._positive)] = self._pooled.get(name)
            value, threshold = figures[own.column(self._positive)], own.threshold
        decision, abstained = decide_or_abstain(value, threshold, self._positive, self._zone, refused=none_left)
        return {
            **figures,
            "decision": decision,
            "abstained": abstained,
            "threshold": threshold,
        }

    def _keep(self, files: list[_FileRollUp]) -> None:
        marks = ", ".join("?" * len(_FileRollUp._fields))
        try:
            self._connection.executemany(
                f"INSERT INTO files ({', '.join(_FileRollUp._fields)}) VALUES ({marks})", files
            )
        except sqlite3.IntegrityError as error:
            raise ValueError("The rows of a file are not consecutive.") from error


_KEPT = ("study_instance_uid", "original_patient_id")


@contextmanager
def roll_ups(
    positive: str,
    threshold: float | None,
    *,
    abstain: bool,
    zone: AbstentionZone | None = None,
    own: UnitPointRecord | None = None,
    pooled: Mapping[str, float | None] | None = None,
) -> Iterator[RollUps]:
    """Collect files in an unnamed database on the disk, which is deleted when the process ends.

    Args:
        positive: the class whose calibrated probability is rolled up.
        threshold: threshold of a single image; None: no decision is made.
        abstain: leave unusual frames out of all figures and decisions.
        own: threshold of files, breasts, studies or patients; None if they are decided at that of a single image.
        pooled: as in ``writer.write_tables``.
        zone: means for which no decision is made; uncertain frames count in the figures like all others.

    Raises:
        UsvitError: the disk of temporary files is full.
    """
    connection = sqlite3.connect("")
    # With --keep-ids the rows name patients: no temporary file may hold them. A file of the job takes about 300 bytes.
    connection.execute("PRAGMA temp_store = MEMORY")
    try:
        connection.execute(
            f"CREATE TABLE files (seq INTEGER PRIMARY KEY, {', '.join(_FileRollUp._fields)}, UNIQUE (item_id))"
        )
        connection.execute("CREATE TABLE failed (item_id PRIMARY KEY) WITHOUT ROWID")
        yield RollUps(connection, positive, threshold, abstain, zone, own, pooled)
    except sqlite3.OperationalError as error:
        if "full" not in str(error) and "I/O" not in str(error):
            raise
        raise UsvitError(
            "No space left for temporary files. The completed results are kept: free some space, or set TMPDIR to "
            "another folder, and run the same command again to resume."
        ) from error
    finally:
        connection.close()
