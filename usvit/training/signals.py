"""Graceful shutdown on SIGTERM and SIGUSR1: a training stops between two steps."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from usvit.errors import EXIT_STOPPED, UsvitError

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name))
"""The signals that clusters send before they withdraw a machine; Slurm sends the one that ``--signal`` names."""


class Stopped(UsvitError):
    """The training stopped because a signal requested it, and saved its state. This is not a failure.

    The message is empty in all processes except the main one, so that it is printed once.
    """

    exit_code = EXIT_STOPPED


class StopRequest:
    """Signal handler that records the first signal: ``name`` is its name, or None before it arrives."""

    def __init__(self) -> None:
        self.name: str | None = None

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        self.name = self.name or signal.Signals(number).name  # later signals change nothing


@contextmanager
def stop_requests(*more: signal.Signals) -> Iterator[StopRequest]:
    """Record the ``SIGNALS`` and ``more`` instead of ending the process; restore the previous handlers at the end.

    Outside of the main thread, where Python receives no signals, nothing changes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request) for number in (*SIGNALS, *more)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            # None: the handler was not set by Python
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def stopped(name: str, step: int, is_main: bool) -> Stopped:
    """Make the exception to raise after the state of ``step`` was saved."""
    if not is_main:
        return Stopped("")
    return Stopped(
        f"Stopped by {name} at step {step}. Nothing is lost: the state of this step is saved, and the same command "
        "continues from there."
    )
