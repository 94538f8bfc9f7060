"""The scored cases as a person reads them: study first, then image, diagnosis and verdict; on the page and in Excel."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from usvit.files import read_csv, workbook_bytes
from usvit.records import SummaryRecord, load_record
from usvit.scoring import read_score_rows

Row = tuple[Any, ...]
_ONLY = "For research use only. Not a medical device."


def case_table(scores: Path, link: Path, test: Path | None = None) -> list[Row]:
    """Return a header and a row for each scored image; the studies with the highest probability come first.

    Args:
        scores: folder that ``usvit score`` wrote.
        link: the private table of ids and files; without it, rows show ids.
        test: folder of an evaluation of these scores, for the diagnoses; None without one.

    Raises:
        UsvitError: a table is absent or damaged.
    """
    rows, _, positive = read_score_rows(scores / "scores.csv")
    names = _texts(link, "item_id", "name") if link.is_file() else {}
    labels = {} if test is None else _texts(test / "predictions.csv", "image_id", "label")
    probability = f"calibrated_{positive}"
    study = rows["study_id"].where(rows["study_id"].fillna("") != "", "")
    group = study.where(study != "", rows["item_id"])
    rows = rows.assign(study=study, group=group, highest=rows[probability].groupby(group).transform("max"))
    rows = rows.sort_values(["highest", "group", "item_id", "frame"], ascending=[False, True, True, True])
    header = ("Study", "Image", "Frame", "Diagnosis", f"Probability of {positive}", "Verdict", "Remarks")
    found: list[Row] = [header]
    for row in rows.to_dict("records"):
        remarks = ["unlike the training images"] * bool(row["unusual"]) + ["used in training"] * bool(row["seen"])
        found.append(
            (
                row["study"],
                names.get(row["item_id"], row["item_id"]),
                int(row["frame"]) + 1,
                labels.get(f"{row['item_id']}#{row['frame']}", ""),
                float(row[probability]),
                row["decision"] or "no decision",
                "; ".join(remarks),
            )
        )
    return found


def cases_workbook(scores: Path, link: Path, test: Path | None = None) -> bytes:
    """Return the cases as XLSX with the sheets ``cases``, ``not scored`` and ``about``; arguments as ``case_table``."""
    summary = load_record(scores / "summary.json", SummaryRecord)
    failures = read_csv(scores / "failures.csv")
    names = _texts(link, "item_id", "name") if link.is_file() else {}
    lost = [(names.get(row["item_id"], row["item_id"]), row["reason"]) for row in failures.to_dict("records")]
    sheets = {
        "cases": case_table(scores, link, test),
        "not scored": [("Image", "Reason"), *lost],
        "about": [*_about(summary)],
    }
    return workbook_bytes(sheets, {"A": 22, "B": 40, "E": 24, "F": 18, "G": 30})


def _about(summary: SummaryRecord) -> Iterator[Row]:
    yield (_ONLY,)
    yield ("Private: the sheet 'cases' holds the names of the files.",)
    yield ("scored", summary.finished)
    yield ("images", summary.counts.frames_scored)
    yield ("threshold", summary.threshold.value)
    yield ("threshold from", summary.threshold.origin)
    if summary.model.calibration:
        yield ("calibrated on local diagnoses", summary.model.calibration.sha256)


def _texts(file: Path, key: str, value: str) -> dict[str, str]:
    table = read_csv(file)
    return dict(zip(table[key], table[value], strict=True))
