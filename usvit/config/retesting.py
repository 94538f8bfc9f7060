"""Settings of ``usvit retest``."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from usvit.config.fields import Option
from usvit.config.sections import Section


class RetestSettings(Section):
    """Settings of the controlled changes of test images."""

    changes: Annotated[tuple[str, ...], Option("--change", metavar="NAME")] = ()
    """gain, depth-gain, depth, crop, jpeg, resize, text, calipers or marks-off. Can be repeated. (default: all)"""
    images: Annotated[int | None, Field(ge=1), Option(metavar="N")] = None
    """Number of test images, from the classes in turn. (default: all)"""
    out: Annotated[Path | None, Option(metavar="DIR")] = None
    """Folder to write. (default: RUN/retest)"""
