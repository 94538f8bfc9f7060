"""The files of a comparison: a page, and the same content as Markdown and LaTeX."""

from pathlib import Path

import usvit.documents as doc
from usvit.files import write_text


def write_document(folder: Path, stem: str, document: doc.Document) -> None:
    """Write ``stem.md``, ``stem.tex`` (its tables) and ``stem.html`` into a folder.

    Raises:
        UsvitError: The disk is full or not writable.
    """
    write_text(folder / f"{stem}.md", doc.markdown_document(document))
    write_text(folder / f"{stem}.tex", doc.latex_tables(document))
    write_text(folder / f"{stem}.html", doc.html_page(document))
