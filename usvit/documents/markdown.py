"""Documents as Markdown, for a repository, a supplement or a text editor."""

import re
from collections.abc import Iterable, Mapping, Sequence

import usvit.documents.document as doc
from usvit.estimate_text import WORDS
from usvit.markup import markdown_code, markdown_text


def markdown_document(document: doc.Document, figures: Mapping[str, str] | None = None) -> str:
    """Render a document as Markdown.

    Args:
        document: the document.
        figures: name of a plot -> path of its file, relative to the text; other plots are left out.
    """
    files = figures or {}
    parts = [
        f"# {markdown_text(document.title)}",
        markdown_text(document.kind),
        f"**{doc.RESEARCH_USE}**",
        *_blocks(document.lead, 2, files),
        *_blocks(document.sections, 2, files),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _blocks(blocks: Iterable[doc.Block], level: int, files: Mapping[str, str]) -> list[str]:
    return [text for block in blocks if (text := _block(block, level, files))]


def _block(block: doc.Block, level: int, files: Mapping[str, str]) -> str:
    match block:
        case doc.DocumentSection():
            inner = _blocks(block.blocks, level + 1, files)
            return "\n\n".join([f"{'#' * level} {markdown_text(block.title)}", *inner]) if inner else ""
        case doc.Details():
            return "\n\n".join(_blocks(block.blocks, level, files))
        case doc.Table():
            return _table(block)
        case doc.ScriptTable():
            return f"The rows are in {markdown_text(block.file)}."
        case doc.Facts():
            return "\n".join(f"- {markdown_text(name)}: {_words(words)}" for name, words in block.rows)
        case doc.Paragraph():
            return _words(block.words)
        case doc.Note():
            return f"> **{_words(block.words)}**"
        case doc.Listing():
            return "\n".join(f"{'1.' if block.ordered else '-'} {_words(one)}" for one in block.items)
        case doc.CodeBlock():
            return _fenced(block.text)
        case doc.Figure():
            return _figures([block], files)
        case doc.Gallery():
            return _figures(block.figures, files)
        case doc.Cards():
            return "\n".join(
                f"- {_words(one.title)}: " + ", ".join(f"{name} {_words(words)}" for name, words in one.facts.rows)
                for one in block.cards
            )


def _fenced(text: str) -> str:
    """Fence a text with more backticks than it has anywhere in a row."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text.rstrip()}\n{fence}"


def _table(table: doc.Table) -> str:
    heads = table.heads
    lines = [_line(one.title for one in heads), "|" + "".join("---:|" if one.number else "---|" for one in heads)]
    for row in table.lines:
        cells = [_words(doc.cell_words(cell)) for cell in row.cells]
        if row.kind != "row":
            cells[0] = f"**{cells[0]}**"
        lines.append("| " + " | ".join([*cells, *[""] * (len(heads) - len(cells))]) + " |")
    caption = _words(table.caption)
    return (f"{caption}\n\n" if caption else "") + "\n".join(lines)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(map(markdown_text, cells)) + " |"


def _figures(figures: Sequence[doc.Figure], files: Mapping[str, str]) -> str:
    return "\n\n".join(
        f"![{markdown_text(one.plot.title)}]({files[one.plot.name]})" for one in figures if one.plot.name in files
    )


def _words(words: doc.Words) -> str:
    return "".join(_part(part) for part in doc.inline(words)).strip()


def _part(part: str | int | doc.Span | doc.Quantity) -> str:
    match part:
        case str():
            return markdown_text(part)
        case int():
            return f"{part:,}"
        case doc.Quantity():
            return markdown_text(part.text(WORDS))
        case doc.Span(kind="code"):
            return markdown_code(part.text)
        case doc.Span(kind="strong" | "bad"):
            return f"**{markdown_text(part.text)}**"
        case doc.Span(kind="link") if not part.address.startswith("#"):
            return f"[{markdown_text(part.text)}](<{part.address}>)"
        case doc.Span():
            return markdown_text(part.text)
