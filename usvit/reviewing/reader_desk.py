"""What one reader sees and does: the next reading, its answers, and what the stage discloses."""

import json
import math
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal

from usvit.errors import UsvitError
from usvit.reviewing.answer_checks import check_answer
from usvit.reviewing.answers import StudyAnswers
from usvit.reviewing.settings import QuestionSettings, Stage
from usvit.reviewing.states import (
    AskedQuestion,
    CaseFeedback,
    EarlierAnswers,
    ImageAhead,
    ModelAid,
    OfferedAnswer,
    PagePicture,
    ReaderState,
    ReadingCount,
    ReadingTask,
    TaskImage,
    study_words,
)

_STAGES = {"unaided": "Without the model", "aided": "With the model", "arbitration": "Arbitration"}
_AHEAD = 3
"""Number of readings whose images the page may fetch in advance."""
_SECONDS_PER_DAY = 86_400.0
Shown = Literal["frame", "map", "mask"]


class OutOfDate(UsvitError):
    """The page shows a reading that is not the reader's current one, such as in a second window."""


class ReaderDesk:
    """The readings of one reader, in their order.

    Args:
        answers: the open study.
        reader: its name.
    """

    def __init__(self, answers: StudyAnswers, reader: str):
        self._answers, self.reader = answers, reader
        self._settings = answers.settings
        self._is_arbiter = reader == answers.settings.arbiter
        self._kept: tuple[Any, list[sqlite3.Row]] | None = None
        """State of the study, and the readings at that time: a study may have 10,000 cases, and each frame asks."""

    def state(self) -> ReaderState:
        """Return what the page shows now; see ``docs/reference/review-page.md``."""
        rows, (finished, opens_at) = self._readings(), self.where()
        current = self._current(rows)
        task = None if current is None or opens_at is not None else self._task(rows, current)
        return ReaderState(
            study=study_words(self._settings),
            reader=self.reader,
            progress=self.progress(),
            task=task,
            finished=finished,
            opens_at=opens_at,
            can_undo=self._last(rows) is not None,
            upcoming=self._upcoming(rows, current) if task else [],
        )

    def where(self) -> tuple[bool, str | None]:
        """Return whether all is read, and when the next session opens (ISO 8601; None if it is open)."""
        rows = self._readings()
        current = self._current(rows)
        opens_at = self._opens_at(rows, current)
        return current is None and not self._waits(), None if opens_at is None else _iso(opens_at)

    def progress(self) -> ReadingCount:
        """Return how many readings are done, and in which session the next one is."""
        rows = self._readings()
        current = self._current(rows)
        sessions = max((row["session"] for row in rows), default=1)
        return ReadingCount(
            done=sum(row["answered_at"] is not None for row in rows),
            total=len(rows),
            session=sessions if current is None else current["session"],
            sessions=sessions,
        )

    def answer(self, reading: int, question: str, value: Any, active_seconds: float) -> None:
        """Save the answer to one question of the current reading; None removes it.

        Raises:
            OutOfDate: it is not the current reading, or already finished.
            UsvitError: the question is not asked, or the value is none of its answers.
        """
        row = self._must_be_current(reading)
        asked = {one.name: one for one in self._settings.asked(row["stage"])}
        if question not in asked:
            raise UsvitError("This question is not asked here.")
        if value is not None:
            check_answer(asked[question], value, [one["n_frames"] for one in self._images(row["case_id"])])
        text, now = json.dumps(value, ensure_ascii=True, allow_nan=False), time.time()
        with self._changing() as connection:
            if value is None:
                connection.execute("DELETE FROM answers WHERE reading_id = ? AND question = ?", (reading, question))
            else:
                connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", (reading, question, text, now))
            _event(connection, reading, "answer", now, question, text)
            self._count_seconds(connection, row, active_seconds, now)

    def submit(self, reading: int, active_seconds: float) -> None:
        """Finish the current reading.

        Raises:
            OutOfDate: it is not the current reading, or already finished.
            UsvitError: a required question has no answer.
        """
        row = self._must_be_current(reading)
        given = self._given(reading)
        for one in self._settings.asked(row["stage"]):
            if one.required and given.get(one.name) in (None, "", []):
                raise UsvitError(f"Please answer: {one.label or one.name}.")
        now = time.time()
        with self._changing() as connection:
            self._count_seconds(connection, row, active_seconds, now)
            left = None if row["training"] and self._is_last_stage(row) else now
            connection.execute("UPDATE readings SET answered_at = ?, left_at = ? WHERE id = ?", (now, left, reading))
            _event(connection, reading, "finish", now)

    def leave_feedback(self, reading: int) -> None:
        """Go on from a training case whose reference class was shown.

        Raises:
            OutOfDate: another reading is shown.
        """
        row = self._current(self._readings())
        if row is None or row["id"] != reading or row["answered_at"] is None:
            raise OutOfDate("This case is not shown any more.")
        with self._changing() as connection:
            connection.execute("UPDATE readings SET left_at = ? WHERE id = ?", (time.time(), reading))

    def undo(self) -> None:
        """Open the last finished reading again; its answers stay until they are changed.

        Raises:
            UsvitError: there is none, or the reader has since seen what the answers must not depend on.
        """
        row = self._last(self._readings())
        if row is None:
            raise UsvitError("The reading before this one cannot be opened again.")
        with self._changing() as connection:
            connection.execute("UPDATE readings SET answered_at = NULL, left_at = NULL WHERE id = ?", (row["id"],))
            _event(connection, row["id"], "undo", time.time())

    def may_see(self, image: str, what: Shown = "frame") -> bool:
        """Return whether the reader may see an image now or next, or a map or the masks of it now."""
        rows = self._readings()
        current = self._current(rows)
        if current is None or self._opens_at(rows, current) is not None:
            return False
        found = self._answers.rows("SELECT case_id FROM images WHERE id = ?", image)
        if not found:
            return False
        if what != "frame":
            shown = self._discloses(current) if what == "map" else self._shows_masks(current)
            return bool(shown and found[0]["case_id"] == current["case_id"])
        return found[0]["case_id"] in [row["case_id"] for row in self._ahead(rows, current)]

    # ---- readings

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """Change readings in one transaction."""
        with self._answers.database.transaction() as connection:
            yield connection
        self._answers.changed(self.reader)

    def _readings(self) -> list[sqlite3.Row]:
        state = self._answers.state(None if self._is_arbiter else self.reader)
        if self._kept is None or self._kept[0] != state:
            rows = self._answers.rows("SELECT * FROM readings WHERE reader = ? ORDER BY position", self.reader)
            if self._is_arbiter:
                disputed = self.disputed(self._answers)
                rows = [row for row in rows if row["case_id"] in disputed or row["answered_at"] is not None]
            self._kept = state, rows
        return self._kept[1]

    @staticmethod
    def disputed(answers: StudyAnswers) -> set[int]:
        """Return the cases that all readers have read and to which they gave different answers to a choice."""
        chosen = [one.name for one in answers.settings.asked("unaided") if one.choices]
        rows = answers.rows(
            "SELECT r.case_id, r.id, r.answered_at, a.question, a.value FROM readings r LEFT JOIN answers a "
            "ON a.reading_id = r.id WHERE r.stage = 'unaided' AND NOT r.training AND NOT r.is_repeat"
        )
        given: dict[int, dict[int, dict[str, str]]] = {}
        open_cases = set()
        for row in rows:
            if row["answered_at"] is None:
                open_cases.add(row["case_id"])
            reading = given.setdefault(row["case_id"], {}).setdefault(row["id"], {})
            if row["question"] in chosen:
                reading[row["question"]] = row["value"]
        return {
            case
            for case, readings in given.items()
            if case not in open_cases and any(one != next(iter(readings.values())) for one in readings.values())
        }

    def _waits(self) -> bool:
        """Return whether the arbiter has to wait for readers."""
        open_ = "SELECT 1 FROM readings WHERE stage = 'unaided' AND answered_at IS NULL LIMIT 1"
        return self._is_arbiter and bool(self._answers.rows(open_))

    def _current(self, rows: list[sqlite3.Row]) -> sqlite3.Row | None:
        return next((row for row in rows if row["left_at"] is None), None)

    def _must_be_current(self, reading: int) -> sqlite3.Row:
        rows = self._readings()
        row = self._current(rows)
        if row is None or row["id"] != reading or row["answered_at"] is not None or self._opens_at(rows, row):
            raise OutOfDate("This case is finished, or was opened in another window. The page shows the current one.")
        return row

    def _last(self, rows: list[sqlite3.Row]) -> sqlite3.Row | None:
        """Return the reading that can be opened again: the last finished one, if nothing was disclosed since."""
        current = self._current(rows)
        done = [row for row in rows if row["left_at"] is not None]
        last = max(done, key=lambda row: row["left_at"], default=None)  # an arbiter does not read in the order of cases
        if last is None or last["training"] or (current is not None and current["answered_at"] is not None):
            return None
        if current is not None and (current["session"] != last["session"] or current["case_id"] == last["case_id"]):
            return None  # the model has been shown since
        return last

    def _is_last_stage(self, row: sqlite3.Row) -> bool:
        later = "SELECT 1 FROM readings WHERE reader = ? AND case_id = ? AND training AND position > ?"
        return not self._answers.rows(later, self.reader, row["case_id"], row["position"])

    def _opens_at(self, rows: list[sqlite3.Row], current: sqlite3.Row | None) -> float | None:
        """Return when the session of the current reading opens, in seconds since 1970; None if it is open."""
        if current is None or current["session"] == 1:
            return None
        before = max(row["answered_at"] for row in rows if row["session"] < current["session"])
        opens = float(before + self._settings.washout_days * _SECONDS_PER_DAY)
        return opens if opens > time.time() else None

    def _ahead(self, rows: list[sqlite3.Row], current: sqlite3.Row) -> list[sqlite3.Row]:
        later = [row for row in rows if row["left_at"] is None and row["session"] == current["session"]]
        return later[: _AHEAD + 1]

    def _upcoming(self, rows: list[sqlite3.Row], current: sqlite3.Row | None) -> list[ImageAhead]:
        if current is None:
            return []
        cases = dict.fromkeys(row["case_id"] for row in self._ahead(rows, current))
        cases.pop(current["case_id"], None)
        return [ImageAhead(id=one["id"], frames=one["n_frames"]) for case in cases for one in self._images(case)]

    # ---- what is shown

    def _images(self, case: int) -> list[sqlite3.Row]:
        return self._answers.rows("SELECT * FROM images WHERE case_id = ? ORDER BY position", case)

    def _given(self, reading: int) -> dict[str, Any]:
        rows = self._answers.rows("SELECT question, value FROM answers WHERE reading_id = ?", reading)
        return {row["question"]: json.loads(row["value"]) for row in rows}

    def _discloses(self, row: sqlite3.Row) -> bool:
        return row["stage"] == "aided"

    def _shows_masks(self, row: sqlite3.Row) -> bool:
        if row["answered_at"] is not None:
            return self._settings.masks != "never"
        return self._settings.masks == "aided" and self._discloses(row)

    def _task(self, rows: list[sqlite3.Row], row: sqlite3.Row) -> ReadingTask:
        if row["shown_at"] is None:
            with self._changing() as connection:
                connection.execute("UPDATE readings SET shown_at = ? WHERE id = ?", (time.time(), row["id"]))
        images = self._images(row["case_id"])
        case = self._answers.rows("SELECT * FROM cases WHERE id = ?", row["case_id"])[0]
        feedback = row["answered_at"] is not None
        stage: Stage = row["stage"]
        return ReadingTask(
            id=row["id"],
            number=1 + next(at for at, one in enumerate(rows) if one["id"] == row["id"]),
            stage=stage,
            stage_label=_STAGES[stage] if self._settings.source.has_model or stage != "unaided" else "Reading",
            training=bool(row["training"]),
            phase="feedback" if feedback else "answer",
            images=[
                TaskImage(
                    frames=one["n_frames"],
                    **{name: one[name] for name in ("id", "width", "height", "spacing_mm", "label", "frame_ms")},
                )
                for one in images
            ],
            questions=[_question(one) for one in self._settings.asked(stage)],
            answers=self._given(row["id"]),
            earlier=self._earlier(row),
            aid=self._aid(case, images) if self._discloses(row) else None,
            masks=self._masks(images) if self._shows_masks(row) else [],
            feedback=CaseFeedback(truth=case["truth"]) if feedback else None,
            active_seconds=row["seconds"],
        )

    def _earlier(self, row: sqlite3.Row) -> list[EarlierAnswers]:
        """Return the reader's own answers of the stage before, or to the arbiter those of the readers."""
        if row["stage"] == "arbitration":
            same = "SELECT * FROM readings WHERE case_id = ? AND stage = 'unaided' AND NOT is_repeat ORDER BY id"
            rows = self._answers.rows(same, row["case_id"])
            return [
                EarlierAnswers(label=f"Reader {k}", answers=self._given(one["id"])) for k, one in enumerate(rows, 1)
            ]
        if row["stage"] != "aided" or self._settings.design != "sequential":
            return []
        same = (
            "SELECT * FROM readings WHERE reader = ? AND case_id = ? AND session = ? AND is_repeat = ? "
            "AND stage = 'unaided'"
        )
        rows = self._answers.rows(same, self.reader, row["case_id"], row["session"], row["is_repeat"])
        return [EarlierAnswers(label=_STAGES["unaided"], answers=self._given(one["id"])) for one in rows]

    def _aid(self, case: sqlite3.Row, images: list[sqlite3.Row]) -> ModelAid | None:
        if case["score"] is None:
            return None
        return ModelAid(
            model=self._answers.model,
            score=case["score"],
            positive=self._answers.positive,
            decision=case["decision"] or None,
            threshold=self._answers.threshold,
            pictures=[
                PagePicture(image=at, url=f"map/{one['id']}/{k}", label=name)
                for at, one in enumerate(images)
                for k, (name, _) in enumerate(json.loads(one["maps"]))
            ],
        )

    def _masks(self, images: list[sqlite3.Row]) -> list[PagePicture]:
        return [
            PagePicture(image=at, url=f"mask/{one['id']}", label="lesion mask")
            for at, one in enumerate(images)
            if json.loads(one["masks"])
        ]

    def _count_seconds(
        self, connection: sqlite3.Connection, row: sqlite3.Row, active_seconds: float, now: float
    ) -> None:
        """Keep the time without breaks that the page has counted: at most the time since the case was shown."""
        passed = max(0.0, now - (row["shown_at"] or now))
        seconds = min(max(active_seconds, row["seconds"]), passed) if math.isfinite(active_seconds) else row["seconds"]
        connection.execute("UPDATE readings SET seconds = ? WHERE id = ?", (seconds, row["id"]))


def _question(one: QuestionSettings) -> AskedQuestion:
    shown = one.model_dump(exclude={"stages", "label", "choices"})
    choices = [OfferedAnswer(value=choice.value, label=choice.label or choice.value) for choice in one.choices]
    return AskedQuestion(**shown, label=one.label or one.name, choices=choices)


def _event(
    connection: sqlite3.Connection, reading: int, event: str, at: float, question: str | None = None, value: str = ""
) -> None:
    connection.execute(
        "INSERT INTO events (reading_id, event, question, value, at) VALUES (?, ?, ?, ?, ?)",
        (reading, event, question, value or None, at),
    )


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
