"""The pictures that the server sends: encoded in limited reader processes, and kept for a while in bounded memory."""

import contextlib
import json
import queue
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from usvit.data.io import BadImage
from usvit.errors import UsvitError
from usvit.files import Unreadable, read_bytes
from usvit.limited import LimitedCalls, LimitReached
from usvit.reviewing.pixels import frame_png, is_ready, made, mask_png
from usvit.scoring import FAILURES, ScoringItem

_PROCESSES = 2
_MEMORY = 32 * 1024**2
"""Bytes of PNG files that are kept."""
_LARGEST_MAP = 20_000_000
_WHY = {"changed_since_scoring": "it is not the file with which the study began"}
_TELL = "Tell the person who runs the study."


class StudyPictures:
    """Encodes frames, masks and maps; a context manager that ends its processes. Threads may share it.

    Args:
        crop: ``tissue`` or ``whole`` (``SourceSettings.crop``).
    """

    def __init__(self, crop: str):
        self._crop = crop
        self._idle: queue.Queue[LimitedCalls] = queue.Queue()
        self._all = [LimitedCalls(frame_png.__module__) for _ in range(_PROCESSES)]
        for one in self._all:
            self._idle.put(one)
        self._kept: OrderedDict[tuple[Any, ...], bytes] = OrderedDict()
        self._lock, self._used = threading.Lock(), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._all:
            one.close()

    def start(self) -> None:
        """Start the processes before the first picture is asked for; return at once."""

        def import_all() -> None:
            with (
                contextlib.suppress(UsvitError, LimitReached),
                self._process() as process,
            ):  # it is told when it is used
                process.call(is_ready)

        for _ in self._all:
            threading.Thread(target=import_all, daemon=True).start()

    def frame(self, image: sqlite3.Row, number: int) -> bytes:
        """Return a frame of a row of ``images`` as PNG.

        Raises:
            UsvitError: the file is missing, damaged, or not the one with which the study began.
        """
        return self._made(image, frame_png, number)

    def mask(self, image: sqlite3.Row) -> bytes:
        """Return the outline of the lesions as PNG; errors are those of ``frame``."""
        return self._made(image, mask_png, tuple(Path(one) for one in json.loads(image["masks"])))

    def map(self, image: sqlite3.Row, number: int) -> bytes:
        """Return a picture of ``usvit explain``.

        Raises:
            UsvitError: there is no such picture.
        """
        maps = json.loads(image["maps"])
        if not 0 <= number < len(maps):
            raise UsvitError("There is no such picture.")
        try:
            return read_bytes(Path(maps[number][1]), _LARGEST_MAP)
        except Unreadable as error:
            raise UsvitError(f"The picture cannot be read: {error.reason}.") from error

    def _made(self, image: sqlite3.Row, function: Callable[..., bytes], extra: Any) -> bytes:
        key = (image["id"], function.__name__, extra)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        name, location, member, frame = json.loads(image["item"])
        item = ScoringItem(name, location, member=member, frame=frame)
        try:
            with self._process() as process:
                found = process.call(made, function, item, image["file_sha256"], self._crop, extra)
        except LimitReached as error:
            raise UsvitError(f"The image cannot be shown: {error}. {_TELL}") from error
        if isinstance(found, BadImage):
            raise UsvitError(f"The image cannot be shown: {_WHY.get(found.code, FAILURES[found.code])}. {_TELL}")
        picture: bytes = found
        with self._lock:
            if key not in self._kept:
                self._kept[key] = picture
                self._used += len(picture)
            while self._used > _MEMORY and len(self._kept) > 1:
                self._used -= len(self._kept.popitem(last=False)[1])
        return picture

    @contextmanager
    def _process(self) -> Iterator[LimitedCalls]:
        process = self._idle.get()
        try:
            yield process
        finally:
            self._idle.put(process)
