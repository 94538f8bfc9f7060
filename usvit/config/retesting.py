"""Settings of ``usvit retest``."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from usvit.config.evaluation import UnitSettings
from usvit.config.fields import Option


class RetestSettings(UnitSettings):
    """Settings of the controlled changes of test images; all images of a unit are changed alike."""

    changes: Annotated[tuple[str, ...], Option("--change", metavar="NAME")] = ()
    """gain, depth-gain, depth, crop, jpeg, resize, text, calipers or marks-off. Can be repeated. (default: all)"""
    images: Annotated[int | None, Field(ge=1), Option(metavar="N")] = None
    """Number of test images, from the classes in turn; not with a unit. (default: all)"""
    out: Annotated[Path | None, Option(metavar="DIR")] = None
    """Folder to write. (default: RUN/retest)"""
