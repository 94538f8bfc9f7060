"""``usvit data phantom``: write a synthetic data set."""

from pathlib import Path
from typing import Annotated

import typer

from usvit.cli.settings import takes_options
from usvit.config.data_commands import PhantomSettings


@takes_options()
def phantom(
    out: Annotated[Path, typer.Option(help="Folder to write; must be new or empty.")],
    settings: PhantomSettings,
    workers: Annotated[int | None, typer.Option(help="Number of threads. (default: one per core)")] = None,
) -> None:
    """Write a synthetic data set: images like B-mode, lesion masks, and a table of patients, views and signs."""
    from usvit.data.phantom import PhantomSpec, write_phantom
    from usvit.progress import make_progress

    spec = PhantomSpec(**dict(settings))
    write_phantom(spec, out, workers=workers, progress=make_progress())
    print(f"{spec.n} images: {out}")
