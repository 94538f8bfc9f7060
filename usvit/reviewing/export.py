"""The tables that come out of a study: answers for ``usvit mrmc``, every reading, and labels."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.files import OutputFolder, workbook_bytes, write_bytes, write_csv
from usvit.records import ProtocolQuestion, StudyProtocol, save_record
from usvit.reviewing.answers import StudyAnswers
from usvit.reviewing.lexicon import BIRADS
from usvit.reviewing.settings import MODEL, QuestionSettings, ReviewSettings, load_review

FILES = (
    *("answers.csv", "readings.csv", "readings.parquet", "readings.xlsx", "labels.csv", "keep_list.csv"),
    *("dictionary.csv", "protocol.json"),
)
_COLUMNS = {
    "reader": "Who read.",
    "modality": "Stage: unaided, aided, or arbitration.",
    "session": "Session, from 1.",
    "position": "Place of the reading among those of the reader, from 1.",
    "case_id": "Case.",
    "patient_id": "Patient, or group of images that are not independent.",
    "truth": "1: the case is of the positive class; 0: of another; empty: not known.",
    "label": "Reference class.",
    "training": "1: a training case, after which the reference class was shown.",
    "repeat": "1: the reader had read the case in this stage before.",
    "seconds": "Time of the reading without breaks, in seconds.",
    "shown_at": "First display, UTC.",
    "answered_at": "End of the reading, UTC; empty: not finished.",
    "rating": "The answer that usvit mrmc analyses, as a number.",
}
"""Column of ``readings`` -> its meaning."""
_LABELS = ("dataset", "image_id", "path", "label", "decided_by")


@dataclass(frozen=True)
class ReviewExport:
    """What ``export_review`` has written."""

    folder: Path
    files: tuple[str, ...]
    n_readings: int
    """Finished readings, without training cases and repeats."""
    n_open: int
    """Readings that are not finished."""


@checked_arguments
def export_review(study: str | Path, *, out: str | Path | None = None) -> ReviewExport:
    """Write the answers of a study as tables.

    ``answers.csv`` holds the ratings of all readers, and those of the model, for ``usvit mrmc``; training cases and
    repeats are left out. ``readings`` (CSV, Parquet, Excel) holds every reading with all its answers, and
    ``dictionary.csv`` says what the columns mean. For the protocol ``labelling``, ``labels.csv`` holds the label of
    each image and who decided it, and ``keep_list.csv`` the images that are not excluded.

    Args:
        study: the file of the study.
        out: the folder to write; None takes the folder ``export`` beside the answers.

    Raises:
        UsvitError: the study has not begun; ``out`` holds other files.

    Returns:
        The folder, and how many readings it has.

    Example:
        >>> import usvit
        >>> export = usvit.export_review("study.yaml")  # doctest: +SKIP
        >>> record, _ = usvit.mrmc(export.folder / "answers.csv")  # doctest: +SKIP
    """
    settings = load_review(study)
    assert settings.out is not None
    answers = StudyAnswers(settings.out, settings)
    try:
        readings = _readings(answers)
        tables = {"readings.csv": readings, "dictionary.csv": _dictionary(settings)}
        ratings = _ratings(answers, readings)
        if not (ratings.reader == MODEL).all():  # nobody has rated a case with a reference class
            tables["answers.csv"] = ratings
        if settings.protocol == "labelling":
            tables["labels.csv"], tables["keep_list.csv"] = _labels(answers, readings)
        protocol = _protocol(answers)
    finally:
        answers.close()
    folder = settings.out / "export" if out is None else Path(out)
    with OutputFolder(folder, "an export of a review", files=FILES).opened(private=True):
        for name, table in tables.items():
            write_csv(folder / name, table)
        save_record(folder / "protocol.json", protocol)
        buffer = io.BytesIO()
        readings.to_parquet(buffer, index=False)
        write_bytes(folder / "readings.parquet", buffer.getvalue())
        sheets = {name: _rows(tables[f"{name}.csv"]) for name in ("readings", "dictionary")}
        write_bytes(folder / "readings.xlsx", workbook_bytes(sheets))
    done = (readings.answered_at != "") & (readings.training == 0) & (readings.repeat == 0)
    files = (*tables, "readings.parquet", "readings.xlsx", "protocol.json")
    return ReviewExport(folder, files, int(done.sum()), int((readings.answered_at == "").sum()))


def _rows(table: pd.DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(table.columns), *table.itertuples(index=False, name=None)]


def _readings(answers: StudyAnswers) -> pd.DataFrame:
    """Return one row for each reading that was begun, with the answers of all questions."""
    settings, given = answers.settings, dict[int, dict[str, Any]]()
    for row in answers.rows("SELECT reading_id, question, value FROM answers"):
        given.setdefault(row["reading_id"], {})[row["question"]] = json.loads(row["value"])
    rows = answers.rows(
        "SELECT r.*, c.name, c.patient, c.truth FROM readings r JOIN cases c ON c.id = r.case_id "
        "WHERE r.stage != 'arbitration' OR r.answered_at IS NOT NULL ORDER BY r.id"
    )
    found = []
    for row in rows:
        own = given.get(row["id"], {})
        found.append(
            {
                "reader": row["reader"],
                "modality": row["stage"],
                "session": row["session"],
                "position": row["position"] + 1,
                "case_id": row["name"],
                "patient_id": row["patient"],
                "truth": _positive(row["truth"], answers.positive),
                "label": row["truth"],
                "training": row["training"],
                "repeat": row["is_repeat"],
                "seconds": None if row["answered_at"] is None else round(row["seconds"], 2),
                "shown_at": _iso(row["shown_at"]),
                "answered_at": _iso(row["answered_at"]),
                "rating": _rating(settings.rating_question, own),
                **{one.name: _cell(own.get(one.name)) for one in settings.questions},
            }
        )
    return pd.DataFrame(found, columns=[*_COLUMNS, *(one.name for one in settings.questions)])


def _ratings(answers: StudyAnswers, readings: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that ``usvit mrmc`` reads: finished readings with a rating, and the model as a reader."""
    kept = (readings.answered_at != "") & (readings.training == 0) & (readings.repeat == 0) & readings.rating.notna()
    table = readings[kept & (readings.truth != "") & (readings.modality != "arbitration")]
    if answers.settings.source.has_model:
        cases = answers.rows("SELECT * FROM cases WHERE NOT training AND score IS NOT NULL AND truth != '' ORDER BY id")
        model = [
            {
                "reader": MODEL,
                "modality": "unaided",
                "case_id": one["name"],
                "patient_id": one["patient"],
                "truth": _positive(one["truth"], answers.positive),
                "label": one["truth"],
                "rating": one["score"],
            }
            for one in cases
        ]
        table = pd.concat([table.astype(object), pd.DataFrame(model).astype(object)], ignore_index=True)
    columns = ["reader", "modality", "case_id", "patient_id", "truth", "label", "rating", "session", "position"]
    return table[[*columns, "seconds"]]


def _labels(answers: StudyAnswers, readings: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the label of each image of a decided case, and the images that nobody excluded."""
    settings, question = answers.settings, answers.settings.label_question
    if question is None:
        raise UsvitError("The study has no question with choices, so that there are no labels to export.")
    done = readings[(readings.answered_at != "") & (readings.training == 0) & (readings.repeat == 0)]
    labels, kept = [], []
    images = answers.rows("SELECT i.*, c.name AS case_name FROM images i JOIN cases c ON c.id = i.case_id")
    by_case = dict(iter(done.groupby("case_id")))
    for image in images:
        rows = by_case.get(image["case_name"])
        if rows is None:
            continue
        label, who = _decided(rows, question.name, settings)
        excluded, _ = _decided(rows, "exclude", settings) if "exclude" in rows else ("", "")
        where = {"dataset": image["dataset"], "image_id": image["name"]}
        if label:
            labels.append({**where, "path": image["name"], "label": label, "decided_by": who})
        if label and excluded != "yes":
            kept.append(where)
    return pd.DataFrame(labels, columns=_LABELS), pd.DataFrame(kept, columns=["dataset", "image_id"])


def _decided(rows: pd.DataFrame, question: str, settings: ReviewSettings) -> tuple[str, str]:
    """Return the answer to a question and who decided it: all readers in agreement, or the arbiter; else empty."""
    arbitrated = rows[rows.modality == "arbitration"]
    if len(arbitrated):
        return str(arbitrated.iloc[0][question]), str(settings.arbiter)
    words = {*rows[question]}
    if len(rows) < len(settings.readers) or len(words) != 1:
        return "", ""
    return str(words.pop()), "+".join(sorted({*rows.reader}))


def _dictionary(settings: ReviewSettings) -> pd.DataFrame:
    rows = [(name, text, "") for name, text in _COLUMNS.items()]
    for one in settings.questions:
        rows.append((one.name, f"{one.label or one.name} {one.help}".strip(), _values(one)))
    return pd.DataFrame(rows, columns=["column", "meaning", "values"])


def _values(question: QuestionSettings) -> str:
    words = " | ".join(choice.value for choice in question.choices)
    return f"{question.low:g} to {question.high:g}" if question.kind == "scale" else words


def _protocol(answers: StudyAnswers) -> StudyProtocol:
    settings, rating = answers.settings, answers.settings.rating_question
    return StudyProtocol(
        title=settings.title,
        protocol=settings.protocol,
        design=settings.design,
        instructions=settings.instructions,
        stages=[*settings.stages],
        n_readers=len(settings.readers),
        unit=settings.source.unit,
        drawn=settings.source.cases,
        training=settings.training,
        repeats=settings.repeats,
        washout_days=settings.washout_days if settings.design == "crossover" else None,
        masks=settings.masks,
        positive=answers.positive,
        model=answers.model,
        threshold=answers.threshold,
        questions=[
            ProtocolQuestion(name=one.name, asked=one.label or one.name, kind=one.kind, answers=_values(one))
            for one in settings.questions
        ],
        rating=None if rating is None else rating.name,
    )


def _positive(truth: str, positive: str) -> str:
    return "" if not truth else str(int(truth == positive))


def _rating(question: QuestionSettings | None, own: Mapping[str, Any]) -> float | None:
    """Return an answer as a number: a scale as it is, and a BI-RADS category by its rank; 0 and 6 have none."""
    value = None if question is None else own.get(question.name)
    if question is None or value is None:
        return None
    if question.kind == "scale":
        return float(value)
    rank = BIRADS.index(value)
    return None if rank in (0, len(BIRADS) - 1) else float(rank)


def _cell(value: Any) -> Any:
    if isinstance(value, list):
        return " | ".join(value)
    return json.dumps(value) if isinstance(value, dict) else value


def _iso(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
