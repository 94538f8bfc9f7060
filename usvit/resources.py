"""Resources: CPU cores, memory, the cache folder, and the files that ship with usvit.

These are recipes, data cards, weights and the documentation. In a checkout they lie beside the package, where people
edit them; a wheel contains them inside the package (``tool.hatch.build`` in pyproject.toml).
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from usvit.errors import SaidElsewhere, UsvitError, unknown

_PACKAGE = Path(__file__).resolve().parent


def _shipped(name: str) -> Path:
    inside = _PACKAGE / "_shipped" / name
    return inside if inside.exists() else _PACKAGE.parent / name


def configs_dir() -> Path:
    """Return the folder of recipes, with one folder per kind of run."""
    return _shipped("configs")


def data_cards_dir() -> Path:
    """Return the folder of data cards, one Markdown file per data set."""
    return _shipped("data_cards")


def weights_dir() -> Path:
    """Return the folder of the weights that ship with usvit, with one folder per set of weights."""
    return _shipped("weights")


def docs_dir() -> Path:
    """Return the folder of the documentation, with a folder each for how-to, reference, explanation and tutorial."""
    return _shipped("docs")


def lock_file() -> Path:
    """Return the lock file: versions and SHA-256 of every package that usvit and its extras need."""
    return _shipped("requirements.lock")


def documentation_page(name: str) -> Path:
    """Return the file of a page of the documentation.

    Args:
        name: Name of the page, such as ``score`` or ``how-to/score``.

    Raises:
        UsvitError: There is no such page.
    """
    pages = {page.stem: page for page in sorted(docs_dir().rglob("*.md"))}
    wanted = name.removesuffix(".md").rpartition("/")[2]
    if wanted not in pages:
        raise unknown("page", name, pages, "'usvit docs' lists all.")
    return pages[wanted]


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use; a container or ``taskset`` may reduce it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def free_memory(root: Path = Path("/")) -> int | None:
    """Return the number of bytes that this process can take before the system swaps or kills; None if unknown.

    It is the least of what the machine has left and of what each control group (a container, a job of Slurm) has left.
    Pages of files count as free, because the system gives them back.

    Args:
        root: Folder that contains ``proc`` and ``sys``.
    """
    return _least(root, "MemAvailable:", _left_in_group)


def total_memory(root: Path = Path("/")) -> int | None:
    """Return the number of bytes that the machine has, or that a container or a job may use; None if unknown.

    Unlike ``free_memory``, it does not depend on what other programs do.

    Args:
        root: Folder that contains ``proc`` and ``sys``.
    """
    return _least(root, "MemTotal:", _limit_of_group)


def _least(root: Path, of_machine: str, of_group: Callable[[Path], list[int]]) -> int | None:
    """Return the least of a line of ``meminfo`` and of the numbers of this process's control groups."""
    found: list[int] = []
    with contextlib.suppress(OSError, ValueError, KeyError):
        found.append(_numbers(root / "proc/meminfo")[of_machine] * 1024)
    with contextlib.suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if controllers not in ("", "memory"):
                continue
            top = root / "sys/fs/cgroup" / controllers  # version 2 has no controllers here, version 1 has a tree each
            group = top / name.lstrip("/")
            for folder in (group, *group.parents):
                found += of_group(folder)
                if folder == top:
                    break
    return max(0, min(found)) if found else None


_GROUP_FILES = (
    ("memory.max", "memory.current", ("active_file", "inactive_file")),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file")),
)
"""Files of a control group of version 2 and of version 1: limit, usage, and the lines of ``memory.stat`` about pages of
files."""


def _left_in_group(folder: Path) -> list[int]:
    """Return the bytes that a control group has left; empty without a limit."""
    for limit, usage, pages in _GROUP_FILES:
        with contextlib.suppress(OSError, ValueError):  # another version, or the limit is "max"
            free = int((folder / limit).read_text()) - int((folder / usage).read_text())
            of_files = _numbers(folder / "memory.stat")
            return [free + sum(of_files.get(name, 0) for name in pages)]
    return []


def _limit_of_group(folder: Path) -> list[int]:
    """Return the limit of a control group in bytes; empty without one."""
    for limit, _, _ in _GROUP_FILES:
        with contextlib.suppress(OSError, ValueError):
            return [int((folder / limit).read_text())]
    return []


def _numbers(path: Path) -> dict[str, int]:
    """Read lines such as ``MemAvailable: 100 kB`` or ``inactive_file 100``."""
    return {name: int(number) for name, number, *_ in map(str.split, path.read_text().splitlines())}


def process_rank() -> int:
    """Return the rank of this process under ``torchrun``, else 0; rank 0 prints and writes files."""
    return int(os.environ.get("RANK", 0)) if "TORCHELASTIC_RUN_ID" in os.environ else 0


@contextmanager
def said_once() -> Iterator[None]:
    """Report an error that all processes of ``torchrun`` raise only once per machine, before they are connected.

    Raises:
        UsvitError: Raised in the block; all but one process of a machine raise ``SaidElsewhere`` instead.
    """
    try:
        yield
    except UsvitError as error:
        if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("LOCAL_RANK", "0") != "0":
            raise SaidElsewhere(error.exit_code) from error
        raise


def cache_dir() -> Path:
    """Return the user's cache folder (``USVIT_CACHE``, else the system's convention); its content can be recreated."""
    import platformdirs  # here, because ``usvit --help`` must answer quickly

    return Path(os.environ.get("USVIT_CACHE") or platformdirs.user_cache_dir("usvit", appauthor=False))
