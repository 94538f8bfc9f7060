"""The user's own table of images, described on the command line instead of in a data card."""

from pathlib import Path
from typing import Annotated

from usvit.config.fields import Option
from usvit.config.sections import Section
from usvit.plain_data import Settings

_KEYWORDS = {
    "path": "path_col",
    "label": "label_col",
    "patient_id": "patient_col",
    "lesion_id": "lesion_col",
    "side": "side_col",
    "exam_id": "exam_col",
}
COLUMN_OPTIONS = {name: f"--{keyword.replace('_', '-')}" for name, keyword in _KEYWORDS.items()}
"""usvit's name of a column -> option that names the table's."""


class TableSettings(Section):
    """A table that lists the user's images, and its columns."""

    panel = "Your own table of images"

    table: Annotated[str | None, Option(metavar="FILE")] = None
    """Table of your own images: Excel, CSV, Parquet, or JSON of COCO. (default: the only one in the data root)"""
    path_col: Annotated[str | None, Option(metavar="COL")] = None
    """Column of your table with the image file, relative to the data root. (default: ``path``)"""
    label_col: Annotated[str | None, Option(metavar="COL")] = None
    """Column of your table with the class. (default: ``label``)"""
    patient_col: Annotated[str | None, Option(metavar="COL")] = None
    """Column of your table with the patient, whose images stay together. (default: ``patient_id``)"""
    lesion_col: Annotated[str | None, Option(metavar="COL", rare=True)] = None
    """Column of your table with the lesion, unique in the table. (default: ``lesion_id``)"""
    side_col: Annotated[str | None, Option(metavar="COL", rare=True)] = None
    """Column of your table with the side of the breast, such as left or R. (default: ``side``)"""
    exam_col: Annotated[str | None, Option(metavar="COL", rare=True)] = None
    """Column of your table with the exam, unique in the table. (default: ``exam_id``)"""
    positive: Annotated[str | None, Option(metavar="CLASS")] = None
    """The positive class. (default: that of the data card or of the run, or ``malignant``)"""

    def data(self) -> Settings:
        """Return the settings of section ``data`` that were given.

        A table that is named from the current folder is named absolutely, because the setting counts from the data
        root.
        """
        table = self.table
        if table is not None and Path(table).is_file():
            table = str(Path(table).absolute())
        named = {name: getattr(self, keyword) for name, keyword in _KEYWORDS.items()}
        columns = {name: column for name, column in named.items() if column is not None}
        given = {"table": table, "columns": columns or None, "positive": self.positive}
        return {name: value for name, value in given.items() if value is not None}

    def dataset(self, name: str | None) -> str | None:
        """Return the data set: if none is named but a table is described, ``table``, or ``coco`` if it is JSON."""
        if name is not None or not {"table", "columns"} & self.data().keys():
            return name
        return "coco" if (self.table or "").endswith(".json") else "table"
