"""``usvit data link``: which pseudonym is which file below a data root."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from usvit.data.cards import load_card
from usvit.data.identities import Identities
from usvit.data.roots import root_of
from usvit.errors import UsvitError
from usvit.pseudonyms import LinkTable


@dataclass(frozen=True)
class _File:
    """A file below the data root."""

    name: str = field(repr=False)
    location: str = field(repr=False)


def write_link(dataset: str, roots: dict[str, Path], out: Path) -> int:
    """Write the link table of every file below a private data set's root, images or not.

    So it also leads to a file that an error names, and that keeps the data set from being read.

    Args:
        dataset: a card's name or file.
        roots: data set -> folder, "" for all.
        out: the table; only an earlier link table is replaced.

    Returns:
        How many files it lists.

    Raises:
        UsvitError: the data set is public, or not there; or the table cannot be written.
    """
    card = load_card(dataset)
    pseudonyms = Identities.of(card).pseudonyms
    if pseudonyms is None:
        raise UsvitError(f"The images of {card.pretty_name} go by their own ids: there is nothing to link.")
    root, n = root_of(card, roots), 0
    with LinkTable(out, pseudonyms) as table:
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = Path(folder) / name
                table.add(_File(path.relative_to(root).as_posix(), str(path)))
                n += 1
    return n
