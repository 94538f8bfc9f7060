"""``usvit data link``: write the private table from pseudonyms to files."""

from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o


def link(
    dataset: Annotated[str, typer.Argument(help="folder, table, dicom, or your own card (.md).")],
    out: Annotated[
        Path, typer.Option(help="CSV file to write, outside the runs; readable only by you.", metavar="FILE")
    ],
    data_root: o.DataRoot = None,
) -> None:
    """Write the private table from pseudonyms to the files of a data set, with columns item_id, name and path.

    Runs and keep-lists use these ids for images, with the suffix '-K' for frame K. The secret key is the same as for
    'usvit score': USVIT_KEY, or the key in your settings.
    """
    from usvit.data.datasets import write_link

    n = write_link(dataset, out, roots=o.data_roots(data_root))
    print(f"{n} files: {out} (private)")
