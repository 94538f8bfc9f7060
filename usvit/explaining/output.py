"""``explain.json`` and its pictures: one folder holds the results of all methods for one run."""

import hashlib
import re
from pathlib import Path
from typing import Any

from usvit.errors import UsvitError
from usvit.files import write_json
from usvit.records import ExplainRecord, read_record

SCHEMA_VERSION = "1.0"
FILE = "explain.json"


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
        self.content: dict[str, Any] = {"schema_version": SCHEMA_VERSION, **head, "methods": {}}
        before = self._before()
        if before is not None:
            self._refuse_other(before)
            weights = {**before["weights_sha256"], **head["weights_sha256"]}
            self.content |= {"methods": before["methods"], "weights_sha256": dict(sorted(weights.items()))}

    def _before(self) -> dict[str, Any] | None:
        path = self.folder / FILE
        if not path.exists():
            if self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir())):
                raise UsvitError(
                    f"{self.folder} exists and holds no {FILE}. Nothing was changed. Choose another folder with --out."
                )
            return None
        try:
            before = read_record(path, ExplainRecord)
            if before["schema_version"] != SCHEMA_VERSION:
                raise ValueError(f"schema_version {before['schema_version']}")
            if not all(isinstance(before[key], dict) for key in ("methods", "weights_sha256")) or "run" not in before:
                raise ValueError("it has no methods, weights_sha256 or run")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UsvitError(
                f"{path} cannot be read ({error}). Remove it, or choose another folder with --out."
            ) from error
        return before

    def _refuse_other(self, before: dict[str, Any]) -> None:
        mine = self.content["weights_sha256"]
        if any(sha != mine.get(fold, sha) for fold, sha in before["weights_sha256"].items()) or any(
            before.get(key) != self.content[key] for key in ("run", "model", "classes")
        ):
            raise UsvitError(
                f"{self.folder} holds explanations of other networks ({before['run']}, {before.get('model')}). Nothing "
                "was changed. Remove it, or choose another folder with --out."
            )

    def put(self, method: str, entry: dict[str, Any]) -> None:
        """Write the entry of a method. It replaces an earlier one, whose pictures are deleted."""
        old = _files(self.content["methods"].get(method, {}))
        self.content["methods"][method] = entry
        write_json(self.folder / FILE, self.content)
        for name in old - _files(entry):
            if Path(name).name == name and name.endswith(".png"):  # do not follow paths from a file
                (self.folder / name).unlink(missing_ok=True)


def _files(entry: dict[str, Any]) -> set[str]:
    files = [entry.get("file"), *(image.get("file") for image in entry.get("images", []))]
    return {file for file in files if isinstance(file, str)}
