"""``usvit data phantom``: write a synthetic data set."""

from pathlib import Path
from typing import Annotated

import typer


def phantom(
    out: Annotated[Path, typer.Option(help="Folder to write; must be new or empty.")],
    n: Annotated[int, typer.Option(help="Number of images.")] = 240,
    seed: Annotated[int, typer.Option(help="Random seed; the same seed gives the same bytes.")] = 0,
    size: Annotated[int, typer.Option(help="Side of the square images, in pixels.")] = 256,
    near_duplicates: Annotated[float, typer.Option(help="Share of images that are near-duplicates of others.")] = 0.0,
    text: Annotated[float, typer.Option(help="Share of images with burned-in text.")] = 0.0,
    calipers: Annotated[float, typer.Option(help="Share of images with calipers.")] = 0.0,
    ablate: Annotated[
        str,
        typer.Option(
            help="Remove information on the class. signs: lesions look the same in all classes; lesion: no lesions.",
            metavar="none|signs|lesion",
        ),
    ] = "none",
    scanner: Annotated[
        str,
        typer.Option(
            help="Settings of the scanner for all patients, instead of drawn ones: frequency_mhz, depth_mm, looks, "
            "dynamic_range_db, gain_db, penetration_db.",
            metavar="SETTING=VALUE,...",
        ),
    ] = "",
    views: Annotated[
        int,
        typer.Option(
            help="Largest number of views of a patient, up to 20; the table then names lesions, sides and exams. "
            "(default: 3, without these)",
            metavar="N",
            show_default=False,
        ),
    ] = 0,
    lesions: Annotated[int, typer.Option(help="Largest number of lesions of a patient; needs --views.")] = 1,
    exams: Annotated[int, typer.Option(help="Largest number of exams of a patient; needs --views.")] = 1,
    sign_views: Annotated[
        int,
        typer.Option(
            help="Number of views of a malignant lesion that show its signs; needs --views. (default: all)",
            metavar="N",
            show_default=False,
        ),
    ] = 0,
    workers: Annotated[int | None, typer.Option(help="Number of threads. (default: one per core)")] = None,
) -> None:
    """Write a synthetic data set: images like B-mode, lesion masks, and a table of patients, views and signs."""
    from usvit.data.phantom import PhantomSpec, write_phantom
    from usvit.progress import make_progress

    units = (views, lesions, exams, sign_views)
    spec = PhantomSpec(n, seed, size, near_duplicates, text, calipers, ablate, scanner, *units)  # type: ignore[arg-type]
    write_phantom(spec, out, workers=workers, progress=make_progress())
    print(f"{n} images: {out}")
