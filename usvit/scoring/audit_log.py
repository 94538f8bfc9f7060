"""``usvit score --audit-log FILE``: a record of who scored, when, with which network and key, and how many images.

The file holds JSON lines and no data about patients. A ``started`` line is appended before anything is scored and an
``ended`` line at the end, both with the same ``attempt``. A process that is killed leaves only the first line; the next
attempt at the same job has the same ``job``. Existing lines are never read or changed, so several jobs may share the
file.
"""

import errno
import getpass
import json
import os
import secrets
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import usvit
from usvit.errors import EXIT_BUG, EXIT_DONE, EXIT_PARTLY, UsvitError
from usvit.plain_data import Json

_SCHEMA_VERSION = "1.0"
_EXIT_INTERRUPTED = 130
"""Exit code that shells report for a process ended by Ctrl-C: 128 + SIGINT."""


@dataclass
class _Attempt:
    """The work of one process on a job; the caller fills it in before it ends."""

    counts: dict[str, int] = field(default_factory=dict)
    """The key ``counts`` of ``summary.json``."""
    partly: bool = False


@contextmanager
def audited(path: Path | None, *, out: Path, job: str, model: str, key: str) -> Iterator[_Attempt]:
    """Append one line before and one line after the work on a job.

    Args:
        path: the log; None: write nothing.
        out: folder of the job; the log must lie outside it.
        job: identifies the job, for example a pseudonym of its inputs; the same for all attempts.
        model: SHA-256 of the networks.
        key: fingerprint of the pseudonyms' key.

    Raises:
        UsvitError: the log lies in ``out``, is not a regular file, can be read by others, or cannot be written.
    """
    attempt = _Attempt()
    if path is None:
        yield attempt
        return
    if Path(os.path.realpath(path)).is_relative_to(Path(os.path.realpath(out))):
        raise UsvitError(f"The audit log {path} lies in the output folder {out}. Choose a file outside it.")
    common = {"schema_version": _SCHEMA_VERSION, "attempt": secrets.token_hex(8), "job": job}
    who = {"user": _user(), "uid": os.getuid() if hasattr(os, "getuid") else None, "host": socket.gethostname()}
    begun = time.monotonic()  # the system clock may be set back
    what = {"model_sha256": model, "key_fingerprint": key, "usvit": usvit.__version__, "process": os.getpid()}
    _append(path, {"event": "started", "time": _now(), **common, **who, **what})
    end: Json = {"exit": EXIT_BUG, "error": None}
    try:
        yield attempt
        end["exit"] = EXIT_PARTLY if attempt.partly else EXIT_DONE
    except BaseException as error:
        end["error"] = type(error).__name__  # the message may name a file
        if isinstance(error, UsvitError):
            end["exit"] = error.exit_code
        elif isinstance(error, KeyboardInterrupt):
            end["exit"] = _EXIT_INTERRUPTED
        raise
    finally:
        seconds = round(time.monotonic() - begun, 1)
        _append(path, {"event": "ended", "time": _now(), **common, **end, "seconds": seconds, "counts": attempt.counts})


def _append(path: Path, line: Json) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    for name in ("O_NOFOLLOW", "O_CLOEXEC", "O_NONBLOCK"):  # non-blocking: opening a pipe without a reader would hang
        flags |= getattr(os, name, 0)
    content = (json.dumps(line, ensure_ascii=True) + "\n").encode()
    try:
        file = os.open(path, flags, 0o600)
        try:
            _refuse_shared(path, os.fstat(file))
            # A single write per line, so that lines of several processes do not mix.
            if os.write(file, content) != len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file)
        finally:
            os.close(file)
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else os.strerror(error.errno or 0)
        raise UsvitError(
            f"The audit log {path} cannot be written: {why}. Pass another file with --audit-log; its folder must exist."
        ) from error


def _refuse_shared(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UsvitError(f"The audit log {path} is not a regular file. Pass another file with --audit-log.")
    if os.name == "posix" and status.st_mode & 0o077:
        mode = stat.S_IMODE(status.st_mode)
        raise UsvitError(f"Other users can access the audit log {path} (mode {mode:03o}). Run: chmod 600 {path}")


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        return None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
