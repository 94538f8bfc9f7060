"""Public names of a package whose modules are imported when a name is first used."""

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lazy_loader


def lazy_names(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    The ``__init__.py`` imports its names from its modules (``from .module import name as name``) below
    ``if TYPE_CHECKING``, where type checkers and editors read them, and calls this function below ``else``.

    Args:
        package: Name of the package, ``__name__``.
        file: Its ``__init__.py``, ``__file__``.
    """
    modules: dict[str, list[str]] = {}
    for node in ast.walk(ast.parse(Path(file).read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module is not None:
            modules.setdefault(node.module, []).extend(alias.name for alias in node.names)
    getter, lister, names = lazy_loader.attach(package, submod_attrs=modules)
    return getter, lister, names
