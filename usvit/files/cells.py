"""Cells of CSV files: text that no spreadsheet executes as a formula, and the same bytes on every system.

Ids, file names and class names may come from strangers. A spreadsheet executes a cell that begins with ``=``, ``+``,
``-`` or ``@`` as a formula, which can start programs and send other cells away. Such a text is written with an
apostrophe before it, and ``read_csv`` removes the apostrophe again.

Source: OWASP, "CSV Injection".
"""

import re

_SIGNS = "=+\\-@'\uff1d\uff0b\uff0d\uff20\t\r\n"
"""First characters of a formula, in full width too, which some spreadsheets accept; and white space before one."""
_FORMULA = re.compile(f"[{_SIGNS}]")
_GUARDED = re.compile(f"'(?=[{_SIGNS}])")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?")


def guarded(text: str) -> str:
    """Return a text as it is written into a CSV file, with an apostrophe before it if it could be a formula.

    A text that begins with an apostrophe gets a second one, so that one can always be removed again. A number such as
    ``-0.5`` is not changed.
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unguarded(text: str) -> str:
    """Return the text that ``guarded`` was given; another text is returned unchanged."""
    return text[1:] if _GUARDED.match(text) else text
