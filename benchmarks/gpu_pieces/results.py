"""``gpu.json``: what has been measured, on which machine, and what failed."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = 1
ATTEMPTS = 2
"""A measurement that took the whole process down, or that was cut short, is tried so many times."""


class UnusableResults(Exception):
    """The folder holds something else than the results of this command."""


def empty(tiny: bool = False) -> dict[str, Any]:
    """Return the content of a file without any measurement."""
    return {"schema": SCHEMA, "tiny": tiny, "sessions": [], "results": {}}


@dataclass
class Results:
    """The content of ``gpu.json``.

    ``sessions`` has an entry for each call: the machine, the software, the commit and the date. ``results`` maps the
    key of a measurement to its ``status`` (``ok``, ``failed``, ``timeout``, ``skipped``, ``started``, ``cut``),
    ``session``, ``seconds``, ``settings``, and ``values`` or ``error``.
    """

    path: Path
    content: dict[str, Any]

    @classmethod
    def open(cls, folder: Path, *, tiny: bool) -> "Results":
        """Read the file of a folder, or begin one.

        Raises:
            UnusableResults: The file is damaged, or holds results of the other kind.
        """
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "gpu.json").exists():
            return cls(folder / "gpu.json", empty(tiny))
        found = cls.read(folder)
        if found.content["tiny"] != tiny:
            kind = "with" if found.content["tiny"] else "without"
            raise UnusableResults(f"{found.path} was begun {kind} --tiny. Choose another folder with --out.")
        return found

    @classmethod
    def read(cls, folder: Path) -> "Results":
        """Read the file of a folder; without a file, nothing has been measured yet.

        Raises:
            UnusableResults: The file is damaged.
        """
        path = folder / "gpu.json"
        if not path.exists():
            return cls(path, empty())
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UnusableResults(f"{path} cannot be read: {error}. Restore it, or remove it.") from error
        if not isinstance(content, dict) or content.keys() != empty().keys() or content["schema"] != SCHEMA:
            raise UnusableResults(f"{path} is not a file of this version of benchmarks/gpu.py. Choose another --out.")
        return cls(path, content)

    def is_done(self, key: str) -> bool:
        """Return whether a measurement has a result that another call would not change."""
        entry = self.content["results"].get(key)
        if entry is None or entry["status"] == "skipped":  # the package may be there now
            return False
        return entry["status"] not in ("started", "cut") or entry["attempts"] >= ATTEMPTS

    def begin(self, key: str, entry: dict[str, Any]) -> None:
        """Note that a measurement has started, in case that it takes the machine down."""
        before = self.content["results"].get(key, {})
        attempts = before["attempts"] if before.get("status") in ("started", "cut") else 0
        self.content["results"][key] = {**entry, "status": "started", "attempts": attempts + 1}
        self.save()

    def finish(self, key: str, outcome: dict[str, Any]) -> None:
        """Enter the outcome of a measurement that was begun."""
        self.content["results"][key] |= outcome
        self.save()

    def add_session(self, session: dict[str, Any]) -> int:
        """Enter a call; return its number."""
        self.content["sessions"].append(session)
        self.save()
        return len(self.content["sessions"]) - 1

    def save(self) -> None:
        self.write_to(self.path)

    def write_to(self, path: Path) -> None:
        """Write the file completely or not at all."""
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        partial.write_text(json.dumps(self.content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        os.replace(partial, path)
