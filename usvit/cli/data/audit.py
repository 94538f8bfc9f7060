"""``usvit data audit``: find near-duplicates, contradicting labels, and marks that a model could learn."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.data_commands import AuditSettings
from usvit.config.own_table import TableSettings
from usvit.errors import EXIT_PARTLY, UsvitError

if TYPE_CHECKING:
    from usvit.data.audit import Audit


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
    from usvit.progress import make_progress
    from usvit.reports import audit

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
        _print(result, folder)
    if result.record.skipped:
        raise typer.Exit(EXIT_PARTLY)


def _print(result: "Audit", folder: Path) -> None:
    record = result.record
    for bad in record.skipped:
        print(f"could not be read: {bad.path}: {bad.reason}")
    classes = ", ".join(f"{count} {label}" for label, count in record.class_counts.items())
    print(f"{record.n_images} images: {classes}")
    for difference in record.card_mismatch or ["agrees"]:
        print(f"data card: {difference}")
    for title, groups in (
        ("identical images", record.exact_duplicates),
        ("near-duplicates", record.duplicate_groups),
        ("  with different labels", record.label_conflicts),
        ("  in several data sets", record.contamination),
    ):
        print(f"{title:29} {len(groups):5} groups {sum(map(len, groups)):6} images")
    for name, counts in record.flag_counts.items():
        if any(counts.values()):
            print(f"{name:29} {sum(counts.values()):5}: " + ", ".join(f"{n} {label}" for label, n in counts.items()))
    print(f"keep-list: {record.keep.kept} kept, {record.keep.dropped} dropped: {folder / 'keep.csv'}")
    print(f"page for review (contains image data): {folder / 'audit.html'}")
