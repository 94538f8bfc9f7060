"""The pace at which a study is saved and shown while it runs."""

import time
from collections.abc import Callable

SHARE = 0.05
"""Largest share of the time of a study that is spent on saving and showing it."""
FREE_SECONDS = 2.0
"""Seconds that may be spent beyond that share, so that a small study shows every run."""


class Pace:
    """Skips work that shows progress while it takes too large a share of the time.

    Saving and showing a study takes longer, the more runs it has. If every run did it, a study of n short runs would
    take a time that grows with n squared.

    Args:
        clock: Function that returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter):
        self._clock = clock
        self._begun, self._spent = clock(), 0.0

    def do(self, work: Callable[[], object]) -> bool:
        """Do the work unless it has taken too much of the time already; return whether it was done."""
        now = self._clock()
        if self._spent > FREE_SECONDS + SHARE * (now - self._begun):
            return False
        work()
        self._spent += self._clock() - now
        return True
