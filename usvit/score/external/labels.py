"""A label table meets a scored set: which reference class each image has, and what finds no partner.

Nothing is dropped in silence: every label and every scored file that takes no part is counted, and listed with the
reason. What is listed are pseudonyms and the rows of the user's own table, never its cells.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from usvit.data.readers.sheets import Sheet, read_private_sheet
from usvit.errors import UsvitError, unknown
from usvit.pseudonyms import Pseudonyms, default_key_path
from usvit.score.external.scored_set import ScoredSet
from usvit.score.tables.cells import plain

PSEUDONYMS = ("item_id", "instance_id", "study_id", "patient_id")
PLAIN = {
    "path": "item_id",
    "sop_instance_uid": "instance_id",
    "study_instance_uid": "study_id",
    "original_patient_id": "patient_id",
    "patient": "patient_id",
}
"""Columns of ids of origin, and the pseudonyms that the key makes of them."""
JOINS = (*PSEUDONYMS, *PLAIN)
"""In the order in which a table is searched for them."""
MOST_WORDS = 20
"""A column of more different words than this holds no classes."""
_HARMLESS = {*JOINS, "label", "labels", "class", "classes", "diagnosis", "pathology", "histology", "truth", "y"}
"""Names of columns that an error may quote: no patient is called so."""
LISTED = ("what", "id", "label_row", "code")
"""Columns of the list of what takes no part; ``id`` is that of the join, or the item's."""

FAILED, NOT_SCORED, WITHOUT_ID = "labelled, failed", "labelled, not among the scored files", "label without an id"
LEFT_OUT, COPY, UNLABELLED = "left out by --map", "copy of another scored file", "scored, not labelled"


@dataclass(frozen=True)
class LabelTable:
    """Where the labels lie, and how they are to be read."""

    path: Path
    """CSV, TSV, Parquet or XLSX."""
    label: str = "label"
    """Column of the reference class."""
    join: str | None = None
    """What finds the rows: one of ``JOINS``, or ``JOIN=COLUMN``; None: the first of ``JOINS`` that is there."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Local word -> class; "" leaves the images out."""
    key: Path | None = None
    """Key of the pseudonyms; None: ``pseudonyms.default_key_path()``. Read where ids of origin must be joined."""
    input_root: str | None = None
    """What the table's paths begin with beyond the folder that was scored."""


@dataclass(frozen=True)
class Labelled:
    """Scored images with a label."""

    rows: pd.DataFrame
    """Rows of the scored set that have a label, in their order, with ``label`` and what ``extra`` asked for."""
    failed: pd.DataFrame
    """Labelled images that could not be scored, by file or frame: item_id, label, code. Empty where ``by`` is not
    item_id: nobody knows the patient of a file that cannot be read."""
    by: str
    """The pseudonym that joined: one of ``PSEUDONYMS``."""
    listed: pd.DataFrame
    """``LISTED``: what takes no part."""
    n_label_rows: int
    n_labels: int
    """Different ids with a label that counts."""
    extra: tuple[str, ...]
    """Those of the columns asked for that the label table has."""
    said: list[str]
    """Sentences that the user must see."""

    def count(self, what: str) -> int:
        return int((self.listed["what"] == what).sum())


def join_labels(scored: ScoredSet, labels: LabelTable, extra: Sequence[str] = ()) -> Labelled:
    """Give the images of a scored set their reference class.

    A label of a study or patient speaks of all its images. An id may stand in several rows if they agree.

    Args:
        scored: the scored set.
        labels: the table.
        extra: columns of the label table to keep, where it has them: those that make subgroups.

    Raises:
        UsvitError: a column, the key or the table is absent or wrong; a label is no class; an id has two labels; an
            instance stands in several files of different pixels; no label finds an image.
    """
    if not labels.path.is_file():
        raise UsvitError(f"There is no label table {labels.path}.")
    sheet = read_private_sheet(labels.path, f"The label table {labels.path}")
    if labels.label not in sheet.rows:
        raise _no_column(sheet, labels.label, "It should hold the labels; name another with --label.")
    name, column = _join_of(sheet, labels.join)
    by = PLAIN.get(name, name)
    ids = _ids(sheet, name, column, scored, labels)
    classes, said = _classes(sheet, labels, scored.classes)
    table = pd.DataFrame({"id": ids, "label": classes, "row": sheet.rows.index})
    extra = [one for one in extra if one in sheet.rows]
    if {*extra} & {column, labels.label, *PLAIN}:
        raise UsvitError(f"--by: a column of ids, or of the label, makes no subgroups of {sheet.name}.")
    table = table.assign(**{f"by {one}": sheet.column(one) for one in extra})
    empty = table["id"] == ""
    lost = [_listing(WITHOUT_ID, [""] * int(empty.sum()), table["row"][empty].tolist())]
    table = table[~empty]
    _refuse_two_labels(table, sheet, name)
    table = table.drop_duplicates("id").set_index("id")

    rows, copies = _without_copies(scored.rows)
    lost.append(_listing(COPY, copies))
    known = rows[by].isin(table.index)
    if by == "instance_id":
        _refuse_doubles(rows[known])
    label = rows[by].map(table["label"]).astype(object)
    kept = known & (label != "")
    lost.append(_listing(UNLABELLED, rows.loc[~known, "item_id"].drop_duplicates().tolist()))

    failures = scored.failures if by == "item_id" else scored.failures[:0]
    wanted = failures["item_id"].map(table["label"])
    failed = failures[["item_id", "code"]].assign(label=wanted)[wanted.notna() & (wanted != "")]
    code = dict(zip(failures["item_id"], failures["code"], strict=True))
    fate = np.select(
        [table["label"] == "", table.index.isin(list(code)), ~table.index.isin(rows.loc[known, by])],
        [LEFT_OUT, FAILED, NOT_SCORED],
        default="",
    )
    for what in (FAILED, NOT_SCORED, LEFT_OUT):
        own = table[fate == what]
        codes = [code[one] for one in own.index] if what == FAILED else ()
        lost.append(_listing(what, own.index.tolist(), own["row"].tolist(), codes))
    found = rows[kept].assign(label=label[kept], **{one: rows.loc[kept, by].map(table[f"by {one}"]) for one in extra})
    if found.empty:
        raise UsvitError(_nothing_found(sheet, name, column, len(table)))
    return Labelled(
        rows=found.reset_index(drop=True),
        failed=failed.reset_index(drop=True),
        by=by,
        listed=pd.concat(lost, ignore_index=True),
        n_label_rows=len(sheet.rows),
        n_labels=int((table["label"] != "").sum()),
        extra=tuple(extra),
        said=said,
    )


def _join_of(sheet: Sheet, asked: str | None) -> tuple[str, str]:
    """(one of ``JOINS``, column of the table)."""
    if asked is None:
        for name in JOINS:
            if name in sheet.rows and (sheet.rows[name] != "").any():
                return name, name
        raise UsvitError(
            f"{sheet.name} has no column to find the scored images by: one of {', '.join(JOINS)}. Say what a column "
            "holds with --join, such as --join original_patient_id=case."
        )
    name, equals, column = asked.partition("=")
    if name not in JOINS:
        raise unknown("kind of --join", name, JOINS, "Write --join KIND, or --join KIND=COLUMN.")
    column = column if equals else name
    if column not in sheet.rows:
        raise _no_column(sheet, column, "It was asked for with --join.")
    return name, column


def _no_column(sheet: Sheet, name: str, hint: str) -> UsvitError:
    """A table without a header has a patient's cells for names of columns: only harmless words are suggested."""
    there = [one for one in sheet.rows.columns if one.casefold() in _HARMLESS]
    text = f"{sheet.name}: its first row must name the columns. {hint}"
    return unknown("column", name, there, text) if there else UsvitError(f"Unknown column '{name}' in {text}")


def _ids(sheet: Sheet, name: str, column: str, scored: ScoredSet, labels: LabelTable) -> list[str]:
    """The pseudonym of each row; "" where its cell is empty."""
    cells = sheet.column(column)
    if name in PSEUDONYMS:
        for position, text in enumerate(cells):
            if text and not re.fullmatch("[0-9a-f]{16}", text):
                origin = {"item_id": "path", "instance_id": "sop_instance_uid", "study_id": "study_instance_uid"}
                raise UsvitError(
                    f"{sheet.where(position)}: column '{column}' holds no pseudonym of usvit (16 hex digits). If it "
                    f"holds ids of origin, say so: --join {origin.get(name, 'original_patient_id')}={column}."
                )
        return cells
    private = {"patient": "original_patient_id"}.get(name, name)
    if name == "path":
        cells = [_relative(text, labels.input_root) for text in cells]
    clear = scored.clear(private, PLAIN[name])
    if clear is not None:  # scored with --keep-ids: the table says itself which id is whose
        rows = zip(cells, sheet.rows.index, strict=True)
        return [text and clear.get(plain(text), f"row {row}") for text, row in rows]
    pseudonyms = _pseudonyms(scored, labels.key, name)
    make = {
        "path": pseudonyms.item,
        "sop_instance_uid": pseudonyms.instance,
        "study_instance_uid": pseudonyms.study,
        "original_patient_id": pseudonyms.patient,
    }[private]
    return [make(text) if text else "" for text in cells]


def _relative(path: str, root: str | None) -> str:
    """A path as ``Item.name`` has it: relative to the scored folder, forward slashes."""
    if not path:
        return ""
    found = PurePosixPath(path.replace("\\", "/"))
    if root is not None:
        top = PurePosixPath(root.replace("\\", "/"))
        if found.is_relative_to(top):
            found = found.relative_to(top)
    return str(found)


def _pseudonyms(scored: ScoredSet, key: Path | None, name: str) -> Pseudonyms:
    path = key or default_key_path()
    if not path.is_file():
        raise UsvitError(
            f"Column '{name}' holds ids of origin: they are matched with the key that usvit score used, but there is "
            f"no key {path}. Name it with --key."
        )
    found = Pseudonyms.of_key(path)
    if scored.fingerprint is None:
        raise UsvitError(f"{scored.folder} does not say which key it was scored with (job.json, summary.json).")
    if found.fingerprint != scored.fingerprint:
        raise UsvitError(
            f"The key {path} is not the one that {scored.folder} was scored with (fingerprint {found.fingerprint}, not "
            f"{scored.fingerprint}): no id would match. Name the right one with --key."
        )
    return found


def _classes(sheet: Sheet, labels: LabelTable, classes: Sequence[str]) -> tuple[list[str], list[str]]:
    """The class of each row, "" where ``--map`` leaves it out; and sentences."""
    words = sheet.column(labels.label)
    for target in labels.words.values():
        if target and target not in classes:
            raise unknown("class", target, classes, "It was given with --map.")
    for position, word in enumerate(words):
        if word in labels.words or word in classes:
            continue
        where = f"{sheet.where(position)}, column '{labels.label}'"
        if not word:
            raise UsvitError(f"{where}, is empty. To leave out rows without a label: --map =")
        if len(set(words)) > MOST_WORDS:
            raise UsvitError(
                f"{where}, is no class of the model ({', '.join(classes)}), and the column holds {len(set(words))} "
                "different words. Is it the column of labels? Name it with --label."
            )
        # Not quoted: it may be a patient's name, where --label or the table's columns are amiss.
        raise UsvitError(
            f"{where}, holds a word that is no class of the model ({', '.join(classes)}). Say what it means with "
            "--map WORD=CLASS, or leave its images out with --map WORD=."
        )
    idle = sorted(set(labels.words) - set(words))
    said = [f"--map {word}={labels.words[word]} changed nothing: no label of {sheet.name} reads so." for word in idle]
    return [labels.words.get(word, word) for word in words], said


def _refuse_two_labels(table: pd.DataFrame, sheet: Sheet, name: str) -> None:
    several = table.groupby("id")["label"].nunique() > 1
    if several.any():
        own = table[table["id"] == several.index[several][0]]
        first = own.iloc[0]
        other = own[own["label"] != first["label"]].iloc[0]
        said = " and ".join(f"'{one or 'left out'}'" for one in (first["label"], other["label"]))
        more = f" ({int(several.sum()) - 1} more like this)" if several.sum() > 1 else ""
        raise UsvitError(
            f"{sheet.name}: rows {first['row']} and {other['row']} name the same {name} and give it two labels, {said}"
            f"{more}. Correct them, or join by something finer with --join ({', '.join(JOINS)})."
        )


def _without_copies(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The rows without files that hold the same DICOM instance, pixel by pixel, once more; and their item_ids."""
    named = rows["instance_id"] != ""
    copy = named & rows.duplicated(["instance_id", "frame", "pixel_sha256"])
    return rows[~copy], rows.loc[copy, "item_id"].drop_duplicates().tolist()


def _refuse_doubles(rows: pd.DataFrame) -> None:
    files = rows[rows["instance_id"] != ""].groupby("instance_id")["item_id"].nunique()
    if (files > 1).any():
        instance = files.index[files > 1][0]
        items = rows.loc[rows["instance_id"] == instance, "item_id"].unique()
        raise UsvitError(
            f"The instance {instance} stands in {len(items)} scored files of different pixels "
            f"({', '.join(items[:3])}): its label could mean either. Join by item_id or path."
        )


def _listing(what: str, ids: Sequence[str], rows: Sequence[int] = (), codes: Sequence[str] = ()) -> pd.DataFrame:
    n = len(ids)
    row = pd.array(rows if len(rows) else [None] * n, dtype="Int64")
    return pd.DataFrame({"what": [what] * n, "id": list(ids), "label_row": row, "code": list(codes) or [""] * n})


def _nothing_found(sheet: Sheet, name: str, column: str, n: int) -> str:
    advice = {
        "path": "Paths are compared as they stand below the folder that was scored: take off what comes before with "
        "--input-root.",
    }.get(name, "Were these images scored, and by these ids? Another column can be named with --join.")
    return f"None of the {n} labels of {sheet.name} finds a scored image by '{column}'. {advice}"
