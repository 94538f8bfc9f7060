"""``explain.json`` and its pictures: one folder holds the results of all methods for one run."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usvit.errors import UsvitError
from usvit.files import LOCK
from usvit.records import ExplainRecord, ExplanationRecord, read_record, write_record

EXPLANATION_FILE = "explain.json"


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

    def __init__(self, folder: Path, head: dict[str, Any]):
        """Open a folder.

        Args:
            folder: a new or empty folder, or one with explanations of the same networks.
            head: all keys except ``methods``.

        Raises:
            UsvitError: the folder holds other files; nothing in it is changed.
        """
        self.folder = folder
        self.content: dict[str, Any] = {"schema_version": ExplainRecord.VERSION, **head, "methods": {}}
        before = self._before()
        if before is not None:
            self._refuse_other(before)
            weights = {**before["weights_sha256"], **head["weights_sha256"]}
            self.content |= {"methods": before["methods"], "weights_sha256": dict(sorted(weights.items()))}

    def _before(self) -> dict[str, Any] | None:
        path = self.folder / EXPLANATION_FILE
        if not path.exists():
            if self.folder.exists() and (
                not self.folder.is_dir() or any(one.name != LOCK for one in self.folder.iterdir())
            ):
                raise UsvitError(
                    f"{self.folder} exists and holds no {EXPLANATION_FILE}. Nothing was changed. Choose another folder "
                    "with --out."
                )
            return None
        return read_record(path, ExplainRecord)

    def _refuse_other(self, before: dict[str, Any]) -> None:
        mine = self.content["weights_sha256"]
        if any(sha != mine.get(fold, sha) for fold, sha in before["weights_sha256"].items()) or any(
            before.get(key) != self.content[key] for key in ("run", "model", "classes")
        ):
            raise UsvitError(
                f"{self.folder} holds explanations of other networks ({before['run']}, {before.get('model')}). Nothing "
                "was changed. Remove it, or choose another folder with --out."
            )

    def put(self, method: str, entry: dict[str, Any]) -> ExplanationRecord:
        """Write the entry of a method and return it. It replaces an earlier one, whose pictures are deleted."""
        old = _files(self.content["methods"].get(method, {}))
        self.content["methods"][method] = entry
        record = write_record(self.folder / EXPLANATION_FILE, self.content, ExplainRecord)
        for name in old - _files(entry):
            if Path(name).name == name and name.endswith(".png"):  # do not follow paths from a file
                (self.folder / name).unlink(missing_ok=True)
        return record.methods[method]


def _files(entry: dict[str, Any]) -> set[str]:
    parts = [*(entry.get("images") or []), *(entry.get("mixing") or [])]
    files = [entry.get("file"), *(part.get("file") for part in parts)]
    return {file for file in files if isinstance(file, str)}
