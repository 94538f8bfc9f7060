"""Search for scored images that are near-duplicates of images that the model has seen.

The search runs when the tables are written, not while images are scored: it sorts the descriptions of the seen images
once for each portion of rows, and a portion is much larger than a batch.
"""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator

from usvit.data.splits import Described, read_description
from usvit.errors import UsvitError
from usvit.scoring.items import DESCRIPTION, Row


def marked(portions: Iterable[list[Row]], copies_of_seen: Callable[[Described], set[str]]) -> Iterator[list[Row]]:
    """Set ``seen`` in the rows of images that are near-duplicates of seen ones.

    Args:
        portions: rows of ``scores.csv`` as the journal stores them, with the near-duplicate description of the image in
            base64 under the key ``DESCRIPTION``; "" if it has none.
        copies_of_seen: ``Ensemble.copies_of_seen``.

    Yields:
        The rows, with the description as bytes.

    Raises:
        UsvitError: a description is damaged.
    """
    for rows in portions:
        for row in rows:
            row[DESCRIPTION] = _decoded(row[DESCRIPTION])
        described = {
            row["pixel_sha256"]: read_description(row[DESCRIPTION], row["pixel_sha256"], "The journal of the job")
            for row in rows
            if row[DESCRIPTION]
        }
        copies = copies_of_seen(described)
        yield [row | {"seen": bool(row["seen"]) or row["pixel_sha256"] in copies} for row in rows]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise UsvitError(
            "The journal of the job is damaged: a near-duplicate description is not valid base64."
        ) from error
