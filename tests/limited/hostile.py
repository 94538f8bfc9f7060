"""Functions that behave as the worst files make parsers behave; workers import them by name."""

import os
import signal
import time
from pathlib import Path

from usvit.errors import UsvitError


def count(n):
    yield from range(n)


def process():
    return os.getpid()


def hang():
    while True:
        time.sleep(1)


def fill(gigabytes):
    return len(bytearray(int(gigabytes * 1024**3)))


def crash():
    os._exit(3)


def refuse():
    raise UsvitError("The list x is wrong. Write it again.")


def killed(folder, times):
    """Be killed from outside the first ``times`` times; each leaves a file."""
    Path(folder, str(os.getpid())).touch()
    if len(list(Path(folder).iterdir())) <= times:
        os.kill(os.getpid(), signal.SIGKILL)
    return "read"
