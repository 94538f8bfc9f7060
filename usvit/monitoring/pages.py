"""``watch.json``, ``watch.html`` and ``watch.md``."""

import usvit.documents as doc
from usvit.files import OutputFolder, write_text
from usvit.monitoring.document import watch_document
from usvit.monitoring.plots import value_plots
from usvit.records import WatchRecord, save_record

_CSS = "tbody th, #inventory td { white-space: nowrap; }"
"""Dates are not broken at their hyphens."""


def write_watch(folder: OutputFolder, record: WatchRecord) -> None:
    """Write the record and its pages: one file each, without script or network."""
    with folder.opened():
        write_text(folder.path / "watch.html", doc.html_page(watch_document(record, value_plots(record)), css=_CSS))
        write_text(folder.path / "watch.md", doc.markdown_document(watch_document(record)))
        save_record(folder.path / "watch.json", record)
