"""How the templates of a page are filled: what an older job did not record is said, and stops nothing."""

import base64
import functools
import hashlib
from importlib.resources import files

from jinja2 import ChainableUndefined, Environment, PackageLoader
from markupsafe import Markup

from usvit.report.words import NOT_RECORDED, count, decimals, duration, estimate, interval, listed, p_words, plural


@functools.cache
def environment() -> Environment:
    """Templates of ``usvit.report``, with the words of ``words`` as filters."""
    made = Environment(
        loader=PackageLoader("usvit.report"),
        autoescape=True,
        undefined=_NotRecorded,
        finalize=lambda value: NOT_RECORDED if value is None else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"count": count, "decimals": decimals, "duration": duration, "estimate": estimate, "interval": interval}
    made.filters |= filters | {
        "listed": listed,
        "p_words": p_words,
        "capitalize_first": lambda words: words[:1].upper() + words[1:],
    }
    made.globals["plural"] = plural
    return made


def script_of(name: str) -> dict[str, str]:
    """A page's own script: ``script``, to stand in it, and ``script_sha256``, by which its security policy lets it run.

    From the package: Jinja's loaders would read a script as a template.
    """
    text = (files("usvit.report") / "templates" / name).read_text(encoding="utf-8")
    return {
        "script": Markup(text),
        "script_sha256": base64.b64encode(hashlib.sha256(text.encode()).digest()).decode(),
    }


class _NotRecorded(ChainableUndefined):
    def __str__(self) -> str:
        return NOT_RECORDED
