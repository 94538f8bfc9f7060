"""``usvit data list`` and ``usvit data info``: show data cards."""

import json
import textwrap
from typing import Annotated

import typer

from usvit.cli import options as o


def list_(json_: o.Json = False) -> None:
    """List the data sets that have a data card."""
    from usvit.data.datasets import card_facts, card_names, load_card

    cards = [load_card(name) for name in card_names()]
    if json_:
        keys = {"name", "pretty_name", "license", "classes", "positive_class", "patient_ids", "n_patients", "reader"}
        rows = [card.model_dump(include=keys) | {"fetch": card.fetch is not None} for card in cards]
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for card in cards:
        facts = dict(card_facts(card))
        how = "--fetch downloads it" if card.fetch else "" if card.reader else "cannot be read: no images"
        print(f"{card.name:13}{card.pretty_name}")
        notes = (f"licence {card.license}", f"patient ids: {card.patient_ids}", how)
        print(f"{'':13}{facts['Classes']}; {'; '.join(filter(None, notes))}")


def info(
    name: Annotated[str, typer.Argument(help="A name from 'usvit data list', or the path of a card (.md).")],
    json_: o.Json = False,
    as_croissant: Annotated[
        bool, typer.Option("--croissant", help="Print the card as Croissant 1.0 (JSON-LD), for data portals.")
    ] = False,
) -> None:
    """Show the card of a data set: classes, licence, layout, known faults, and how to get it."""
    from usvit.data.datasets import card_facts, croissant, load_card, read_prose

    card = load_card(name)
    if as_croissant:
        print(json.dumps(croissant(card, read_prose(name)), indent=2, ensure_ascii=False))
        return
    if json_:
        print(json.dumps(card.model_dump(mode="json"), indent=2, ensure_ascii=False))
        return
    print(f"{card.name}: {card.pretty_name}\n")
    for heading, text in card_facts(card):
        # The layout keeps its line breaks.
        lines = (
            text.splitlines()
            if heading == "Layout"
            else textwrap.wrap(text, 100, break_long_words=False, break_on_hyphens=False)
        )
        print(f"{heading:15}" + f"\n{'':15}".join(lines))
    print(f"\n{read_prose(name)}", end="")
