"""Join the answers of a study that was read at several places."""

import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.files import insert
from usvit.reviewing.answers import StudyAnswers, study_folder
from usvit.reviewing.settings import load_review

_READING = ("reader", "session", "case_id", "stage", "is_repeat")


@checked_arguments
def merge_reviews(study: str | Path, folders: Sequence[str | Path]) -> int:
    """Add the finished readings of other folders of the same study to its own folder, all of them or none.

    Args:
        study: the file of the study, whose folder gets the readings.
        folders: folders of the answers, such as copies from other machines; they are not changed.

    Returns:
        The number of readings that were added. Those that are already there are counted once.

    Raises:
        UsvitError: a folder holds another study, a reading of both differs, or the study is being served.

    Example:
        >>> import usvit
        >>> usvit.merge_reviews("study.yaml", ["from-clinic-b"])  # doctest: +SKIP
        480
    """
    settings = load_review(study)
    assert settings.out is not None
    with ExitStack() as stack:
        if StudyAnswers.has_begun(settings.out):
            stack.enter_context(study_folder(settings.out).opened(private=True, verb="serving"))
        answers = stack.enter_context(closing(StudyAnswers(settings.out, settings)))
        others = [
            stack.enter_context(closing(StudyAnswers(Path(folder), settings, change=False))) for folder in folders
        ]
        with answers.database.transaction() as connection:
            return sum(_added(connection, answers, *both) for both in zip(others, map(Path, folders), strict=True))


def _added(connection: sqlite3.Connection, answers: StudyAnswers, other: StudyAnswers, folder: Path) -> int:
    if other.identity != answers.identity:
        raise UsvitError(f"{folder} holds the answers of another study: other settings, or files of other cases.")
    given: dict[int, list[tuple[str, str, float]]] = {}
    for row in other.rows("SELECT * FROM answers"):
        given.setdefault(row["reading_id"], []).append((row["question"], row["value"], row["at"]))
    added = 0
    for row in other.rows("SELECT * FROM readings WHERE answered_at IS NOT NULL"):
        own = connection.execute(
            "SELECT * FROM readings WHERE " + " AND ".join(f"{name} = ?" for name in _READING),
            [row[name] for name in _READING],
        ).fetchone()
        if own is None:
            raise UsvitError(f"{folder} has readings of {row['reader']}, who is no reader of this study.")
        if own["answered_at"] is not None:
            if own["answered_at"] != row["answered_at"]:
                raise UsvitError(
                    f"{folder}: {row['reader']} has read case {row['case_id'] + 1} there and here at different "
                    "times. Nothing was merged: decide which folder counts."
                )
            continue
        connection.execute("DELETE FROM answers WHERE reading_id = ?", (own["id"],))
        connection.execute(
            "UPDATE readings SET shown_at = ?, seconds = ?, answered_at = ?, left_at = ? WHERE id = ?",
            (row["shown_at"], row["seconds"], row["answered_at"], row["left_at"], own["id"]),
        )
        for question, value, at in given.get(row["id"], []):
            columns = {"reading_id": own["id"], "question": question, "value": value, "at": at}
            insert(connection, "answers", columns)
        added += 1

    return added
