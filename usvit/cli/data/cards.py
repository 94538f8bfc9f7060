"""``usvit data list`` and ``usvit data info``: what usvit knows of data sets."""

from typing import Annotated

import typer

from usvit.cli import options as o


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


def info(name: Annotated[str, typer.Argument(help="A name of 'usvit data list'.")]) -> None:
    """Show one data set's card: classes, licence, layout, known faults, how to get it."""
    from usvit.data.cards import load_card
    from usvit.resources import data_cards_dir

    load_card(name)
    print((data_cards_dir() / f"{name}.md").read_text(encoding="utf-8"), end="")
