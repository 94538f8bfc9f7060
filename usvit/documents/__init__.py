"""Documents: what a page, a text or a terminal says, built once, and rendered as HTML, Markdown, LaTeX or text."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .document import NOT_RECORDED as NOT_RECORDED
    from .document import RESEARCH_USE as RESEARCH_USE
    from .document import Block as Block
    from .document import Card as Card
    from .document import Cards as Cards
    from .document import Cell as Cell
    from .document import CodeBlock as CodeBlock
    from .document import Column as Column
    from .document import Details as Details
    from .document import Document as Document
    from .document import DocumentSection as DocumentSection
    from .document import Drawn as Drawn
    from .document import Facts as Facts
    from .document import Figure as Figure
    from .document import Gallery as Gallery
    from .document import Listing as Listing
    from .document import Note as Note
    from .document import Paragraph as Paragraph
    from .document import Picture as Picture
    from .document import Quantity as Quantity
    from .document import ScriptTable as ScriptTable
    from .document import Shaded as Shaded
    from .document import Span as Span
    from .document import Table as Table
    from .document import TableRow as TableRow
    from .document import Words as Words
    from .document import bad as bad
    from .document import code as code
    from .document import inline as inline
    from .document import link as link
    from .document import muted as muted
    from .document import numbers as numbers
    from .document import spaced as spaced
    from .document import strong as strong
    from .html import html_blocks as html_blocks
    from .html import html_page as html_page
    from .html import html_pieces as html_pieces
    from .html import html_words as html_words
    from .latex import latex_tables as latex_tables
    from .markdown import markdown_document as markdown_document
    from .svg import DASHES as DASHES
    from .svg import GRID as GRID
    from .svg import INK as INK
    from .svg import MUTED as MUTED
    from .svg import N_SERIES as N_SERIES
    from .svg import SERIES as SERIES
    from .svg import LegendEntry as LegendEntry
    from .svg import Pens as Pens
    from .svg import Plot as Plot
    from .svg import drawing_style as drawing_style
    from .svg import to_svg as to_svg
    from .terminal import terminal_text as terminal_text
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
