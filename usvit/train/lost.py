"""When a process that took part in a training is gone: what to say instead of a traceback."""

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

_GONE = "Another process of this training is gone, or does not answer; if it said why, it did so above."


@contextmanager
def lost_processes(last_checkpoint: Callable[[], int], batches: Iterator[Any]) -> Iterator[None]:
    """Turn the loss of a loader's worker, or of another process of the training, into an error that says what to do.

    Args:
        last_checkpoint: the step of the last one; 0: there is none.
        batches: what the workers make; closed when one is lost.

    Raises:
        UsvitError: a process is gone.
    """
    try:
        yield
    except (RuntimeError, ConnectionError, EOFError) as error:
        text = str(error)
        if (found := _WORKER.search(text)) or _while_handing_over(error):
            _let_go(error, batches)
            how = f"was ended ({found['signal']})" if found and found["signal"] else "ended"
            raise UsvitError(
                f"A process that makes batches {how}. Often that is the system, out of memory: try fewer --workers. "
                f"{_go_on(last_checkpoint())}"
            ) from error
        if _of_peer(error):
            raise UsvitError(f"{_GONE} {_go_on(last_checkpoint())}") from error
        raise


@contextmanager
def lost_peers() -> Iterator[None]:
    """Outside of the steps: turn the loss of another process of the training into an error.

    Raises:
        UsvitError: one is gone.
    """
    try:
        yield
    except (RuntimeError, ConnectionError, EOFError) as error:
        if _of_peer(error):
            raise UsvitError(f"{_GONE} The same command goes on from what is on the disk.") from error
        raise


def _of_peer(error: BaseException) -> bool:
    return dist.is_initialized() and (isinstance(error, dist.DistError) or _PEER.search(str(error)) is not None)


def _while_handing_over(error: BaseException) -> bool:
    """Whether a worker died while its batch was being fetched: Python then speaks of a connection."""
    places = (frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__))
    return not isinstance(error, RuntimeError) and any("multiprocessing" in place for place in places)


def _let_go(error: BaseException, batches: Iterator[Any]) -> None:
    """End the workers that are left. PyTorch would raise the error again at each that ends, wherever we are then."""
    main = threading.current_thread() is threading.main_thread() and hasattr(signal, "SIGCHLD")
    before = signal.signal(signal.SIGCHLD, signal.SIG_DFL) if main else None
    try:
        traceback.clear_frames(error.__traceback__)
        if isinstance(batches, Generator):
            batches.close()
    finally:
        if before is not None:
            signal.signal(signal.SIGCHLD, before)


def _go_on(step: int) -> str:
    at = f"The last checkpoint is of step {step}: the" if step else "There was no checkpoint yet: the"
    return f"{at} same command goes on from there." if step else f"{at} same command begins again."
