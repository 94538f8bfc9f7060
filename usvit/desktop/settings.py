"""Settings of the start without a shell. It is served on this machine alone, which no setting changes."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from usvit.config.fields import Option
from usvit.config.sections import Section


class AppSettings(Section):
    """Where the page of ``usvit app`` is served, and where models and results are."""

    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """Port of this machine to listen on; 0: any free one."""
    browser: bool = True
    """Open the page in the browser."""
    models: Annotated[tuple[Path, ...], Option(metavar="DIR")] = ()
    """Folders in which models are looked for, beside the current folder and ``results``."""
    results: Annotated[Path | None, Option(metavar="DIR")] = None
    """Folder in which each piece of work gets a folder. (default: ``usvit-results`` in your home folder)"""
