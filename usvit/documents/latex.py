"""The tables of a document as LaTeX, for an article."""

from collections.abc import Sequence

import usvit.documents.document as doc
from usvit.estimate_text import Style
from usvit.markup import latex_text


def latex_tables(document: doc.Document) -> str:
    """Render each table of a document as a table of LaTeX, with the package booktabs.

    The caption of the first table holds the notes and paragraphs of the document's lead, because a table goes into an
    article without its page.
    """
    head = f"% {latex_text(document.title)}. Needs the package booktabs.\n"
    lead = [_words(block.words) for block in document.lead if isinstance(block, doc.Note | doc.Paragraph)]
    tables = enumerate(doc.tables_of(document.sections))
    return head + "".join(f"\n{_table(one, lead if number == 0 else [])}" for number, one in tables)


def _table(table: doc.Table, lead: Sequence[str]) -> str:
    heads = table.heads
    caption = " ".join([_words(table.caption) or latex_text(table.name), *lead])
    lines = [
        r"\begin{table}",
        r"  \centering",
        rf"  \caption{{{caption}}}",
        rf"  \begin{{tabular}}{{{''.join('r' if one.number else 'l' for one in heads)}}}",
        r"    \toprule",
        _line([_head(one.title) for one in heads]),
        r"    \midrule",
    ]
    for row in table.lines:
        cells = [_words(doc.cell_words(cell)) for cell in row.cells]
        if (left := len(heads) - len(cells)) > 0:
            cells[-1] = rf"\multicolumn{{{left + 1}}}{{l}}{{{cells[-1]}}}"
        lines.append(_line(cells))
    return "\n".join([*lines, r"    \bottomrule", r"  \end{tabular}", r"\end{table}"]) + "\n"


def _line(cells: list[str]) -> str:
    return f"    {' & '.join(cells)} \\\\"


def _head(title: str) -> str:
    """Set the letter p of a column of p-values as mathematics."""
    words = latex_text(title)
    return f"$p${words[1:]}" if words == "p" or words.startswith("p,") else words


def _words(words: doc.Words) -> str:
    return "".join(_part(part) for part in doc.inline(words)).strip()


def _part(part: str | int | doc.Span | doc.Quantity) -> str:
    match part:
        case str():
            return latex_text(part)
        case int():
            return f"{part:,}"
        case doc.Quantity():
            return part.text(Style(before=" (", between="--", after=")", between_negative=" to "))
        case doc.Span(kind="strong" | "bad"):
            return rf"\textbf{{{latex_text(part.text)}}}"
        case doc.Span(kind="code"):
            return rf"\texttt{{{latex_text(part.text)}}}"
        case doc.Span():
            return latex_text(part.text)
