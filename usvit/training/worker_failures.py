"""Errors that explain the loss of a process of the training, instead of a traceback."""

import re
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed as dist

from usvit.errors import UsvitError

_WORKER = re.compile(r"DataLoader worker \(pid.*?\) (is killed by signal: (?P<signal>[\w ]+)|exited unexpectedly)")
_PEER = re.compile(
    r"gloo|NCCL|ncclRemoteError|Connection (closed|reset) by peer|Broken pipe|TCPStore|Timed out waiting"
)

_GONE = "Another process of this training ended or does not respond; its error message, if any, is printed above."


@contextmanager
def lost_processes(last_checkpoint: Callable[[], int], batches: Iterator[Any]) -> Iterator[None]:
    """Turn the loss of a loader's worker or of another process into an error that says what to do.

    Args:
        last_checkpoint: returns the step of the last checkpoint, 0 if there is none.
        batches: the iterator that the workers serve; it is closed when a worker is lost.

    Raises:
        UsvitError: a process was lost.
    """
    try:
        yield
    except (RuntimeError, ConnectionError, EOFError) as error:
        text = str(error)
        if (found := _WORKER.search(text)) or _died_during_transfer(error):
            _end_workers(error, batches)
            how = f"was ended by the signal {found['signal']}" if found and found["signal"] else "ended"
            raise UsvitError(
                f"A process that loads batches {how}. The usual reason is lack of memory: try fewer --workers. "
                f"{_how_to_continue(last_checkpoint())}"
            ) from error
        if _is_peer_failure(error):
            raise UsvitError(f"{_GONE} {_how_to_continue(last_checkpoint())}") from error
        raise


@contextmanager
def lost_peers() -> Iterator[None]:
    """Turn the loss of another process into an error, outside of the training steps.

    Raises:
        UsvitError: a process was lost.
    """
    try:
        yield
    except (RuntimeError, ConnectionError, EOFError) as error:
        if _is_peer_failure(error):
            raise UsvitError(f"{_GONE} The same command continues from the last saved state.") from error
        raise


def _is_peer_failure(error: BaseException) -> bool:
    return dist.is_initialized() and (isinstance(error, dist.DistError) or _PEER.search(str(error)) is not None)


def _died_during_transfer(error: BaseException) -> bool:
    """Return whether a worker died while its batch was transferred; Python then reports a broken connection."""
    places = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    return not isinstance(error, RuntimeError) and any("multiprocessing" in place for place in places)


def _end_workers(error: BaseException, batches: Iterator[Any]) -> None:
    """End the remaining workers. Without this, PyTorch raises the error again, anywhere, as each of them ends."""
    main = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGCHLD")
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL) if main else None
    try:
        traceback.clear_frames(error.__traceback__)
        if isinstance(batches, Generator):
            batches.close()
    finally:
        if before is not None:
            signal.signal(signal.SIGCHLD, before)


def _how_to_continue(step: int) -> str:
    if step:
        return f"The last checkpoint is of step {step}: the same command continues from there."
    return "There was no checkpoint yet: the same command starts again."
