"""Ordered rules: which model scores a study, what is made of it, and where it goes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from usvit.node.config.settings import NodeRule, RuleConditions


@dataclass(frozen=True)
class Decision:
    """What the rules say of a study."""

    rule: NodeRule | None
    """The first rule that matches; None if none does."""
    matching: frozenset[int]
    """Ids of the images that meet its conditions; others of the study are not scored."""


def decide(rules: Sequence[NodeRule], images: Mapping[int, Mapping[str, str]]) -> Decision:
    """Return the first rule that at least one image of a study meets.

    Args:
        rules: the rules in their order.
        images: id of each image -> its attributes: the names of ``usvit.data.io.dicom.metadata.DESCRIBING`` and
            ``calling_ae``.
    """
    for rule in rules:
        matching = frozenset(number for number, image in images.items() if meets(rule.when, image))
        if matching:
            return Decision(rule, matching)
    return Decision(None, frozenset())


def meets(conditions: RuleConditions, image: Mapping[str, str]) -> bool:
    """Return whether an image meets all conditions; an attribute that is absent is an empty text."""
    for name, pattern in conditions.given().items():
        if name == "description":
            values = [image.get("study_description", ""), image.get("series_description", "")]
        else:
            values = [image.get(name, "")]
        if not any(_pattern(pattern).fullmatch(value) for value in values):
            return False
    return True


@cache
def _pattern(text: str) -> re.Pattern[str]:
    """Return a pattern with ``*`` and ``?`` as a regular expression; all other characters stand for themselves."""
    parts = (".*" if one == "*" else "." if one == "?" else re.escape(one) for one in re.sub(r"\*+", "*", text))
    return re.compile("".join(parts), re.IGNORECASE | re.DOTALL)
