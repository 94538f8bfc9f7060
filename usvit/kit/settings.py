"""Settings of an air-gap kit: what it contains, and where its packages come from."""

from pathlib import Path
from typing import Annotated

from usvit.config.fields import Option
from usvit.config.sections import Section


class KitSettings(Section):
    """Settings of ``usvit kit build``."""

    extra: Annotated[tuple[str, ...], Option(metavar="NAME")] = ()
    """Extra of usvit that the kit contains, such as ``node``."""
    weights: Annotated[tuple[Path, ...], Option(metavar="PATH")] = ()
    """File or folder of weights, such as a run; it is copied to ``weights`` of the kit."""
    lock: Annotated[Path | None, Option(metavar="FILE")] = None
    """Lock file with the versions and the SHA-256 of all packages. (default: the one that ships with usvit)"""
    wheelhouse: Annotated[Path | None, Option(metavar="DIR")] = None
    """Folder with the wheels of all packages, instead of the package index; nothing then touches the network."""
