"""Watched folders in which an exporter replaces, removes, grows and links files between the steps of the node.

Each image that it left in place must be stored, or still be there; nothing outside may change.
"""

import contextlib
import functools
import io
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.fuzzing.associations import image
from benchmarks.fuzzing.child import Ended, run_apart
from benchmarks.fuzzing.harness import Options


def folders(root: Path, options: Options) -> Iterator[Ended]:
    import usvit.node  # noqa: F401

    for number in options.numbers:
        folder = root / str(number)
        (folder / "inbox").mkdir(parents=True)
        saved(folder / "outside" / "secret.dcm", 7_000_000)
        work = functools.partial(watch, folder, options.random(number))
        outside = (folder / "outside",)
        yield run_apart(work, outside=outside, kind="watched folder", name=str(number), **options.limits)


def saved(path: Path, number: int, **tags: Any) -> Path:
    """Write an image as a file, as an exporter does: under another name, and then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{number}")
    image(number, **tags).save_as(partial, enforce_file_format=True)
    os.replace(partial, path)
    return path


class Exporter:
    """Writes images, and does harm to the files of the folder."""

    def __init__(self, folder: Path, rng: random.Random):
        self.folder, self._rng = folder, rng
        self.kept: dict[Path, int] = {}
        """File -> number of the image that the exporter has put there and not touched since."""
        self.moved: set[int] = set()
        """Images that were gone when the exporter came back to their place: the node has taken them."""
        self._number = 0

    def put(self) -> None:
        path = self.folder / "inbox" / self._rng.choice(("a.dcm", "b.dcm", "sub/c.dcm"))
        self._leave(path)
        self._number += 1
        if path.is_dir() and not path.is_symlink():
            return
        with contextlib.suppress(OSError):
            self.kept[saved(path, self._number)] = self._number

    def harm(self) -> None:
        path = self.folder / "inbox" / self._rng.choice(("a.dcm", "b.dcm", "sub/c.dcm"))
        kind = self._rng.choice(("fifo", "link", "folder", "gone", "grow", "cut", "sparse", "text", "private", "loop"))
        if kind == "private":
            with contextlib.suppress(OSError):
                (self.folder / "inbox" / ".usvit").symlink_to(self.folder / "outside")
            return
        self._leave(path)
        with contextlib.suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            if kind in ("grow", "cut", "sparse"):
                if path.is_symlink():
                    return
                size = {"grow": path.stat().st_size + 100, "cut": 300, "sparse": 6 << 30}[kind]
                os.truncate(path, size)
                return
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            path.unlink(missing_ok=True)
            if kind == "fifo":
                os.mkfifo(path)
            elif kind in ("link", "loop"):
                path.symlink_to(self.folder / "outside" / "secret.dcm" if kind == "link" else path)
            elif kind == "folder":
                path.mkdir()
            elif kind == "text":
                path.write_text("no image")

    def _leave(self, path: Path) -> None:
        """Note that the exporter itself destroys what is at a path, if the node has not taken it."""
        number = self.kept.pop(path, None)
        if number is not None and not path.exists():
            self.moved.add(number)


def watch(folder: Path, rng: random.Random) -> str:
    from usvit.node.config.settings import WatchedFolderConfig
    from usvit.node.database import NodeDatabase
    from usvit.node.receiving import folder_watcher
    from usvit.node.receiving.instance_store import InstanceStore
    from usvit.pseudonyms import Pseudonyms

    (folder / "node").mkdir()
    database = NodeDatabase(folder / "node" / "node.sqlite", create=True)
    store = InstanceStore(folder / "node", database, Pseudonyms(bytes(range(32))))
    settings = WatchedFolderConfig(path=folder / "inbox", settle_seconds=0, keep=rng.random() < 0.2)
    watcher, exporter = folder_watcher.FolderWatcher(settings, store), Exporter(folder, rng)
    disturbed = True

    def disturbing(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            for when in (0, 1):
                if when:
                    found = call(*args, **options)
                if disturbed and rng.random() < 0.4:
                    rng.choice((exporter.put, exporter.harm))()
            return found

        return wrapped

    for name in ("_looks_right", "_move", "_copied"):
        setattr(watcher, name, disturbing(getattr(watcher, name)))
    store.take = disturbing(store.take)  # type: ignore[method-assign]
    folder_watcher.regular_file = disturbing(folder_watcher.regular_file)
    for _ in range(12):
        exporter.put()
        if rng.random() < 0.5:
            exporter.harm()
        watcher.look()
    disturbed = False
    for _ in range(3):
        watcher.look()
    stored = {row[0] for row in database.rows("SELECT sop_instance_uid FROM instances")}
    there = {
        path.read_bytes() for path in (folder / "inbox").rglob("*") if path.is_file() and path.stat().st_size < 1e7
    }
    expected = {number for path, number in exporter.kept.items()} | exporter.moved
    lost = [number for number in expected if str(image(number).SOPInstanceUID) not in stored | _uids(there)]
    assert not lost, f"{len(lost)} of {len(expected)} images are lost"
    assert not list((folder / "node" / "incoming" / ".partial").iterdir()), "a partial file is left"
    assert str(image(7_000_000).SOPInstanceUID) not in stored, "an image from outside was taken in"
    return f"{len(stored)} stored, {len(expected)} expected"


def _uids(contents: set[bytes]) -> set[str]:
    from pydicom import dcmread

    found = set()
    for content in contents:
        with contextlib.suppress(Exception):
            found.add(str(dcmread(io.BytesIO(content), stop_before_pixels=True).SOPInstanceUID))
    return found
