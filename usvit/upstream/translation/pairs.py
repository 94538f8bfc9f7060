"""Pairs of a text and its translation: from a file, or generated."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from usvit.errors import LeakageError, UsvitError
from usvit.files import TABLE_BYTES, read_text
from usvit.seeding import derive_seed

Pairs = list[tuple[str, str]]
_N_TRAIN, _N_TEST, _WORDS, _SHORTEST, _LONGEST = 4000, 200, 24, 2, 6


def read_pairs(path: Path) -> Pairs:
    """Read lines of a source, a tab and its translation; empty lines are left out.

    Raises:
        UsvitError: The file cannot be read, a line has no tab or an empty side, or there is no pair.
    """
    found = []
    for number, line in enumerate(read_text(path, TABLE_BYTES, follow=True, what="file of pairs").splitlines(), 1):
        if line.strip():
            source, _, target = (part.strip() for part in line.partition("\t"))
            if not (source and target) or "\t" in target:
                raise UsvitError(
                    f"Line {number} of {path} is no pair: a source, one tab and its translation. Mend or "
                    "remove the line."
                )
            found.append((source, target))
    if not found:
        raise UsvitError(f"{path} has no pair of a text and its translation.")
    return found


def generated_pairs(seed: int) -> tuple[Pairs, Pairs]:
    """Generate training and test pairs of a made-up language, whose words are those of the source in reversed order.

    Each word of the source stands for one of the target. No test sentence is among the training sentences.
    """
    rng = np.random.default_rng(derive_seed(seed, "pairs"))
    found: dict[str, str] = {}
    while len(found) < _N_TRAIN + _N_TEST:
        words = rng.integers(_WORDS, size=rng.integers(_SHORTEST, _LONGEST + 1))
        found[" ".join(_word(one, "ptkbdgmn") for one in words)] = " ".join(
            _word((one + 7) % _WORDS, "vzrlsfhw") for one in words[::-1]
        )
    pairs = list(found.items())
    return pairs[_N_TEST:], pairs[:_N_TEST]


def refuse_shared(train: Sequence[tuple[str, str]], test: Sequence[tuple[str, str]]) -> None:
    """Raise ``LeakageError`` if a test sentence is a training sentence."""
    known = {source.casefold() for source, _ in train}
    if shared := [source for source, _ in test if source.casefold() in known]:
        raise LeakageError(
            f"{len(shared)} of {len(test)} test sentences are training sentences, too. Remove them from the "
            "training pairs."
        )


def _word(number: int, consonants: str) -> str:
    return consonants[number % 8] + "aeiou"[number // 8] + consonants[(number + 3) % 8]
