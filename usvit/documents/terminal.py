"""Documents as plain text. What a terminal would interpret is escaped where the text is printed."""

from collections.abc import Iterable, Sequence

import usvit.documents.document as doc
from usvit.estimate_text import Style

WIDEST = 48
"""Characters of the first column; a longer name is cut there."""


def terminal_text(document: doc.Document | Iterable[doc.Block]) -> str:
    """Render a document, or some blocks, as lines of text without figures and details."""
    if isinstance(document, doc.Document):
        body = terminal_text((*document.lead, *document.sections))
        return "\n".join(filter(None, [document.kind, body, doc.RESEARCH_USE])).lstrip("\n")
    return "\n".join(line for block in document for line in _block(block))


def _block(block: doc.Block) -> list[str]:
    match block:
        case doc.DocumentSection(detail=True) | doc.Table(detail=True):
            return []
        case doc.DocumentSection():
            inner = terminal_text(block.blocks)
            return ["", block.title, inner] if inner else []
        case doc.Table():
            return _table(block)
        case doc.Facts():
            return [f"{name}: {_terminal_words(words)}" for name, words in block.rows]
        case doc.Paragraph():
            return [_terminal_words(block.words)]
        case doc.Note():
            return [f"Warning: {_terminal_words(block.words)}"]
        case doc.Listing():
            start = "Note: " if block.small else "- "
            return [f"{start}{_terminal_words(one)}" for one in block.items]
        case doc.CodeBlock():
            return block.text.splitlines()
        case doc.ScriptTable() | doc.Figure() | doc.Gallery() | doc.Cards() | doc.Details():
            return []


def _table(table: doc.Table) -> list[str]:
    """Align the columns of a table; a row with fewer cells ends with words that need no column."""
    heads, rows = table.heads, [row for row in table.lines if not row.detail]
    kept = [number for number, head in enumerate(heads) if not head.detail]
    lines = [[heads[number].title for number in kept]]
    indent = "  " if any(row.kind == "group" for row in rows) else ""
    for row in rows:
        cells = [_terminal_words(doc.cell_words(row.cells[number])) for number in kept if number < len(row.cells)]
        lines.append([(indent if row.kind != "group" else "") + cells[0], *cells[1:]])
    whole = [line for line in lines if len(line) == len(kept)]
    widths = [max(len(line[at]) for line in whole) for at in range(len(kept))]
    widths[0] = min(max(widths[0], *(len(line[0]) for line in lines if len(line) > 1)), WIDEST)
    right = [heads[number].number and _plain(rows, number) for number in kept]
    return [_line(line, widths, right) for line in lines]


def _plain(rows: Sequence[doc.TableRow], number: int) -> bool:
    """Return whether no cell of a column is an estimate: numbers alone end, and estimates begin, at one place."""
    return not any(
        isinstance(part, doc.Quantity)
        for row in rows
        if number < len(row.cells)
        for part in doc.inline(doc.cell_words(row.cells[number]))
    )


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[bool]) -> str:
    if len(cells) == 1:
        return cells[0]
    shown = []
    for at, (cell, width) in enumerate(zip(cells, widths, strict=False)):
        text = cell if at or len(cell) <= width else f"{cell[: width - 2]}.."
        shown.append(text.rjust(width) if right[at] and len(cells) == len(widths) else text.ljust(width))
    return "  ".join(shown).rstrip()


def _terminal_words(words: doc.Words) -> str:
    """Render the words of a line or of a cell."""
    return "".join(_part(part) for part in doc.inline(words))


def _part(part: str | int | doc.Span | doc.Quantity) -> str:
    match part:
        case str():
            return part
        case int():
            return f"{part:,}"
        case doc.Span():
            return part.text
        case doc.Quantity():
            return part.text(Style(undefined="undefined: {reason}"))
