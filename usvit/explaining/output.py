"""``explain.json`` and its pictures: one folder holds the results of all methods for one run."""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import OutputFolder
from usvit.records import ExplainRecord, ExplanationRecord, load_record, save_record

_EXPLANATION_FILE = "explain.json"


def file_name(method: str, *parts: str) -> str:
    """Return the file name of a picture, which is valid on every system and unique for every image.

    ``("rollout", "busi", "benign (433)")`` -> ``rollout-busi-benign_433-5a0c1f2e.png``; the digest is added if
    characters were replaced.
    """
    stem = "-".join(parts)
    safe = re.sub(r"[^A-Za-z0-9.-]+", "_", stem).strip("_.")[:80]
    if safe != stem:
        safe = f"{safe}-{hashlib.sha256(stem.encode()).hexdigest()[:8]}"
    return f"{method}-{safe}.png"


@dataclass(frozen=True)
class Explanation:
    """Result of ``explain``."""

    folder: Path
    method: str
    entry: ExplanationRecord
    """Entry of the method in explain.json."""
    hidden: tuple[str, ...] = ()
    """Data sets or sources whose images are not shown because of their licences."""


class ExplainWriter:
    """Writes ``explain.json``, to which the results of methods are added."""

    def __init__(self, folder: Path, record: ExplainRecord):
        """Open a folder.

        Args:
            folder: a new or empty folder, or one with explanations of the same networks.
            record: what is to be written, without methods.

        Raises:
            UsvitError: the folder holds other files; nothing in it is changed.
        """
        self.folder, self._output = folder, OutputFolder(folder, "an explanation", _EXPLANATION_FILE)
        self.record = record
        self._add_earlier()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Keep other processes out of the folder while the block runs.

        Raises:
            UsvitError: another process writes into the folder, or has written other files.
        """
        with self._output.opened():
            self._add_earlier()  # again: another process may have added a method in between
            yield

    def _add_earlier(self) -> None:
        """Take over the methods that explain.json has already."""
        if not self._output.has_record():
            return
        before = load_record(self.folder / _EXPLANATION_FILE, ExplainRecord)
        self._refuse_other(before)
        weights = dict(sorted((before.weights_sha256 | self.record.weights_sha256).items()))
        self.record = self.record.model_copy(update={"methods": before.methods, "weights_sha256": weights})

    def _refuse_other(self, before: ExplainRecord) -> None:
        mine = self.record
        if any(sha != mine.weights_sha256.get(fold, sha) for fold, sha in before.weights_sha256.items()) or (
            (before.run, before.model, before.classes) != (mine.run, mine.model, mine.classes)
        ):
            raise UsvitError(
                f"{self.folder} holds explanations of other networks ({before.run}, {before.model}). Nothing "
                "was changed. Remove it, or choose another folder with --out."
            )

    def put(self, method: str, entry: ExplanationRecord) -> ExplanationRecord:
        """Write the entry of a method and return it. It replaces an earlier one, whose pictures are deleted."""
        earlier = self.record.methods.get(method)
        self.record = self.record.model_copy(update={"methods": {**self.record.methods, method: entry}})
        save_record(self.folder / _EXPLANATION_FILE, self.record)
        for name in _files(earlier) - _files(entry) if earlier else ():
            if Path(name).name == name and name.endswith(".png"):  # do not follow paths from a file
                (self.folder / name).unlink(missing_ok=True)
        return entry


def _files(entry: ExplanationRecord) -> set[str]:
    files = [entry.file, *(one.file for one in entry.images or []), *(one.file for one in entry.mixing or [])]
    return {file for file in files if file is not None}
