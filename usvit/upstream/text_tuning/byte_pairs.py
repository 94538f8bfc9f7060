"""A byte-pair vocabulary that is learnt from the texts of a training.

Source: Sennrich et al. (2016), ACL, in the form of Radford et al. (2019): the alphabet is the 256 bytes, so that every
text can be written. Chosen here: texts are made lower case; words are runs of letters or digits, or single other signs.
"""

import itertools
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

PAD, END = 0, 1
"""Numbers of the filling after a text, and of the end of a text."""
_FIRST = 2
"""Number of the byte 0; the learnt pairs follow the 256 bytes."""
_WORD = re.compile(r" ?[^\W\d_]+| ?\d+| ?[^\w\s]+|\s+|_+")

Pair = tuple[int, int]


class BytePairs:
    """A vocabulary.

    Args:
        merges: Pairs of numbers that become one, in the order in which they were learnt.

    Example:
        >>> words = BytePairs.learnt(["oval mass", "oval cyst", "oval mass"], 270)
        >>> len(words), words.encoded(["an oval mass"], 8)[0].shape
        (265, (1, 8))
    """

    def __init__(self, merges: Sequence[Pair]):
        self.merges = [(int(a), int(b)) for a, b in merges]
        self._rank = {pair: rank for rank, pair in enumerate(self.merges)}
        self._known: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return _FIRST + 256 + len(self.merges)

    @classmethod
    def learnt(cls, texts: Iterable[str], size: int) -> "BytePairs":
        """Learn at most ``size`` numbers, at least 258; of equally frequent pairs, the smaller numbers come first.

        Pairs that occur once in all texts are not learnt.
        """
        counts = Counter(word for text in texts for word in _words(text))
        words = [(_bytes_of(word), count) for word, count in counts.items()]
        merges: list[Pair] = []
        while _FIRST + 256 + len(merges) < size:
            pairs: Counter[Pair] = Counter()
            for numbers, count in words:
                for pair in itertools.pairwise(numbers):
                    pairs[pair] += count
            best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
            if best is None or pairs[best] < 2:
                break
            words = [(_merged(numbers, best, _FIRST + 256 + len(merges)), count) for numbers, count in words]
            merges.append(best)
        return cls(merges)

    def header(self) -> dict[str, str]:
        """Return what is kept in the header of a file: the pairs."""
        return {"merges": json.dumps(self.merges)}

    def numbers(self, text: str) -> list[int]:
        """Return the numbers of a text, without its end."""
        return [number for word in _words(text) for number in self._of_word(word)]

    def encoded(self, texts: Sequence[str], context: int) -> tuple[NDArray[np.int64], int]:
        """Return the numbers of texts, (n, context), each with its end and filled up, and how many texts were cut."""
        found, cut = np.full((len(texts), context), PAD, dtype=np.int64), 0
        for row, text in zip(found, texts, strict=True):
            numbers = self.numbers(text)
            cut += len(numbers) >= context
            kept = [*numbers[: context - 1], END]
            row[: len(kept)] = kept
        return found, cut

    def text(self, numbers: Iterable[int]) -> str:
        """Return the text of numbers up to its end; bytes that are no text are replaced."""
        content = itertools.takewhile(lambda number: number != END, numbers)
        return b"".join(self._bytes(number) for number in content).decode("utf-8", "replace").strip()

    def _bytes(self, number: int) -> bytes:
        if number >= _FIRST + 256:
            return b"".join(map(self._bytes, self.merges[number - _FIRST - 256]))
        return bytes([number - _FIRST]) if number >= _FIRST else b""

    def _of_word(self, word: str) -> list[int]:
        if word not in self._known:
            numbers = _bytes_of(word)
            while len(numbers) > 1:
                best = min(itertools.pairwise(numbers), key=lambda pair: self._rank.get(pair, len(self)))
                if best not in self._rank:
                    break
                numbers = _merged(numbers, best, _FIRST + 256 + self._rank[best])
            self._known[word] = numbers
        return self._known[word]


def _words(text: str) -> list[str]:
    return _WORD.findall(" ".join(text.lower().split()))


def _bytes_of(word: str) -> list[int]:
    return [_FIRST + byte for byte in word.encode("utf-8", "replace")]


def _merged(numbers: list[int], pair: Pair, new: int) -> list[int]:
    found: list[int] = []
    for number in numbers:
        if found and (found[-1], number) == pair:
            found[-1] = new
        else:
            found.append(number)
    return found
