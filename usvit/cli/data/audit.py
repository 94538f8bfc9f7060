"""``usvit data audit``: find near-duplicates, contradicting labels, and marks that a model could learn."""

import json
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.data_commands import AuditSettings
from usvit.config.own_table import TableSettings
from usvit.errors import EXIT_PARTLY, UsvitError


@takes_options()
def audit(
    *,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Data set, or several joined by '+': busi+b. Needed unless --table or --path-col describes your own.",
            metavar="D[+D]",
        ),
    ] = None,
    data_root: o.DataRoot = None,
    own: TableSettings,
    settings: AuditSettings,
    json_: o.Json = False,
) -> None:
    """Find near-duplicates, label conflicts, images in several data sets, text, calipers and other shortcuts.

    Writes audit.json, a keep-list (keep.csv) and audit.html, a page for reviewing the pairs.
    """
    from usvit.data.audit import choose_for_review
    from usvit.documents import terminal_text
    from usvit.progress import make_progress
    from usvit.reports import audit, audit_document

    named = own.dataset(dataset)
    if named is None:
        raise UsvitError("Name the data set with --dataset, or describe your own table with --table or --path-col.")
    result, folder = audit(
        named,
        **own.data(),
        data_root=o.data_roots(data_root),
        settings=settings,
        command=o.command_line(),
        progress=make_progress(),
    )
    if json_:
        print(json.dumps(result.record.content(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(terminal_text(audit_document(result, choose_for_review(result))))
        print(f"keep-list: {folder / 'keep.csv'}")
        print(f"page for review (contains image data): {folder / 'audit.html'}")
    if result.record.skipped:
        raise typer.Exit(EXIT_PARTLY)
