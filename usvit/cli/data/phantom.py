"""``usvit data phantom``: write a synthetic data set."""

from pathlib import Path
from typing import Annotated

import typer


def phantom(
    out: Annotated[Path, typer.Option(help="Folder to write; must be new or empty.")],
    n: Annotated[int, typer.Option(help="Images.")] = 240,
    seed: Annotated[int, typer.Option(help="Same seed, same bytes.")] = 0,
    size: Annotated[int, typer.Option(help="Side of the square images, in pixels.")] = 256,
    near_duplicates: Annotated[float, typer.Option(help="Share of images that are altered copies.")] = 0.0,
    text: Annotated[float, typer.Option(help="Share of images with burned-in text.")] = 0.0,
    calipers: Annotated[float, typer.Option(help="Share of images with calipers.")] = 0.0,
    ablate: Annotated[
        str,
        typer.Option(
            help="none; signs: lesions tell no class; lesion: no lesion is drawn.", metavar="none|signs|lesion"
        ),
    ] = "none",
    workers: Annotated[int | None, typer.Option(help="Threads. (default: one for each core)")] = None,
) -> None:
    """Write a phantom data set: B-mode-like images, masks, and a table of patients, views and signs."""
    from usvit.data.phantom import PhantomSpec, write_phantom
    from usvit.progress import make_progress

    spec = PhantomSpec(n, seed, size, near_duplicates, text, calipers, ablate)  # type: ignore[arg-type]
    write_phantom(spec, out, workers=workers, progress=make_progress())
    print(f"{n} images: {out}")
