"""Functions that behave as the worst files make parsers behave; workers import them by name."""

import os
import time

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
