"""``usvit data prepare``: check a data set and write its manifest."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.data_commands import PreparationSettings
from usvit.config.own_table import TableSettings
from usvit.errors import EXIT_PARTLY
from usvit.wording import plural

if TYPE_CHECKING:
    from usvit.data.datasets import Prepared


@takes_options()
def prepare(
    *,
    dataset: Annotated[
        str,
        typer.Argument(help="A name from 'usvit data list' or your own card (.md), or several joined by '+'."),
    ],
    data_root: o.DataRoot = None,
    own: TableSettings,
    settings: PreparationSettings,
    json_: o.Json = False,
) -> None:
    """Decode every file of a data set, check it against its card, and write its manifest.

    'usvit cv --manifest FILE' and 'usvit data split --manifest FILE' use the manifest.
    """
    from usvit.data.datasets import OwnTable
    from usvit.data.datasets import prepare as prepare_data
    from usvit.progress import make_progress

    summary = prepare_data(
        dataset,
        own=OwnTable.of(own.data()),
        roots=o.data_roots(data_root),
        settings=settings,
        progress=make_progress(),
    )
    if json_:
        print(json.dumps(summary.content(), indent=2, ensure_ascii=False))
    else:
        _print(summary)
    if summary.skipped:
        raise typer.Exit(EXIT_PARTLY)


def _print(summary: "Prepared") -> None:
    for name, found in summary.datasets.items():
        classes = ", ".join(f"{n} {label}" for label, n in found.classes.items())
        patients = f"{found.patients} patients" if found.patients else "no patient ids"
        print(f"{name}: {found.images} images ({classes}), {found.masks} masks, {patients}; {found.root}")
        for unit, counted in (found.units or {}).items():
            several = f"; {counted.several_labels} with several labels" if counted.several_labels else ""
            by_class = ", ".join(f"{n} {label}" for label, n in counted.classes.items())
            print(f"  {plural(counted.n, unit)} ({by_class}){several}")
        if found.card_mismatch:
            print(f"  DIFFERS FROM THE CARD, accepted: {'; '.join(found.card_mismatch)}")
        print(f"  licence {found.license}")
    for left_out in summary.excluded:
        print(f"left out: {left_out['image_id']} of {left_out['dataset']}: {left_out['exclude_reason']}")
    for bad in summary.skipped:
        print(f"skipped: {bad.path}: {bad.reason}")
    print(f"{summary.n_images} images to use, in {summary.n_groups} groups (patients, near-duplicates)")
    there = "" if summary.written else " (unchanged)"
    print(f"manifest, sha256 {summary.sha256[:12]}: {summary.manifest}{there}")
