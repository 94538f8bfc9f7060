"""Readers for the tests of worker processes; an item's name says what happens to it."""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from usvit.data.io.bad_image import BadImage
from usvit.scoring.items import Failure, Frame, ItemFacts, ReadSettings, ScoringItem

SETTINGS = ReadSettings(image_size=32, resize="squash", crop="whole")


def frame(number: int, side: int = 32) -> Frame:
    return Frame(number, np.full((side, side, 3), number % 256, np.uint8), f"{number}", (), 0.5)


def facts(n_frames: int, device: str = "") -> ItemFacts:
    return ItemFacts("picture", "0" * 64, n_frames, None, (), "", "", "", device)


def read(item: ScoringItem, settings: ReadSettings) -> Iterator[ItemFacts | Frame | Failure | None]:
    """``word:number``: one frame each, or as the word says.

    "killed" kills its process once, halfway, and leaves a file at its ``location``.
    Where an item has a ``location``: "frames" writes a dot for each into that file; "meet" and "meet-and-hang" leave a
    file named by the process in that folder, and go on when there are two.
    """
    word, _, text = item.name.partition(":")
    number = int(text or 0)
    if word.startswith("meet"):
        (Path(item.location) / str(os.getpid())).touch()
        while len(list(Path(item.location).iterdir())) < 2:
            time.sleep(0.01)
    if word == "killed":
        yield facts(number)
        for k in range(number):
            yield frame(k)
            if k == number // 2 and not Path(item.location).exists():
                Path(item.location).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return
    yield facts(number if word == "frames" else 1, device=str(os.getpid()))
    if word == "frames":
        for k in range(number):
            yield frame(k, settings.image_size)
            if item.location:
                with Path(item.location).open("a") as file:  # how far it got
                    file.write(".")
        return
    if word == "slow":
        time.sleep(number / 1000)
    yield frame(number, settings.image_size)
    if word in BAD_ENDS:
        BAD_ENDS[word]()
    if word == "failed-then-crash":
        yield Failure("damaged")
        os._exit(1)
    if word == "alive":
        for _ in range(number):
            time.sleep(0.01)
            yield None
        yield frame(1)


def _segfault() -> None:
    ctypes.string_at(0)


def _raise() -> None:
    raise RuntimeError("Patient Doe, Jane")


def _bad_image() -> None:
    raise BadImage(Path("Doe_Jane.dcm"), "Patient Doe, Jane", "truncated")


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _allocate() -> None:
    kept = []
    for _ in range(64):  # 4 GB
        kept.append(np.ones(64 * 1024**2, np.uint8))


def _recurse() -> None:
    _recurse()


def hang() -> None:
    time.sleep(1000)


def hang_in_c() -> None:
    """As a decoder that does not let go of the interpreter's lock: no thread of the process runs any more."""
    ctypes.PyDLL(None).pause()


def hang_in_c_soon_over() -> None:
    """Three hundred times faster than ``hang_in_c`` would be ended by its alarm, if one is set."""
    signal.setitimer(signal.ITIMER_REAL, signal.getitimer(signal.ITIMER_REAL)[0] / 300)
    hang_in_c()


BAD_ENDS = {
    "hang": hang,
    "meet-and-hang": hang,
    "hang-in-c": hang_in_c,
    "hang-in-c-soon-over": hang_in_c_soon_over,
    "segfault": _segfault,
    "exit": lambda: os._exit(0),
    "sys-exit": lambda: sys.exit("timeout"),
    "raise": _raise,
    "bad-image": _bad_image,
    "kill": _kill,
    "allocate": _allocate,
    "recurse": _recurse,
}


def describe_process() -> dict[str, object]:
    import cv2

    return {
        "pid": os.getpid(),
        "torch": "torch" in sys.modules,
        "xmlrpc": "xmlrpc" in sys.modules,
        "main": getattr(sys.modules["__main__"], "__file__", None),
        "cv2_threads": cv2.getNumThreads(),
        "omp": os.environ.get("OMP_NUM_THREADS"),
        "interrupt": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
    }


def double(number: int) -> int:
    time.sleep(0.01 * (number % 3))
    if number == 3:
        os._exit(1)
    return 2 * number


def megabytes(count: int) -> bytes:
    return bytes(count * 1024**2)


def chatter() -> None:
    print("Patient Doe, Jane")
    print("Patient Doe, Jane", file=sys.stderr)
    os.write(1, b"Patient Doe, Jane")
    os.write(2, b"Patient Doe, Jane")
