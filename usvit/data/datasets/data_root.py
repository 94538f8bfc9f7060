"""Folders of data sets as a caller names them. Heavy libraries are not imported, since settings are checked first."""

from collections.abc import Mapping
from pathlib import Path

DataRoot = str | Path | Mapping[str, str | Path] | None
"""Folders of the data: one folder for all data sets, a mapping from data set to folder, or None."""


def roots_from(data_root: DataRoot) -> dict[str, Path]:
    """Return the folder of each data set by name; the key "" stands for all others."""
    if data_root is None:
        return {}
    if isinstance(data_root, Mapping):
        return {name: Path(folder) for name, folder in data_root.items()}
    return {"": Path(data_root)}
