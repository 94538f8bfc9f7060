"""Settings of the comparison of a model with readers."""

from pathlib import Path
from typing import Annotated

from usvit.config.fields import Option
from usvit.config.sections import Section


class ReaderSettings(Section):
    """Which categories a model is compared with."""

    readers: Annotated[tuple[str, ...], Option("--readers", metavar="COL")] = ()
    """Column of BI-RADS categories, such as ``birads``: compare one run with these readers instead of with other runs.
    Can be repeated, once for each reader; ``4a/4b`` in one column are two readers."""
    manifest: Annotated[Path | None, Option(metavar="FILE")] = None
    """Table (CSV, Excel or Parquet) with the categories, one row for each image. (default: the manifest of the run)"""
