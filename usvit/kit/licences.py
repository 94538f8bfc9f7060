"""Licences of packages by their metadata, and those that usvit must not depend on."""

import re
from importlib.metadata import PackageMetadata

_FORBIDDEN = re.compile(r"(?<!L)(?<!Lesser )\bA?GPL|GNU (Affero )?General Public")
"""LGPL is not GPL: what only links to it stays under its own licence."""


def licences_of(metadata: PackageMetadata) -> list[str]:
    """Return the licences that a package states: its SPDX expression, else its classifiers, else its licence text.

    Args:
        metadata: Core metadata of the package.

    Returns:
        An expression or names; empty if it states none.
    """
    if expression := spdx_of(metadata):
        return [expression]
    classifiers = [one for one in metadata.get_all("Classifier") or [] if one.startswith("License ::")]
    named = [one.rpartition(" :: ")[2] for one in classifiers if one.rpartition(" :: ")[2] != "OSI Approved"]
    text = _text(metadata).partition("\n")[0]
    return named or ([text] if text and text != "UNKNOWN" else [])


def forbidden_licence(metadata: PackageMetadata) -> str | None:
    """Return what the metadata of a package say of the GPL or the AGPL; None if nothing."""
    said = [*licences_of(metadata), _text(metadata)]
    return next((one for one in said if _FORBIDDEN.search(one)), None)


def spdx_of(metadata: PackageMetadata) -> str | None:
    """Return the SPDX expression that a package states."""
    return next(iter(metadata.get_all("License-Expression") or []), None)


def _text(metadata: PackageMetadata) -> str:
    return str(next(iter(metadata.get_all("License") or []), "")).strip()[:200]
