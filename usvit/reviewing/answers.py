"""The file of a study's answers: its cases, the readings that are planned, and what was answered when.

Every answer is one transaction, so that a server that is killed loses none. Names of files and of patients are in this
file, which only the owner can read; the page gets ids that are made under the secret of the study.
"""

import hashlib
import hmac
import json
import secrets
import sqlite3
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from usvit.errors import UsvitError
from usvit.files import Database, OutputFolder, insert
from usvit.reviewing.cases import FoundCases
from usvit.reviewing.reading_plan import plan_readings
from usvit.reviewing.settings import ReviewSettings

FILE = "review.sqlite"
_CHANGEABLE: dict[str, Any] = {
    **dict.fromkeys(("title", "instructions", "out", "readers", "washout_days"), True),
    "source": dict.fromkeys(("run", "dataset", "images", "data_root", "table", "scores", "labels", "maps"), True),
}
"""Settings that are not part of the identity of a study: its cases are identified by their files, and further readers
may join."""
_MIGRATIONS = (
    """
CREATE TABLE study (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    identity TEXT NOT NULL,
    secret TEXT NOT NULL,
    settings TEXT NOT NULL,
    positive TEXT NOT NULL,
    threshold REAL,
    model TEXT NOT NULL,
    begun_at REAL NOT NULL
);
CREATE TABLE cases (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    patient TEXT NOT NULL,
    truth TEXT NOT NULL,
    score REAL,
    decision TEXT NOT NULL,
    training INTEGER NOT NULL
);
CREATE TABLE images (
    id TEXT PRIMARY KEY,
    case_id INTEGER NOT NULL REFERENCES cases (id),
    position INTEGER NOT NULL,
    name TEXT NOT NULL,
    dataset TEXT NOT NULL,
    item TEXT NOT NULL,
    file_sha256 TEXT NOT NULL,
    stamp TEXT NOT NULL,
    n_frames INTEGER NOT NULL,
    width INTEGER NOT NULL,
    height INTEGER NOT NULL,
    spacing_mm REAL,
    frame_ms REAL,
    label TEXT NOT NULL,
    masks TEXT NOT NULL,
    maps TEXT NOT NULL
);
CREATE INDEX images_by_case ON images (case_id, position);
CREATE TABLE readings (
    id INTEGER PRIMARY KEY,
    reader TEXT NOT NULL,
    session INTEGER NOT NULL,
    position INTEGER NOT NULL,
    case_id INTEGER NOT NULL REFERENCES cases (id),
    stage TEXT NOT NULL,
    training INTEGER NOT NULL,
    is_repeat INTEGER NOT NULL,
    shown_at REAL,
    seconds REAL NOT NULL DEFAULT 0,
    answered_at REAL,
    left_at REAL,
    UNIQUE (reader, session, case_id, stage, is_repeat)
);
CREATE INDEX readings_by_reader ON readings (reader, position);
CREATE INDEX readings_by_case ON readings (case_id);
CREATE TABLE answers (
    reading_id INTEGER NOT NULL REFERENCES readings (id),
    question TEXT NOT NULL,
    value TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (reading_id, question)
) WITHOUT ROWID;
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    reading_id INTEGER NOT NULL REFERENCES readings (id),
    event TEXT NOT NULL CHECK (event IN ('answer', 'finish', 'undo')),
    question TEXT,
    value TEXT,
    at REAL NOT NULL
);
""",
)


def study_folder(path: Path) -> OutputFolder:
    """Return the folder of the answers of a study, which one process at a time may change."""
    files = (FILE, f"{FILE}-wal", f"{FILE}-shm", "export")
    return OutputFolder(path, "a review", files=files, instead="name another folder as out in the file of the study")


class StudyAnswers:
    """The open file of a study.

    Attributes:
        database: the file.
        settings: settings of the study, as they are now.
        identity: 64 hexadecimal digits; the same for the same settings and files of cases.
        positive: the positive class.
        threshold: threshold of the model's decisions; None without one.
        model: name of the model; "" without one.
    """

    def __init__(self, folder: Path, settings: ReviewSettings, *, change: bool = True):
        """Open the answers of a study that has begun.

        Args:
            folder: the folder of the answers.
            settings: the study.
            change: plan the readings of readers who are new.

        Raises:
            UsvitError: there is no study in the folder, or it is another one.
        """
        missing = f"There is no study in {folder}: {FILE} is missing. Start it with 'usvit review STUDY.yaml'."
        self.database = Database(folder / FILE, _MIGRATIONS, missing=missing)
        row = self.database.one("SELECT * FROM study")
        if row is None:
            raise UsvitError(f"The study in {folder} was not begun completely. Remove {FILE}, and start it again.")
        self.settings = settings
        self.identity, self._secret = str(row["identity"]), str(row["secret"])
        self.positive, self.threshold, self.model = str(row["positive"]), row["threshold"], str(row["model"])
        self._changes: dict[str, int] = {}
        self._refuse_other(json.loads(row["settings"]), folder)
        if change:
            self._plan_new_readers()

    @staticmethod
    def has_begun(folder: Path) -> bool:
        """Return whether a folder holds a study whose cases were written completely."""
        if not (folder / FILE).is_file():
            return False
        database = Database(folder / FILE, _MIGRATIONS)
        try:
            return database.one("SELECT 1 FROM study") is not None
        finally:
            database.close()

    @classmethod
    def begin(cls, folder: Path, settings: ReviewSettings, found: FoundCases) -> "StudyAnswers":
        """Write the cases of a new study, which is complete or absent, and open it."""
        content = json.dumps(_kept(settings), sort_keys=True)
        files = [[one.facts.file_sha256 for one in case.images] for case in found.cases]
        identity = hashlib.sha256(json.dumps([content, files]).encode()).hexdigest()
        database = Database(folder / FILE, _MIGRATIONS, create=True)
        try:
            with database.transaction() as connection:
                secret = secrets.token_hex(32)
                insert(
                    connection,
                    "study",
                    {
                        "id": 1,
                        "identity": identity,
                        "secret": secret,
                        "settings": content,
                        "positive": found.positive,
                        "threshold": found.threshold,
                        "model": found.model,
                        "begun_at": time.time(),
                    },
                )
                _insert_cases(connection, found, settings, secret)
        finally:
            database.close()
        return cls(folder, settings)

    def secret_for(self, purpose: str, name: str = "") -> str:
        """Return a token under the secret of the study: 32 hexadecimal digits."""
        return _under(self._secret, purpose, name)

    def state(self, reader: str | None) -> int:
        """Return a number that changes with every reading that is shown, finished or opened again.

        Args:
            reader: whose readings; None for those of all.
        """
        return self._changes.get(reader, 0) if reader is not None else sum(self._changes.values())

    def changed(self, reader: str) -> None:
        """Note that a reading of a reader has changed."""
        self._changes[reader] = self._changes.get(reader, 0) + 1

    def close(self) -> None:
        """Close the file."""
        self.database.close()

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        return self.database.rows(query, values)

    def _refuse_other(self, before: Mapping[str, Any], folder: Path) -> None:
        now = _kept(self.settings)
        if changed := sorted(name for name in {*before, *now} if before.get(name) != now.get(name)):
            raise UsvitError(
                f"The study in {folder} began with other settings ({', '.join(changed)}). Change them back, or begin "
                "another study in another folder (out)."
            )
        known = [str(row["reader"]) for row in self.rows("SELECT DISTINCT reader FROM readings")]
        lost = {*known} - {*self.settings.readers, self.settings.arbiter}
        if lost:
            raise UsvitError(
                f"The study in {folder} has the reader {min(lost)}, whom its file does not name any more. Name all "
                "readers in their order; new ones come last."
            )

    def _plan_new_readers(self) -> None:
        known = {str(row["reader"]) for row in self.rows("SELECT DISTINCT reader FROM readings")}
        n_cases = int(self.rows("SELECT COUNT(*) AS n FROM cases")[0]["n"])
        readers = self.settings.readers
        planned = {
            name: plan_readings(self.settings, k, n_cases) for k, name in enumerate(readers) if name not in known
        }
        with self.database.transaction() as connection:
            for name, plan in planned.items():
                connection.executemany(
                    "INSERT INTO readings (reader, session, position, case_id, stage, training, is_repeat) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?)",
                    [
                        (name, one.session, at, one.case, one.stage, one.training, one.repeat)
                        for at, one in enumerate(plan)
                    ],
                )
            if self.settings.arbiter and self.settings.arbiter not in known:
                connection.executemany(
                    "INSERT INTO readings (reader, session, position, case_id, stage, training, is_repeat) "
                    "VALUES (?, 1, ?, ?, 'arbitration', 0, 0)",
                    [(self.settings.arbiter, case, case) for case in range(self.settings.training, n_cases)],
                )


def _insert_cases(connection: sqlite3.Connection, found: FoundCases, settings: ReviewSettings, secret: str) -> None:
    for number, case in enumerate(found.cases):
        training = number < settings.training
        insert(
            connection,
            "cases",
            {
                "id": number,
                "name": case.name,
                "patient": case.patient,
                "truth": case.truth,
                "score": case.score,
                "decision": case.decision,
                "training": training,
            },
        )
        for position, one in enumerate(case.images):
            item, facts = one.found.item, one.facts
            cell = json.dumps([item.name, item.location, item.member, item.frame])
            insert(
                connection,
                "images",
                {
                    "id": _under(secret, "image", f"{number} {position}"),
                    "case_id": number,
                    "position": position,
                    "name": one.found.name,
                    "dataset": one.found.dataset,
                    "item": cell,
                    "stamp": file_stamp(cell),
                    "file_sha256": facts.file_sha256,
                    "n_frames": facts.n_frames,
                    "width": facts.width,
                    "height": facts.height,
                    "spacing_mm": one.found.spacing_mm or facts.spacing_mm,
                    "frame_ms": facts.frame_ms,
                    "label": one.label,
                    "masks": json.dumps([str(path) for path in one.found.masks]),
                    "maps": json.dumps([[name, str(path)] for name, path in one.found.maps]),
                },
            )


def _kept(settings: ReviewSettings) -> dict[str, Any]:
    content: dict[str, Any] = settings.model_dump(mode="json", exclude=_CHANGEABLE)
    return content


def _under(secret: str, purpose: str, name: str) -> str:
    return hmac.digest(bytes.fromhex(secret), f"{purpose}\0{name}".encode(), hashlib.sha256).hex()[:32]


def file_stamp(item: str) -> str:
    """Return size and time of the file of an image, a cell ``item`` of ``images``; "" if there is none."""
    try:
        status = Path(json.loads(item)[1]).stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def refuse_unknown_truths(found: FoundCases, settings: ReviewSettings) -> None:
    """Refuse training cases without a reference class, which the reader could not be told.

    Raises:
        UsvitError: there are such cases.
    """
    unknown = [case.truth for case in found.cases[: settings.training]].count("")
    if unknown:
        raise UsvitError(
            f"{unknown} of the {settings.training} training cases have no reference class to show. Name labels, or set "
            "training: 0."
        )
