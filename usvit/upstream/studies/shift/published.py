"""Published figures of shift, from ``published.yaml``."""

from importlib.resources import files

from usvit.plain_yaml import parse_yaml
from usvit.upstream.records.shift import PublishedShift


def published_figures() -> list[PublishedShift]:
    """Return the entries, as ``shift.json`` contains them."""
    text = (files("usvit.upstream.studies.shift") / "published.yaml").read_text(encoding="utf-8")
    return [PublishedShift(**entry) for entry in parse_yaml(text, "The published figures")]
