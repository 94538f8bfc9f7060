"""``usvit data``: data cards and the phantom."""

from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o

app = typer.Typer(help="Data sets: cards, and the phantom.", no_args_is_help=True)


@app.command("list")
def list_(json_: o.Json = False) -> None:
    """Show the data sets that usvit knows."""
    import json

    from usvit.data.cards import card_names, load_card

    cards = [load_card(name) for name in card_names()]
    if json_:
        print(json.dumps([card.model_dump(include={"name", "pretty_name", "license", "classes"}) for card in cards]))
        return
    for card in cards:
        counts = ", ".join(label if count is None else f"{count} {label}" for label, count in card.classes.items())
        print(f"{card.name:10} {card.pretty_name}\n{'':10} {counts}; licence {card.license}")


@app.command()
def info(name: Annotated[str, typer.Argument(help="A name of 'usvit data list'.")]) -> None:
    """Show one data set's card: classes, licence, layout, known faults, how to get it."""
    from usvit.data.cards import load_card
    from usvit.resources import data_cards_dir

    load_card(name)
    print((data_cards_dir() / f"{name}.md").read_text(encoding="utf-8"), end="")


@app.command()
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
    workers: Annotated[int | None, typer.Option(help="Threads. [default: one for each core]")] = None,
) -> None:
    """Write a phantom data set: B-mode-like images, masks, and a table of patients, views and signs."""
    from usvit.data.phantom import PhantomSpec, write_phantom
    from usvit.progress import make_progress, task

    spec = PhantomSpec(n, seed, size, near_duplicates, text, calipers, ablate)  # type: ignore[arg-type]
    with task(make_progress(), "making the phantom", n, "images") as advance:
        write_phantom(spec, out, workers=workers, progress=lambda done, total: advance(done))
    print(f"{n} images: {out}")
