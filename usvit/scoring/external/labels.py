"""Join of a label table and a scored set: the reference class of each image, and everything that has no match.

Every label and every scored file that is not used is counted and listed with the reason. The list holds pseudonyms and
row numbers of the user's table, never its cells.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
import pandas as pd

from usvit.config.evaluation import LabelTable
from usvit.data.datasets import Spreadsheet, read_private_sheet
from usvit.errors import UsvitError, unknown
from usvit.pseudonyms import Pseudonyms, default_key_path
from usvit.scoring.external.scored_set import ScoredSet
from usvit.scoring.tables.cells import plain
from usvit.terminal import on_own_terminal

_PSEUDONYMS = ("item_id", "instance_id", "study_id", "patient_id")
PLAIN = {
    "path": "item_id",
    "sop_instance_uid": "instance_id",
    "study_instance_uid": "study_id",
    "original_patient_id": "patient_id",
    "patient": "patient_id",
}
"""Columns of original ids, and the columns of their pseudonyms."""
_JOINS = (*_PSEUDONYMS, *PLAIN)
"""Columns to join by, in the order in which a table is searched for them."""
_MOST_WORDS = 20
"""A column with more different words than this is not a column of classes."""
_HARMLESS = {*_JOINS, "label", "labels", "class", "classes", "diagnosis", "pathology", "histology", "truth", "y"}
"""Names of columns that an error message may quote, because they cannot be the name of a patient."""

FAILED, NOT_SCORED, WITHOUT_ID = "labelled, failed", "labelled, not among the scored files", "label without an id"
LEFT_OUT, COPY, UNLABELLED = "left out by --map", "copy of another scored file", "scored, not labelled"


@dataclass(frozen=True)
class LabelledSet:
    """Scored images with a label."""

    rows: pd.DataFrame
    """Rows of the scored set that have a label, in their order, with ``label`` and the columns ``extra``."""
    failed: pd.DataFrame
    """Labelled images that could not be scored, by file or frame: item_id, label, code. Empty unless ``by`` is item_id,
    because the patient of an unreadable file is unknown."""
    by: str
    """The pseudonym used for the join: one of ``_PSEUDONYMS``."""
    listed: pd.DataFrame
    """Unused labels and files, with the columns what, id (of the join, or of the item), label_row and code."""
    n_label_rows: int
    n_labels: int
    """Number of different ids with a label that is used."""
    extra: tuple[str, ...]
    """The requested columns that the label table has."""
    said: list[str]
    """Messages for the user."""
    why: pd.Series
    """(n,) for each row of the scored set: why it is not used (``COPY``, ``UNLABELLED``, ``LEFT_OUT``), or ""."""

    def count(self, what: str) -> int:
        return int((self.listed["what"] == what).sum())


def join_labels(scored: ScoredSet, labels: LabelTable, extra: Sequence[str] = ()) -> LabelledSet:
    """Assign reference classes to the images of a scored set.

    The label of a study or patient applies to all its images. An id may occur in several rows if they agree.

    Args:
        scored: the scored set.
        labels: the table.
        extra: columns of the label table to keep if they exist, for subgroups.

    Raises:
        UsvitError: a column, the key or the table is missing or wrong; a label is not a class; an id has two labels; an
            instance occurs in several files with different pixels; or no label matches an image.
    """
    if not labels.path.is_file():
        raise UsvitError(f"There is no label table {labels.path}.")
    sheet = read_private_sheet(labels.path, f"The label table {labels.path}")
    words = column_of(sheet, labels.label_column, "It should hold the labels; pass another column with --label.")
    name, column = the_join(sheet, labels.join)
    by = PLAIN.get(name, name)
    ids = joined_ids(sheet, name, column, scored, labels)
    classes, said = _classes(sheet, words, labels, scored.classes)
    table = pd.DataFrame({"id": ids, "label": classes, "row": sheet.rows.index})
    extra = [one for one in extra if one in sheet.rows]
    if {*extra} & {column, labels.label_column, labels.patient, *PLAIN}:
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

    why = pd.Series(COPY, index=scored.rows.index, dtype=object)
    why[rows.index] = np.select([~known, label == ""], [UNLABELLED, LEFT_OUT], default="")

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
    return LabelledSet(
        rows=found.reset_index(drop=True),
        failed=failed.reset_index(drop=True),
        by=by,
        listed=pd.concat(lost, ignore_index=True),
        n_label_rows=len(sheet.rows),
        n_labels=int((table["label"] != "").sum()),
        extra=tuple(extra),
        said=said,
        why=why,
    )


def the_join(sheet: Spreadsheet, asked: str | None) -> tuple[str, str]:
    """Return the kind of id to join by, one of ``_JOINS``, and the column of the table that holds it."""
    if asked is None:
        for name in _JOINS:
            if name in sheet.rows and (sheet.rows[name] != "").any():
                return name, name
        raise UsvitError(
            f"{sheet.name} has no column by which to find the scored images: one of {', '.join(_JOINS)}. Pass --join "
            "to say which column holds what, such as --join path=File for names of files in a column File, or --join "
            "original_patient_id=Case."
        )
    name, equals, column = asked.partition("=")
    if name not in _JOINS:
        if asked in sheet.rows:
            raise UsvitError(
                f"--join {asked} names a column of {sheet.name}, but not what it holds. Write --join KIND={asked}, "
                f"such as --join path={asked} for names of files. Kinds: {', '.join(_JOINS)}."
            )
        raise unknown("kind of --join", name, _JOINS, "Write --join KIND, or --join KIND=COLUMN, such as path=File.")
    column = column if equals else name
    column_of(sheet, column, "It was passed with --join.")
    return name, column


def column_of(sheet: Spreadsheet, name: str, hint: str) -> list[str]:
    """Return a column of the label table.

    Raises:
        UsvitError: there is no such column. The error lists those that exist on the user's own terminal only, and
            otherwise those with harmless names, because the header may be the row of a patient.
    """
    if name in sheet.rows:
        return sheet.column(name)
    there = [one for one in sheet.rows.columns if on_own_terminal() or one.casefold() in _HARMLESS]
    text = f"{sheet.name}: its first row must name the columns. {hint}"
    raise unknown("column", name, there, text) if there else UsvitError(f"Unknown column '{name}' in {text}")


def joined_ids(sheet: Spreadsheet, name: str, column: str, scored: ScoredSet, labels: LabelTable) -> list[str]:
    """Return the pseudonym of each row; "" if its cell is empty."""
    cells = sheet.column(column)
    if name in _PSEUDONYMS:
        for position, text in enumerate(cells):
            if text and not re.fullmatch("[0-9a-f]{16}", text):
                origin = {"item_id": "path", "instance_id": "sop_instance_uid", "study_id": "study_instance_uid"}
                raise UsvitError(
                    f"{sheet.where(position)}: column '{column}' holds no pseudonym of usvit (16 hex digits). If it "
                    f"holds original ids, pass --join {origin.get(name, 'original_patient_id')}={column}."
                )
        return cells
    private = {"patient": "original_patient_id"}.get(name, name)
    if name == "path":
        cells = [_relative(text, labels.input_root) for text in cells]
    clear = scored.clear(private, PLAIN[name])
    if clear is not None:  # scored with --keep-ids: the table contains the original ids
        rows = zip(cells, sheet.rows.index, strict=True)
        return [text and clear.get(plain(text), f"row {row}") for text, row in rows]
    pseudonyms = pseudonyms_of(scored, labels.key, name)
    make = {
        "path": pseudonyms.item,
        "sop_instance_uid": pseudonyms.instance,
        "study_instance_uid": pseudonyms.study,
        "original_patient_id": pseudonyms.patient,
    }[private]
    return [make(text) if text else "" for text in cells]


def _relative(path: str, root: str | None) -> str:
    """Convert a path to the form of ``ScoringItem.name``: relative to the scored folder, with forward slashes."""
    if not path:
        return ""
    found = PurePosixPath(path.replace("\\", "/"))
    if root is not None:
        top = PurePosixPath(root.replace("\\", "/"))
        if found.is_relative_to(top):
            found = found.relative_to(top)
    return str(found)


def pseudonyms_of(scored: ScoredSet, key: Path | None, name: str) -> Pseudonyms:
    path = key or default_key_path()
    if not path.is_file():
        raise UsvitError(
            f"Column '{name}' holds original ids, which need the key that usvit score used, but there is no "
            f"key {path}. Pass it with --key."
        )
    found = Pseudonyms.of_key(path)
    if scored.fingerprint is None:
        raise UsvitError(f"{scored.folder} does not record the key with which it was scored (job.json, summary.json).")
    if found.fingerprint != scored.fingerprint:
        raise UsvitError(
            f"The key {path} is not the one that {scored.folder} was scored with (fingerprint {found.fingerprint}, not "
            f"{scored.fingerprint}): no id would match. Pass the right key with --key."
        )
    return found


def _classes(
    sheet: Spreadsheet, words: list[str], labels: LabelTable, classes: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the class of each row ("" if ``--map`` leaves it out), and messages for the user."""
    for target in labels.words.values():
        if target and target not in classes:
            raise unknown("class", target, classes, "It was given with --map.")
    for position, word in enumerate(words):
        if word in labels.words or word in classes:
            continue
        where = f"{sheet.where(position)}, column '{labels.label_column}'"
        if not word:
            raise UsvitError(f"{where}, is empty. Pass --map = to leave out rows without a label.")
        if len(set(words)) > _MOST_WORDS:
            raise UsvitError(
                f"{where}, is not a class of the model ({', '.join(classes)}), and the column holds {len(set(words))} "
                "different words. Is it the column of labels? Pass the right one with --label."
            )
        # The word is not quoted: it may be a patient's name if --label or the columns of the table are wrong.
        raise UsvitError(
            f"{where}, holds a word that is not a class of the model ({', '.join(classes)}). Pass --map WORD=CLASS to "
            "assign it to a class, or --map WORD= to leave its images out."
        )
    idle = sorted(set(labels.words) - set(words))
    said = [f"--map {word}={labels.words[word]} changed nothing: no label of {sheet.name} reads so." for word in idle]
    return [labels.words.get(word, word) for word in words], said


def _refuse_two_labels(table: pd.DataFrame, sheet: Spreadsheet, name: str) -> None:
    several = table.groupby("id")["label"].nunique() > 1
    if several.any():
        own = table[table["id"] == several.index[several][0]]
        first = own.iloc[0]
        other = own[own["label"] != first["label"]].iloc[0]
        said = " and ".join(f"'{one or 'left out'}'" for one in (first["label"], other["label"]))
        more = f" ({int(several.sum()) - 1} more like this)" if several.sum() > 1 else ""
        raise UsvitError(
            f"{sheet.name}: rows {first['row']} and {other['row']} name the same {name} and give it two labels, {said}"
            f"{more}. Correct them, or join by something finer with --join ({', '.join(_JOINS)})."
        )


def _without_copies(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows without files that repeat a DICOM instance with the same pixels, and the item_ids of these."""
    named = rows["instance_id"] != ""
    copy = named & rows.duplicated(["instance_id", "frame", "pixel_sha256"])
    return rows[~copy], rows.loc[copy, "item_id"].drop_duplicates().tolist()


def _refuse_doubles(rows: pd.DataFrame) -> None:
    files = rows[rows["instance_id"] != ""].groupby("instance_id")["item_id"].nunique()
    if (files > 1).any():
        instance = files.index[files > 1][0]
        items = rows.loc[rows["instance_id"] == instance, "item_id"].unique()
        raise UsvitError(
            f"The instance {instance} occurs in {len(items)} scored files of different pixels "
            f"({', '.join(items[:3])}), so that its label is ambiguous. Join by item_id or path."
        )


def _listing(what: str, ids: Sequence[str], rows: Sequence[int] = (), codes: Sequence[str] = ()) -> pd.DataFrame:
    n = len(ids)
    row = pd.array(rows if len(rows) else [None] * n, dtype="Int64")
    return pd.DataFrame({"what": [what] * n, "id": list(ids), "label_row": row, "code": list(codes) or [""] * n})


def _nothing_found(sheet: Spreadsheet, name: str, column: str, n: int) -> str:
    advice = {
        "path": "Paths must be relative to the folder that was scored: pass a prefix to remove with --input-root.",
    }.get(name, "Check that these images were scored, and with these ids. Pass another column with --join.")
    return f"None of the {n} labels of {sheet.name} matches a scored image by '{column}'. {advice}"
