"""What there is to use: cores, and where the files lie that ship with usvit, recipes and data cards.

In a checkout they stand beside the package, where people edit them; a wheel carries
copies inside the package (``tool.hatch.build`` in pyproject.toml).
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import platformdirs

from usvit.errors import SaidElsewhere, UsvitError

_PACKAGE = Path(__file__).resolve().parent


def _shipped(name: str) -> Path:
    inside = _PACKAGE / "_shipped" / name
    return inside if inside.is_dir() else _PACKAGE.parent / name


def configs_dir() -> Path:
    """The folder of recipes (``finetune/`` and, later, the other stages)."""
    return _shipped("configs")


def data_cards_dir() -> Path:
    """The folder of data cards, one Markdown file per data set."""
    return _shipped("data_cards")


def usable_cores() -> int:
    """CPU cores that this process may use: fewer than the machine has in a container or under ``taskset``."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def process_rank() -> int:
    """Which of the processes of ``torchrun`` this is; 0, the one that speaks and writes, also without it."""
    return int(os.environ.get("RANK", 0)) if "TORCHELASTIC_RUN_ID" in os.environ else 0


@contextmanager
def said_once() -> Iterator[None]:
    """What each process of ``torchrun`` meets alike, before they know one another, one on each machine says.

    Raises:
        UsvitError: as within; in the others of the machine ``SaidElsewhere``.
    """
    try:
        yield
    except UsvitError as error:
        if "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("LOCAL_RANK", "0") != "0":
            raise SaidElsewhere(error.exit_code) from error
        raise


def cache_dir() -> Path:
    """The user's cache folder (``USVIT_CACHE`` or the system's convention); nothing in it is irreplaceable."""
    return Path(os.environ.get("USVIT_CACHE") or platformdirs.user_cache_dir("usvit", appauthor=False))
