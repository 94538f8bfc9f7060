"""Add items to the link table, but only if their file is still the one that was scored."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet

from usvit.errors import UsvitError
from usvit.files import regular_file
from usvit.pseudonyms import LinkTable
from usvit.scoring.items import ScoringItem
from usvit.scoring.journal import batched
from usvit.scoring.reading.item_reader import file_sha256_of
from usvit.scoring.reading.workers import Readers

PAGE = 256
"""Number of items that are looked up and hashed at once."""
_PORTION = 50_000


class Linked:
    """Adds items to a link table while they are iterated over.

    A scored item is added only if its file still has the bytes that were scored. Items that are not scored yet are
    always added, because the same process reads them afterwards.

    Args:
        table: the open link table.
        readers: processes that hash the files.
        file_sha256: returns the hash of the file that was scored for an item_id, or None if it was not scored.
    """

    def __init__(self, table: LinkTable, readers: Readers, file_sha256: Callable[[str], str | None]):
        self._table, self._readers, self._file_sha256 = table, readers, file_sha256
        self.left_out = 0
        """Number of scored items whose file has changed or cannot be read."""

    def passing(self, found: Iterable[tuple[str, ScoringItem]]) -> Iterator[tuple[str, ScoringItem]]:
        """Yield every (item_id, item) unchanged, whether or not it was added to the table."""
        for page in batched(found, PAGE):
            scored = {item_id: sha256 for item_id, _ in page if (sha256 := self._file_sha256(item_id)) is not None}
            calls = [(item, self._readers.settings) for item_id, item in page if item_id in scored]
            ids = [item_id for item_id, _ in page if item_id in scored]
            now = dict(zip(ids, self._readers.map_calls(file_sha256_of, calls), strict=True)) if calls else {}
            for item_id, item in page:
                if item_id in scored and now[item_id] != scored[item_id]:
                    self.left_out += 1
                else:
                    self._table.add(item)
                yield item_id, item


class ScoredHashes:
    """The hash of each scored file, from ``scores.parquet``. Needs 40 bytes of memory per file.

    Raises:
        UsvitError: the table is absent or damaged.
    """

    def __init__(self, scores: Path):
        ids: list[np.ndarray] = [np.empty(0, dtype=np.uint64)]
        hashes: list[np.ndarray] = [np.empty(0, dtype="V32")]
        try:
            with regular_file(scores) as opened, pyarrow.parquet.ParquetFile(opened) as file:
                for portion in file.iter_batches(_PORTION, columns=["item_id", "file_sha256"]):
                    rows = portion.to_pandas().drop_duplicates("item_id")
                    ids.append(np.array([int(one, 16) for one in rows["item_id"]], dtype=np.uint64))
                    raw = b"".join(bytes.fromhex(one) for one in rows["file_sha256"])
                    hashes.append(np.frombuffer(raw, dtype="V32"))
        except (OSError, ValueError, KeyError, UsvitError) as error:  # pyarrow's errors are ValueErrors
            raise UsvitError(
                f"{scores} cannot be read, so it is unknown whether the files are those that were scored. Restore it."
            ) from error
        self._ids, first = np.unique(np.concatenate(ids), return_index=True)
        self._hashes = np.concatenate(hashes)[first]

    def get(self, item_id: str) -> str | None:
        """Return the SHA-256 of the file from which the item was scored; None if the item has no row."""
        number = np.uint64(int(item_id, 16))
        at = int(np.searchsorted(self._ids, number))
        if at == len(self._ids) or self._ids[at] != number:
            return None
        return bytes(self._hashes[at]).hex()
