"""A user's own images in a table: CSV, Excel or Parquet, with one row per image.

A card of the user's maps our names of columns to the table's (``columns: {path: file, label: diagnosis}``); a column
that already has our name needs no mapping. Images that no row names are not part of the data set.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from usvit.config.own_table import COLUMN_OPTIONS
from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.identities import DataError, NamesFile, OwnColumns, Public
from usvit.data.datasets.readers import ImageRecord, required_class
from usvit.data.datasets.readers.spreadsheets import Spreadsheet, only_sheet, read_sheet, sheets_in
from usvit.data.datasets.units import SIDE_WORDS, UNIT_COLUMNS, side_of
from usvit.data.io import DICOM_SUFFIXES, IMAGE_SUFFIXES
from usvit.errors import unknown

_OPTIONAL = (
    *("image_id", "patient_id", *UNIT_COLUMNS, "mask_path", "frame", "device", "birads", "pixel_spacing_mm"),
    "label_source",
)
MASK_SEPARATOR = "|"


@dataclass(frozen=True)
class LabelledRow:
    """One row of a user's table, under usvit's column names."""

    where: NamesFile
    """Name for error messages: 'row 7 of labels.csv'."""
    label: str
    values: dict[str, str]
    """usvit's name of each existing column -> text."""

    def text(self, name: str) -> str:
        """Return one cell, or '' if the table has no such column."""
        return self.values.get(name, "")

    def record(self, image_id: str, path: Path, root: Path, **known: object) -> ImageRecord:
        """Return the image of this row; ``known`` supplies values that the table lacks.

        Raises:
            UsvitError: a mask is missing or its path leads out of the root, or a number or a side is invalid.
        """
        masks = [text.strip() for text in self.text("mask_path").split(MASK_SEPARATOR) if text.strip()]
        told: dict[str, object] = {
            "patient_id": self.text("patient_id"),
            "lesion_id": self.text("lesion_id"),
            "side": self._side(),
            "exam_id": self.text("exam_id"),
            "device": self.text("device"),
            "birads": self.text("birads"),
            "pixel_spacing_mm": self._spacing(),
            "label_source": self.text("label_source"),
        }
        told = {name: value for name, value in told.items() if value not in ("", None)}
        paths = tuple(self.path(root, mask) for mask in masks)
        return ImageRecord(image_id, path, self.label, paths, **{**known, **told})  # type: ignore[arg-type]

    def path(self, root: Path, text: str) -> Path:
        """Return a path of the table relative to the root; Windows separators are accepted.

        Raises:
            UsvitError: the path leads out of the root, or the file does not exist.
        """
        path = Path(PureWindowsPath(text).as_posix())
        if path.is_absolute() or PureWindowsPath(text).drive or ".." in path.parts:
            said = "{where}: the path '{text}' leads out of the data root; write it relative to the data root"
            raise DataError(said, where=self.where, text=text)
        if not (root / path).is_file():
            raise DataError("{where}: the file '{text}' does not exist", where=self.where, text=text)
        return path

    def frame(self) -> int | None:
        """Return the column ``frame``, or None if it is empty.

        Raises:
            UsvitError: it is not a whole number from 0.
        """
        text = self.text("frame")
        if text and not text.isdecimal():
            raise DataError("{where}: frame '{text}' is not a whole number from 0", where=self.where, text=text)
        return int(text) if text else None

    def _side(self) -> str | None:
        text = self.text("side")
        side = side_of(text)
        if text and side is None:
            said = "{where}: the side '{text}' is not known. Known are {words}. Leave the cell empty if it is unknown"
            raise DataError(said, where=self.where, text=text, words=Public(SIDE_WORDS))
        return side

    def _spacing(self) -> float | None:
        text = self.text("pixel_spacing_mm")
        try:
            value = float(text or 1)
        except ValueError:
            value = 0
        if not 0 < value < float("inf"):
            said = "{where}: pixel_spacing_mm '{text}' is not a positive number"
            raise DataError(said, where=self.where, text=text)
        return value if text else None


def looks_like(root: Path, card: DataCard) -> bool:
    return (root / card.table).is_file() if card.table else bool(sheets_in(root))


def read(root: Path, card: DataCard) -> list[ImageRecord]:
    """List all images of the table in its order.

    Raises:
        UsvitError: the table or a column is missing; a row has no file, no known label, or a path that leads out of
            the root; two rows have the same id or image.
    """
    records = []
    rows = labelled_rows(root, card, required=("path",))
    for row in rows:
        path, frame = row.path(root, row.text("path")), row.frame()
        records.append(row.record(row.text("image_id") or default_id(path, frame), path, root, frame=frame))
    refuse_doubles((record.image_id for record in records), rows, "the id")
    refuse_doubles((f"{record.path.as_posix()}#{record.frame or 0}" for record in records), rows, "the image")
    return records


def labelled_rows(
    root: Path, card: DataCard, required: tuple[str, ...], extra: tuple[str, ...] = ()
) -> list[LabelledRow]:
    """Return the rows of the card's table (by default the only table in the root), under usvit's names.

    Args:
        root: the data root.
        card: its ``table``, ``columns``, ``labels`` and ``classes`` are used.
        required: usvit's names of required columns besides ``label``.
        extra: more names that the card may map.

    Raises:
        UsvitError: the table or a column is missing, the card maps an unknown name, or a label is unknown.
    """
    needed = (*required, "label")
    known = dict.fromkeys((*needed, *_OPTIONAL, *extra))
    if strange := [name for name in card.columns if name not in known]:
        said = unknown("column", strange[0], list(known), f"The data card '{card.name}' maps it in 'columns'.")
        raise DataError("{said}", said=Public(said))
    sheet = read_sheet(root / card.table if card.table else only_sheet(root))
    asked = {name: card.columns.get(name, name) for name in known if name in card.columns or name in needed}
    if absent := {name: theirs for name, theirs in asked.items() if theirs not in sheet.rows}:
        raise _absent_columns(absent, sheet, card)
    columns = {
        name: sheet.column(card.columns.get(name, name)) for name in known if name in asked or name in sheet.rows
    }
    rows = []
    for position in range(len(sheet.rows)):
        values = {name: texts[position] for name, texts in columns.items()}
        where = sheet.where(position)
        rows.append(LabelledRow(where, required_class(values["label"], where, card), values))
    return rows


def _absent_columns(absent: dict[str, str], sheet: Spreadsheet, card: DataCard) -> DataError:
    """Return one error for all columns that the table lacks."""
    named = " and ".join(f"no column '{theirs}'" for theirs in absent.values())
    options = " ".join(f"{COLUMN_OPTIONS[name]} COL" for name in absent if name in COLUMN_OPTIONS)
    advice = f"pass {options}" if options else "correct the names"
    return DataError(
        "{sheet} has {named}. It has: {columns}. To name the columns of your table, {advice}; or write a card with "
        "columns: {keys}",
        sheet=sheet.shown,
        named=Public(named),
        columns=OwnColumns(", ".join(sheet.rows.columns)),
        advice=Public(advice),
        keys=Public("{" + ", ".join(f"{name}: <the table's name>" for name in absent) + "}"),
    )


def default_id(path: Path, frame: int | None) -> str:
    """Return the path without its image or DICOM suffix, with the frame if there is one: ``study1/a#3``."""
    name = path.with_suffix("") if path.suffix.lower() in IMAGE_SUFFIXES | DICOM_SUFFIXES else path
    return name.as_posix() + ("" if frame is None else f"#{frame}")


def refuse_doubles(keys: Iterable[str], rows: list[LabelledRow], what: str) -> None:
    """Raise an error if two rows have the same key."""
    seen: dict[str, NamesFile] = {}
    for key, row in zip(keys, rows, strict=True):
        if key in seen:
            raise DataError(
                "{first} and {second} both have {what} '{key}'",
                first=seen[key],
                second=row.where,
                what=Public(what),
                key=key,
            )
        seen[key] = row.where
