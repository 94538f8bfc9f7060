"""Escape text for HTML, Markdown and LaTeX. Names of classes, runs and files may come from strangers."""

import re
from html import escape

from markupsafe import Markup

_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "[": "{[}",  # after a line break, LaTeX would read [ and * as its arguments
    "]": "{]}",
    "*": "{*}",
    "–": "--",
    "×": r"$\times$",
    "±": r"$\pm$",
    "≥": r"$\geq$",
    "−": "$-$",
    "α": r"$\alpha$",
}
_WORD = re.compile(r"[\w.:/+-]+")


def html_element(name: str, *content: object, **attributes: str | float | None) -> Markup:
    """Return an element of HTML whose content and attributes are escaped; what is ``Markup`` already is kept.

    An underscore in the name of an attribute is a hyphen, and one at its end is left out. An attribute that is None is
    left out as well.

    >>> html_element("th", "a < b", scope="row", aria_label=None, class_="n")
    Markup('<th scope="row" class="n">a &lt; b</th>')
    """
    given = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), value)
        for key, value in attributes.items()
        if value is not None
    )
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), given, Markup("").join(content))  # type: ignore[arg-type]


def markdown_text(value: object) -> str:
    """Escape a string as plain text on one line of Markdown: no markup, no HTML, no table cell."""
    line = escape(_one_line(str(value)), quote=False)
    return re.sub(r"([\\`*_\[\]|#$~!])", r"\\\1", line)


def markdown_code(value: object) -> str:
    """Return a name as code in Markdown, or as plain text if it holds a sign that could end the code."""
    return f"`{value}`" if _WORD.fullmatch(str(value)) else markdown_text(value)


def latex_text(value: object) -> str:
    """Escape a string as plain text on one line of LaTeX."""
    return "".join(_LATEX.get(character, character) for character in _one_line(str(value)))


def _one_line(text: str) -> str:
    """Make one space of each white space; those at the ends of a part of a sentence are kept."""
    return re.sub(r"\s+", " ", text)
