"""Things that are not plain files, in the place of a file."""

import os
from collections.abc import Callable
from pathlib import Path


def _absent(path: Path) -> None:
    path.unlink(missing_ok=True)


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(30 * 10**9)


def _linked(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


SPECIAL_FILES: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "sparse file of 30 GB": _sparse,
    "link to /dev/zero": _linked("/dev/zero"),
    "link to an input-output error": _linked("/proc/self/mem"),
    "link to nothing": _linked("/nonexistent/file"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "folder": lambda path: path.mkdir(),
    "nothing": _absent,
    "empty file": lambda path: path.touch(),
    "bytes that are not text": lambda path: path.write_bytes(b"\xff\xfe\x00\x81" * 500),
    "one line of 50 MB": lambda path: path.write_bytes(b"a" * 50_000_000),
}
"""Name -> function that puts it where nothing is. Reading ``/proc/self/mem`` gives EIO, as a bad disk does."""


def put_special(path: Path, name: str) -> None:
    """Replace a file by one of ``SPECIAL_FILES``."""
    path.unlink(missing_ok=True)
    SPECIAL_FILES[name](path)
