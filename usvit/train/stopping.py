"""A polite end: a signal asks a training to stop, and the next step's boundary is where it does."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from usvit.errors import EXIT_STOPPED, UsvitError

SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGUSR1") if hasattr(signal, name))
"""What clusters send before they take a machine away; Slurm sends what ``--signal`` names."""


class Stopped(UsvitError):
    """Somebody asked the training to stop, and it did: its state is on the disk. Not a failure.

    ``str`` is empty in all processes but the first, so that one sentence is said once.
    """

    exit_code = EXIT_STOPPED


class StopRequest:
    """Whether a signal has come; ``name`` says which, None for none."""

    def __init__(self) -> None:
        self.name: str | None = None

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        self.name = self.name or signal.Signals(number).name  # repeated ones change nothing


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Note the ``SIGNALS`` instead of dying of them; what they did before comes back at the end.

    Outside of the main thread, where Python takes no signals, nothing changes.
    """
    request = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    before = {number: signal.signal(number, request) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            # None: it was not Python that set it
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def stopped(name: str, step: int, first: bool) -> Stopped:
    """What to raise once the state after ``step`` steps is on the disk."""
    if not first:
        return Stopped("")
    return Stopped(
        f"Stopped by {name} at step {step}. Nothing is lost: the state of this step is on the disk, and the same "
        "command goes on from there."
    )
