"""``usvit data link``: write the private table from pseudonyms to files."""

from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o


def link(
    dataset: Annotated[str, typer.Argument(help="folder, table, dicom, or a card of your own (.md).")],
    out: Annotated[Path, typer.Option(help="CSV to write, for you alone; outside the runs.", metavar="FILE")],
    data_root: o.DataRoot = None,
) -> None:
    """Write which pseudonym is which file of a private data set: item_id, name and path, readable by you alone.

    Ids of images in runs and keep-lists are these, with '-K' behind those of frame K. The key is that of 'usvit score'
    (USVIT_KEY, or the one in your settings).
    """
    from usvit.data.datasets import write_link

    n = write_link(dataset, out, roots=o.data_roots(data_root))
    print(f"{n} files: {out} (private)")
