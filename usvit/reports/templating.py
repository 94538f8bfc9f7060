"""Template environment of the pages; values that a run has not recorded are shown as "not recorded"."""

import base64
import functools
import hashlib
from importlib.resources import files

from jinja2 import ChainableUndefined, ChoiceLoader, Environment, PackageLoader
from markupsafe import Markup

from usvit.documents import Figure, Plot, html_blocks, html_words
from usvit.reports.formatting import NOT_RECORDED, count, decimals, duration, interval
from usvit.wording import counted, listed, plural

LOADERS = (PackageLoader("usvit.reports"), PackageLoader("usvit.documents"))
"""Where the templates are that other packages include."""


@functools.cache
def environment() -> Environment:
    """Templates of ``usvit.reports``, with the functions of ``formatting`` as filters."""
    made = Environment(
        loader=ChoiceLoader(LOADERS),
        autoescape=True,
        undefined=_NotRecorded,
        finalize=lambda value: NOT_RECORDED if value is None else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"count": count, "decimals": decimals, "duration": duration, "interval": interval, "listed": listed}
    made.globals |= {"plural": plural, "counted": counted, "words": html_words, "figure": _figure}
    return made


def template_text(name: str) -> str:
    """Return the text of a file of style or script."""
    return (files("usvit.reports") / "templates" / name).read_text(encoding="utf-8")


def script_of(name: str) -> dict[str, str]:
    """Return a page's ``script`` and its ``script_sha256``, by which the page's security policy allows it.

    The script is read from the package, because Jinja's loaders would treat it as a template.
    """
    text = template_text(name)
    return {
        "script": Markup(text),
        "script_sha256": base64.b64encode(hashlib.sha256(text.encode()).digest()).decode(),
    }


def _figure(plot: Plot, caption: str) -> Markup:
    return html_blocks([Figure(plot, caption)])


class _NotRecorded(ChainableUndefined):
    def __str__(self) -> str:
        return NOT_RECORDED
