"""What the scripts that attack usvit share: hostile files, a process with limits for one case, checks, and a summary.

``special_files`` puts something that is not a plain file in place of a file. ``run_apart`` calls a function, and
``run_command`` the command line, in a forked child process with limits on time and memory. ``Ended.outcome`` is one of

- ``passed`` (exit code 0 or 3) and ``refused`` (a ``UsvitError``, exit code 2);
- ``TRACEBACK``: another exception, another exit code, or a signal;
- ``HANG``: more than ``seconds`` of CPU time, or three times as long without using the CPU;
- ``MEMORY``: more resident memory than ``memory_gb`` beyond that of the parent process, child processes included;
- ``WROTE OUTSIDE``: a file of ``unchanged`` is not as it was.

The functions use ``fork`` and ``/proc``, so they run on Linux only.
"""

import contextlib
import hashlib
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

Rng = np.random.Generator
ADDRESS_GB = 64.0
"""Limit of the address space of a case beyond that of its parent process, so that the machine survives."""


@dataclass
class Ended:
    """How one case ended."""

    status: int | str
    """Exit code, ``hang``, ``memory`` or ``signal N``."""
    text: str
    """What the process printed, and the text of its error."""
    seconds: float
    """Seconds of CPU time of the process and those that it started."""
    elapsed: float
    gigabytes: float
    """Largest resident memory beyond that at the start, child processes included."""
    kind: str = ""
    name: str = ""
    changed: list[str] = field(default_factory=list)
    """Paths outside of the case's own folders that are not as they were."""

    @property
    def outcome(self) -> str:
        if self.changed:
            return "WROTE OUTSIDE"
        if self.status in ("hang", "memory"):
            return str(self.status).upper()
        if self.status in (0, 3):
            return "passed"
        return "refused" if self.status == 2 else "TRACEBACK"

    @property
    def bad(self) -> bool:
        return self.outcome.isupper()

    @property
    def last_line(self) -> str:
        lines = [line for line in self.text.splitlines() if line.strip() and not line.startswith("This is a bug")]
        return lines[-1][:200] if lines else ""


# Things that are not plain files, in the place of a file.


def _absent(path: Path) -> None:
    path.unlink(missing_ok=True)


def _sparse(path: Path) -> None:
    with open(path, "wb") as file:
        file.truncate(30 * 10**9)


def _linked(target: str) -> Callable[[Path], object]:
    return lambda path: path.symlink_to(target)


SPECIAL_FILES: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "sparse file of 30 GB": _sparse,
    "link to /dev/zero": _linked("/dev/zero"),
    "link to an input-output error": _linked("/proc/self/mem"),
    "link to nothing": _linked("/nonexistent/file"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "folder": lambda path: path.mkdir(),
    "nothing": _absent,
    "empty file": lambda path: path.touch(),
    "bytes that are not text": lambda path: path.write_bytes(b"\xff\xfe\x00\x81" * 500),
    "one line of 50 MB": lambda path: path.write_bytes(b"a" * 50_000_000),
}
"""Name -> function that puts it where nothing is. Reading ``/proc/self/mem`` gives EIO, as a bad disk does."""


def put_special(path: Path, name: str) -> None:
    """Replace a file by one of ``SPECIAL_FILES``."""
    path.unlink(missing_ok=True)
    SPECIAL_FILES[name](path)


# One case in a process with limits.


def run_apart(
    work: Callable[[], object],
    *,
    seconds: float = 10,
    memory_gb: float = 3,
    address_gb: float | None = ADDRESS_GB,
    folder: Path | None = None,
) -> Ended:
    """Call a function in a forked child process, and end it when it exceeds a limit.

    Args:
        work: The function. What it returns is printed; a ``UsvitError`` counts as exit code 2.
        seconds: Limit of the CPU time. A process that does not use the CPU is ended after three times as long, so that
            a busy machine is not taken for a hang.
        memory_gb: Limit of the resident memory beyond that of this process, in GB.
        address_gb: Limit of the address space of each process beyond that of this one; None for no limit.
        folder: Working directory of the child.
    """
    sys.stdout.flush()
    start = moved = time.monotonic()
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            _be_child(work, address_gb, folder, said.fileno())
        base, status, cpu, most = _resident(child), None, 0.0, 0
        while status is None:
            time.sleep(0.02)
            resident, used = _session(child)
            most, now = max(most, resident - base), time.monotonic()
            if used > cpu:
                cpu, moved = used, now
            ended, code, usage = os.wait4(child, os.WNOHANG)
            if ended:
                most = max(most, usage.ru_maxrss * 1024 - base)
                status = f"signal {os.WTERMSIG(code)}" if os.WIFSIGNALED(code) else os.WEXITSTATUS(code)
            elif cpu > seconds or now - moved > 3 * seconds:
                status = "hang"
            elif most > memory_gb * 1e9:
                status = "memory"
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the processes that it left, too
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.wait4(child, 0)
        if most > memory_gb * 1e9:
            status = "memory"
        said.seek(0)
        text = said.read(10_000_000).decode("utf-8", "replace")
    return Ended(status, text, cpu, time.monotonic() - start, most / 1e9)


def run_command(arguments: Sequence[str], **limits: object) -> Ended:
    """Run ``usvit ARGUMENTS`` in a forked child process; the limits are those of ``run_apart``."""

    def work() -> None:
        from usvit.cli import main

        sys.argv = ["usvit", *arguments]
        main()

    return run_apart(work, **limits)  # type: ignore[arg-type]


def _be_child(work: Callable[[], object], address_gb: float | None, folder: Path | None, said: int) -> None:
    """Call the function in this process; never return."""
    code = 70
    try:
        os.setsid()  # so that its child processes are counted, and end with it
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if folder is not None:
            os.chdir(folder)
        if address_gb is not None:
            now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (now + int(address_gb * 1e9),) * 2)
        from usvit.errors import UsvitError

        try:
            returned = work()
            if returned is not None:
                print(returned)
            code = 0
        except UsvitError as error:
            print(error)
            code = error.exit_code
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _resident(process: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _session(process: int) -> tuple[int, float]:
    """Return the resident bytes and the seconds of CPU time of a process and of all processes in its session.

    The CPU time of a process that has ended is included in that of the process that has waited for it.
    """
    total, ticks = 0, 0
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                fields = (path / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == process or int(path.name) == process:
                    total += int((path / "statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
                    ticks += sum(map(int, fields[11:15]))
    return total, ticks / os.sysconf("SC_CLK_TCK")


# Checks and summary.


def snapshot(folder: Path) -> dict[str, str]:
    """Return path -> hash, target or kind, for everything below a folder; only plain files are opened."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = f"link to {path.readlink()}"
        elif path.is_file():
            size = path.stat().st_size
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if size < 10**9 else f"{size} bytes"
        else:
            found[str(path)] = "folder" if path.is_dir() else "other"
    return found


def changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """Return the paths that two snapshots have differently."""
    return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def tell(cases: Sequence[Ended]) -> None:
    """Print the outcomes by kind, the slowest and the largest cases, and the failures."""
    for kind in dict.fromkeys(case.kind for case in cases):
        counts = Counter(case.outcome for case in cases if case.kind == kind)
        print(f"{kind:24}  " + ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    slow = sorted(cases, key=lambda case: -case.seconds)[:4]
    large = sorted(cases, key=lambda case: -case.gigabytes)[:4]
    print("slowest (CPU time): " + ", ".join(f"{one.kind}, {one.name}: {one.seconds:.1f} s" for one in slow))
    print("largest: " + ", ".join(f"{one.kind}, {one.name}: {one.gigabytes:.2f} GB" for one in large))
    bad = Counter(case.outcome for case in cases if case.bad)
    print(f"{len(cases)} cases, {sum(bad.values())} bad: {dict(bad) or 'none'}")


def show_bad(cases: Iterable[Ended], everything: bool = False) -> list[Ended]:
    """Return the cases in a list; each bad one, or each, is printed as soon as it has ended."""
    found = []
    for case in cases:
        found.append(case)
        if case.bad or everything:
            what = ", ".join(case.changed[:3]) or case.last_line
            print(f"  {case.outcome} {case.kind}: {case.name}: {what}", file=sys.stderr, flush=True)
    return found
