"""Resources: CPU cores, the cache folder, and the files that ship with usvit (recipes and data cards).

In a checkout these files lie beside the package, where people edit them; a wheel contains them inside the package
(``tool.hatch.build`` in pyproject.toml).
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
    """Return the folder of recipes, with one folder per kind of run."""
    return _shipped("configs")


def data_cards_dir() -> Path:
    """Return the folder of data cards, one Markdown file per data set."""
    return _shipped("data_cards")


def usable_cores() -> int:
    """Return the number of CPU cores that this process may use; a container or ``taskset`` may reduce it."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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
    return Path(os.environ.get("USVIT_CACHE") or platformdirs.user_cache_dir("usvit", appauthor=False))
