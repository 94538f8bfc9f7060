"""Tables of settings for the reference pages."""

import os
from collections.abc import Mapping
from pathlib import Path

from usvit.config.listing import Setting


def table(settings: Mapping[str, Setting]) -> str:
    """Return the settings as a table in Markdown."""
    lines = [f"| `{key}` | {default} | {meaning} |\n" for key, (default, meaning) in settings.items()]
    return "| key | default | meaning |\n|---|---|---|\n" + "".join(lines)


def check_page(page: Path, fresh: str, test: str) -> None:
    """Check that a page is up to date; with ``USVIT_RENEW``, write it."""
    if os.environ.get("USVIT_RENEW"):
        page.write_text(fresh, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == fresh, f"renew it: USVIT_RENEW=1 python -m pytest {test}"
