"""Parse untrusted YAML: plain values only, with limits on size, depth and number.

``yaml.safe_load`` runs no code, but nested anchors can expand to more values than fit in memory, a number of 5,000
digits cannot be printed, and deep nesting raises a ``RecursionError``. Of several equal keys of a mapping it silently
takes the last, so that a setting would be lost.
"""

import re
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

from usvit.errors import UsvitError, shortened

MAX_BYTES = 200_000
"""Maximum number of characters; PyYAML reads about as many in a second."""
_MAX_VALUES = 50_000
"""Maximum number of values, where anchors count each time they are used. The largest recipe has fewer than 100."""
_MAX_DEPTH = 50
_MAX_DIGITS = 40
"""Maximum number of characters of a number; a double or a SHA-1 needs fewer."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float", "tag:yaml.org,2002:timestamp")


def read_yaml(path: Path, what: str) -> Any:
    """Read and parse a YAML file that the user named.

    Args:
        path: The file; a symbolic link is followed.
        what: Kind of the file in errors, such as ``recipe``.

    Raises:
        UsvitError: As ``yaml_text`` and ``parse_yaml``.
    """
    return parse_yaml(yaml_text(path, what), f"The {what} {path}")


def yaml_text(path: Path, what: str) -> str:
    """Read the text of a YAML file that the user named; arguments as ``read_yaml``.

    Raises:
        UsvitError: The file cannot be read, is too large, or is not UTF-8.
    """
    from usvit.files import Unreadable, read_text  # on use, because it imports pandas

    try:
        return read_text(path, 4 * MAX_BYTES, follow=True)
    except Unreadable as error:
        raise UsvitError(f"The {what} {path} cannot be read: {error.reason}.") from error


def parse_yaml(text: str, what: str) -> Any:
    """Parse the single document in ``text``.

    Args:
        text: YAML.
        what: Name of the text in errors, such as ``The recipe x.yaml``.

    Raises:
        UsvitError: The text is not valid YAML, or exceeds a limit of this module.
    """
    if len(text) > MAX_BYTES:
        raise UsvitError(f"{what} has {len(text):,} characters, and {MAX_BYTES:,} are read. Shorten it.")
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _count(node, {}, (), what)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except RecursionError as error:
        raise UsvitError(f"{what} is nested too deeply: {_MAX_DEPTH} levels are read.") from error
    # ValueError: a date such as 2001-99-99; the others come from keys that are not plain values.
    except (yaml.YAMLError, ValueError, TypeError, OverflowError, AttributeError) as error:
        raise UsvitError(f"{what} is not valid YAML: {' '.join(str(error).split())[:300]}") from error


def _count(node: yaml.Node, known: dict[int, int], above: tuple[int, ...], what: str) -> int:
    """Count the values of a node, anchors each time they are used; each node is visited once."""
    if id(node) in above:
        raise UsvitError(f"{what} has an anchor (&name) that contains itself. Remove it.")
    if id(node) in known:
        return known[id(node)]
    if len(above) > _MAX_DEPTH:
        raise UsvitError(f"{what} is nested too deeply: {_MAX_DEPTH} levels are read.")
    if isinstance(node, yaml.ScalarNode):
        if _SURROGATE.search(node.value):
            raise UsvitError(f"{what} has half of a surrogate pair, such as \\ud800, which is no character. Remove it.")
        if node.tag in _NUMBERS and len(node.value) > _MAX_DIGITS:
            raise UsvitError(
                f"{what} has a number of {len(node.value):,} characters, and {_MAX_DIGITS} are read. If it is "
                "meant as text, put it in quotes."
            )
        children: list[yaml.Node] = []
    elif isinstance(node, yaml.MappingNode):
        children = [child for pair in node.value for child in pair]
        keys = Counter((key.tag, key.value) for key, _ in node.value if isinstance(key, yaml.ScalarNode))
        if keys and (most := keys.most_common(1)[0])[1] > 1:
            raise UsvitError(f"{what} has the key '{shortened(most[0][1])}' twice in one mapping. Remove one of them.")
    else:
        children = list(node.value)
    total = 1
    for child in children:
        total += _count(child, known, (*above, id(node)), what)
        if total > _MAX_VALUES:
            raise UsvitError(f"{what} stands for more than {_MAX_VALUES:,} values. Write it without anchors (&name).")
    known[id(node)] = total
    return total
