"""Coarse classes of ImageNet-1k from WordNet: the 127 of Huh et al. (2016), on which Grafit is trained.

Every class is replaced by its parent in WordNet, and a parent that lies below another parent is replaced by the highest
of them. One round gives 127 classes, a second 10, a third 2, of which the paper uses the first. A synset with several
parents counts as a child of the alphabetically first one, as NLTK sorts them.

Source: Huh, Agrawal & Efros (2016), What makes ImageNet good for transfer learning?, arXiv 1608.08614; its public code,
``make_up_down_labels``. With ``data.noun`` of WordNet 3.0, the classes of all three rounds are those of the label files
that the authors published.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from usvit.errors import UsvitError
from usvit.files import csv_text, read_bytes, write_text
from usvit.upstream.sources.imagenet import wnids

_BYTES = 1 << 28
"""``data.noun`` of WordNet 3.0 has 15 MB."""
SHA256 = "07944d0c44c86e2065e7892fb2ec75aa778508e5a71a756e0750535d6f1544f3"
"""Of the table of 127 classes whose partition was compared with the published one."""


@dataclass(frozen=True)
class _Nouns:
    """Nouns of WordNet."""

    parents: Mapping[str, tuple[str, ...]]
    """Synset, such as ``n01440764`` -> the synsets that it is a kind of (hypernyms)."""
    names: Mapping[str, str]
    """Synset -> its first word, such as ``tench``."""

    def parent(self, synset: str) -> str:
        """Return the alphabetically first parent of a synset, or the synset itself if it has none."""
        return min(self.parents[synset], key=lambda one: (self.names[one].lower(), one), default=synset)

    def upwards(self, synset: str) -> list[str]:
        """Return the synset, its parent, and so on to the root."""
        path = [synset]
        while (above := self.parent(path[-1])) != path[-1]:
            path.append(above)
        return path


def read_nouns(path: Path) -> _Nouns:
    """Read WordNet's file ``data.noun``, whose format is that of ``wndb(5WN)``.

    Raises:
        UsvitError: The file does not exist, is too large, or is not such a file.
    """
    parents: dict[str, tuple[str, ...]] = {}
    names: dict[str, str] = {}
    try:
        for line in read_bytes(path, _BYTES, follow=True).decode("utf-8").splitlines():
            if line.startswith("  ") or not line:  # the licence
                continue
            # offset, file, type, number of words (hexadecimal), words and ids, number of pointers, pointers of 4 fields
            fields = line.partition(" | ")[0].split()
            start = 4 + 2 * int(fields[3], 16)
            count = int(fields[start])
            pointers = [fields[start + 1 + 4 * at : start + 5 + 4 * at] for at in range(count)]
            synset = f"n{int(fields[0]):08d}"
            parents[synset] = tuple(f"n{int(target):08d}" for kind, target, _, _ in pointers if kind == "@")
            names[synset] = fields[4]
        if not parents or not {one for above in parents.values() for one in above} <= set(parents):
            raise ValueError("it lacks synsets")
    except (ValueError, IndexError) as error:
        raise UsvitError(
            f"{path} is not the file data.noun of WordNet ({error}). Use that of WordNet 3.0, such as "
            "/usr/share/wordnet/data.noun of Debian's package wordnet-base."
        ) from error
    return _Nouns(parents, names)


def coarser(classes: Iterable[str], nouns: _Nouns) -> dict[str, str]:
    """Replace classes by their parents, and parents below other parents by the highest of them.

    Args:
        classes: Synsets.
        nouns: WordNet.

    Returns:
        Class -> coarse class.

    Raises:
        UsvitError: A class is not in WordNet.
    """
    wanted = sorted(set(classes))
    if missing := [one for one in wanted if one not in nouns.parents]:
        raise UsvitError(
            f"{len(missing)} classes are not in this WordNet ({', '.join(missing[:3])}, ...). The ids of ImageNet are "
            "those of WordNet 3.0; other versions number their synsets differently."
        )
    above = {one: nouns.parent(one) for one in wanted}
    taken = set(above.values())
    return {one: [each for each in nouns.upwards(parent) if each in taken][-1] for one, parent in above.items()}


def coarse_imagenet(wordnet: Path, out: Path) -> int:
    """Write the 127 coarse classes of ImageNet-1k as a CSV file for ``source.coarse``.

    Args:
        wordnet: ``data.noun`` of WordNet 3.0.
        out: The file to write, with the columns ``class``, ``coarse`` and ``name`` (of the coarse class).

    Returns:
        The number of coarse classes.

    Raises:
        UsvitError: ``wordnet`` is not WordNet's, is of another version, or gives other classes than the published ones;
            or ``out`` exists.

    Example:
        >>> coarse_imagenet(Path("data.noun"), Path("imagenet127.csv"))  # doctest: +SKIP
        127
    """
    if out.exists():
        raise UsvitError(f"{out} exists. Nothing was changed: choose another file with --out.")
    nouns = read_nouns(wordnet)
    coarse = coarser(wnids(), nouns)
    rows = [(one, parent, nouns.names[parent].replace("_", " ")) for one, parent in coarse.items()]
    table = csv_text(pd.DataFrame(rows, columns=["class", "coarse", "name"]))
    count = len(set(coarse.values()))
    if hashlib.sha256(table.encode()).hexdigest() != SHA256:
        raise UsvitError(
            f"{wordnet} gives {count} coarse classes that are not the 127 of Huh et al. (2016). Use the unchanged file "
            "of WordNet 3.0, such as /usr/share/wordnet/data.noun of Debian's package wordnet-base."
        )
    write_text(out, table)
    return count
