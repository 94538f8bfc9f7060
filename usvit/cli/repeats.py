"""``usvit evaluate --repeatability``: repeats that the predictions contain."""

import json
from pathlib import Path

from usvit.config.evaluation import Columns, RepeatsSettings


def show_repeatability(
    predictions: Path,
    repeats: str | None,
    columns: Columns,
    settings: RepeatsSettings,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    """Call ``usvit.repeatability`` and print its figures, or its record."""
    from usvit.documents import terminal_text
    from usvit.reports import repeatability_document
    from usvit.retesting import repeatability

    record = repeatability(predictions, settings=settings, repeats=repeats, columns=columns, out=out)
    if as_json:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(terminal_text(repeatability_document(record)))
    if out is not None:
        print(f"page: {out / 'repeatability.html'}")
