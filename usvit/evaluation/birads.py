"""BI-RADS categories as readers and tables write them: 0 to 6, with 4a, 4b and 4c."""

import re
from collections.abc import Iterable, Sequence

import numpy as np

from usvit.errors import UsvitError

NONE = ""
"""A missing reading."""
INCOMPLETE, KNOWN_CANCER = "0", "6"
"""Categories that say nothing about the suspicion of the image: they are left out, and counted."""
DIVIDED = ("1", "2", "3", "4a", "4b", "4c", "5")
UNDIVIDED = ("1", "2", "3", "4", "5")
_FOURS = frozenset({"4a", "4b", "4c"})
_ROMAN = {"i": "1", "ii": "2", "iii": "3", "iv": "4", "v": "5", "vi": "6"}
_CATEGORY = re.compile(
    r"(?:bi-?rads\s*[:-]?\s*)?(?:category|cat\.?)?\s*"
    r"(?:(?P<digit>[0-6])(?:\.0+)?|(?P<roman>i{1,3}|iv|vi?))\s*(?P<part>[abc]?)"
)


def category_of(text: str) -> str | None:
    """Return the category that a text names, ``NONE`` for an empty text, or None if it names no category.

    >>> [category_of(one) for one in ("4A", " BI-RADS 4 b", "3.0", "IV", "", "4d", "3a", "7")]
    ['4a', '4b', '3', '4', '', None, None, None]
    """
    bare = text.strip().lower()
    if not bare or bare in ("nan", "none", "<na>"):
        return NONE
    match = _CATEGORY.fullmatch(bare)
    if match is None:
        return None
    digit = match["digit"] or _ROMAN[match["roman"]]
    if match["part"] and digit != "4":
        return None
    return digit + match["part"]


def categories_of(cells: Iterable[object], column: str, images: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the categories of each reader in a column, in which ``4a/4b`` are the readings of two.

    Args:
        cells: n cells.
        column: name of the column, for errors and for the names of the readers.
        images: n names of images, for errors.

    Returns:
        Name of the reader -> (n,) categories as ``category_of`` returns them. A cell with fewer readings than others
        has none of the last readers.

    Raises:
        UsvitError: a cell is no category, or the column has none. The image of the first such cell is named; the cell
            is not, because it may hold anything in a private table.
    """
    found = [[category_of(part) for part in ("" if one is None else str(one)).split("/")] for one in cells]
    wrong = [at for at, one in enumerate(found) if None in one]
    if wrong:
        raise UsvitError(
            f"Column '{column}': {len(wrong):,} of {len(found):,} cells are no BI-RADS category, such as that of image "
            f"'{images[wrong[0]]}'. A category is 0 to 6, 4a, 4b or 4c; two readers are written as 4a/4b, and a "
            "missing reading is an empty cell. Correct the cells, or empty them."
        )
    n_readers = max((len(one) for one in found if any(one)), default=0)
    if not n_readers:
        raise UsvitError(f"Column '{column}' has no BI-RADS category of an image of the run: nothing can be compared.")
    filled = [[*one, *[NONE] * n_readers][:n_readers] for one in found]
    names = [column] if n_readers == 1 else [f"{column}, reader {k + 1}" for k in range(n_readers)]
    return {name: np.array([one[k] for one in filled], dtype=object) for k, name in enumerate(names)}


def scale_of(readers: Iterable[np.ndarray]) -> tuple[str, ...]:
    """Return the ordered categories of several readers: 4 is one category for all if somebody has not divided it."""
    return UNDIVIDED if any((one == "4").any() for one in readers) else DIVIDED


def levels_on(scale: Sequence[str], categories: np.ndarray) -> np.ndarray:
    """Return the (n,) place of each category on a scale, from 0; -1 for a missing reading, 0 and 6."""
    place = {name: k for k, name in enumerate(scale)}
    if "4" in place:
        place |= dict.fromkeys(_FOURS, place["4"])
    return np.array([place.get(one, -1) for one in categories], dtype=np.int64)
