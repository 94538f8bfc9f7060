"""Escape text for Markdown and LaTeX. Names of classes, runs and files may come from strangers."""

import re
from html import escape

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
}
_WORD = re.compile(r"[\w.:/+-]+")


def markdown_text(value: object) -> str:
    """Escape a string as plain text on one line of Markdown: no markup, no HTML, no table cell."""
    line = escape(" ".join(str(value).split()), quote=False)
    return re.sub(r"([\\`*_\[\]|#$~!])", r"\\\1", line)


def markdown_code(value: object) -> str:
    """Return a name as code in Markdown, or as plain text if it holds a sign that could end the code."""
    return f"`{value}`" if _WORD.fullmatch(str(value)) else markdown_text(value)


def latex_text(value: object) -> str:
    """Escape a string as plain text on one line of LaTeX."""
    return "".join(_LATEX.get(character, character) for character in " ".join(str(value).split()))
