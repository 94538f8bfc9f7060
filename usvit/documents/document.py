"""The parts of a document. They hold words and numbers, and no markup: each renderer writes its own.

A builder makes one ``Document`` from a record. ``html_page``, ``markdown_document``, ``latex_tables`` and
``terminal_text`` render it.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from usvit.estimate_text import HasInterval, Style, clear_of_zero, estimate_text, fixed

if TYPE_CHECKING:
    from usvit.documents.svg import Plot

RESEARCH_USE = "For research use only. Not a medical device."
"""Every document says so."""
NOT_RECORDED = "not recorded"
"""How every renderer writes None."""


@dataclass(frozen=True)
class Span:
    """Some words that are marked."""

    text: str
    kind: Literal["strong", "code", "muted", "bad", "link"]
    address: str = ""
    """Of a link: ``#id`` of a section, or a path relative to the page."""


@dataclass(frozen=True)
class Quantity:
    """A number with its interval, to be written with so many digits."""

    estimate: HasInterval
    digits: int = 3
    signed: bool = False
    """Whether a positive number has a sign, as a change has."""

    def style(self, style: Style) -> Style:
        """Return a renderer's style with the digits and the sign of this number."""
        sign = "+" if self.signed else ""
        return replace(style, number=fixed(self.digits, sign), end=clear_of_zero(self.digits, sign))

    def text(self, style: Style) -> str:
        """Return the number with its interval in a renderer's style."""
        return estimate_text(self.estimate, self.style(style))


Words = str | int | Span | HasInterval | Quantity | None | tuple["Words", ...]
"""What stands on a line or in a cell: words, a count, an estimate, or several of these."""


@dataclass(frozen=True)
class Shaded:
    """A cell of a table whose background is as dark as its share."""

    words: Words
    share: float


@dataclass(frozen=True)
class Drawn:
    """A cell of a table whose number a page also draws, as a dot with its interval, on the axis of its column."""

    words: Words
    estimate: HasInterval
    axis: tuple[float, float]
    reference: float | None = None
    """Another value, drawn as a diamond."""


Cell = Words | Shaded | Drawn


def cell_words(cell: Cell) -> Words:
    """Return what a cell says, without its background and drawing."""
    return cell.words if isinstance(cell, Shaded | Drawn) else cell


def strong(text: object) -> Span:
    return Span(str(text), "strong")


def code(text: object) -> Span:
    return Span(str(text), "code")


def muted(text: object) -> Span:
    """Return words in a fainter colour."""
    return Span(str(text), "muted")


def bad(text: object) -> Span:
    """Return words in the colour of a warning."""
    return Span(str(text), "bad")


def link(text: object, address: str) -> Span:
    return Span(str(text), "link", address)


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    title: str
    number: bool = False
    """Aligned to the right."""
    detail: bool = False
    """Left out by the terminal, which has little room."""


def numbers(*titles: str, detail: bool = False) -> tuple[Column, ...]:
    """Return columns of numbers."""
    return tuple(Column(title, number=True, detail=detail) for title in titles)


@dataclass(frozen=True)
class TableRow:
    """A row of a table. If it has fewer cells than the table has columns, the last cell spans the others."""

    cells: tuple[Cell, ...]
    kind: Literal["row", "group", "total"] = "row"
    """``group`` is the heading of the rows that follow."""
    detail: bool = False
    """Left out by the terminal."""


@dataclass(frozen=True)
class Table:
    """A table; its first column names the rows."""

    name: str
    """What it shows, for screen readers and renderers without captions."""
    columns: Sequence[str | Column]
    """A string is a column of words."""
    rows: Sequence[TableRow | tuple[Cell, ...]]
    caption: Words = ""
    legend: Words = ""
    """How to read the drawings of its cells; only a page shows them."""
    look: Literal["", "headline", "confusion", "checklist"] = ""
    detail: bool = False
    """Left out by the terminal."""

    @property
    def heads(self) -> list[Column]:
        return [Column(one) if isinstance(one, str) else one for one in self.columns]

    @property
    def lines(self) -> list[TableRow]:
        return [TableRow(one) if isinstance(one, tuple) else one for one in self.rows]


@dataclass(frozen=True)
class ScriptTable:
    """A table whose rows a script of the page shows; a page without the script says which file holds them."""

    name: str
    file: str


@dataclass(frozen=True)
class Facts:
    """Labels, each with what is known."""

    rows: Sequence[tuple[str, Words]]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; a ``small`` one is a remark."""

    words: Words
    small: bool = False


@dataclass(frozen=True)
class Note:
    """A sentence that must not be overlooked."""

    words: Words


@dataclass(frozen=True)
class Listing:
    """Several short texts, one a line."""

    items: Sequence[Words]
    small: bool = False
    ordered: bool = False


@dataclass(frozen=True)
class CodeBlock:
    """A command or a file, word for word."""

    name: str
    """What it is, for screen readers."""
    text: str


@dataclass(frozen=True)
class Figure:
    """A plot with its caption."""

    plot: "Plot"
    caption: Words = ""
    wide: bool = False


@dataclass(frozen=True)
class Gallery:
    """Figures side by side; ``narrow`` ones share the legend of the first."""

    figures: Sequence[Figure]
    narrow: bool = False


@dataclass(frozen=True)
class Picture:
    """An image inside the page."""

    uri: str
    """A data URI."""
    words: str
    """For those who cannot see it."""
    caption: Words = ""


@dataclass(frozen=True)
class Card:
    """One image or case with its pictures and facts."""

    title: Words
    pictures: Sequence[Picture]
    facts: Facts = Facts(())
    missing: str = ""
    """Why there is no picture."""
    data: Mapping[str, str] = field(default_factory=dict)
    """What a script of the page reads of it: attributes ``data-*``."""


@dataclass(frozen=True)
class Cards:
    """Cards side by side."""

    cards: Sequence[Card]


@dataclass(frozen=True)
class Details:
    """Blocks that the page folds away."""

    summary: str
    blocks: Sequence["Block"]
    opened: bool = False


@dataclass(frozen=True)
class DocumentSection:
    """A heading and what stands below it; a section may hold sections."""

    title: str
    blocks: Sequence["Block"]
    id: str = ""
    """Anchor in the page; a section of a document needs one."""
    short: str = ""
    """Title in the list of contents, if not the title."""
    detail: bool = False
    """Left out by the terminal."""


Block = (
    Table | ScriptTable | Facts | Paragraph | Note | Listing | CodeBlock | Figure | Gallery | Cards | Details
    | DocumentSection
)  # fmt: skip


@dataclass(frozen=True)
class Document:
    """All that a page says, apart from its frame."""

    title: str
    sections: Sequence[DocumentSection]
    kind: str = ""
    """What it is, in the line below the title."""
    lead: Sequence[Block] = ()
    """What stands before the first section, warnings among them."""
    made_from: str = ""
    """The files whose figures it shows, for the last line."""
    name: str = "usvit"
    """Kind of page, for the title of the window."""
    contents: bool = field(default=True)
    """Whether the page has a list of contents."""


def spaced(parts: Iterable[Words], between: str = ", ") -> Words:
    """Join words, such as ``a, b``, without those that are empty."""
    found: list[Words] = []
    for part in parts:
        if part != "":
            found += [between, part] if found else [part]
    return tuple(found)


def inline(words: Words) -> Iterator[str | int | Span | Quantity]:
    """Return the parts of nested words in their order; None is ``NOT_RECORDED``."""
    if isinstance(words, tuple):
        for part in words:
            yield from inline(part)
    elif words is None:
        yield NOT_RECORDED
    elif isinstance(words, str | int | Span | Quantity):
        yield words
    else:
        yield Quantity(words)


def tables_of(blocks: Iterable[Block]) -> Iterator[Table]:
    """Return all tables of some blocks, also those inside sections and details."""
    for block in blocks:
        if isinstance(block, Table):
            yield block
        elif isinstance(block, DocumentSection | Details):
            yield from tables_of(block.blocks)
