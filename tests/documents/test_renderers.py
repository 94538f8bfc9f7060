"""One document in four forms: the same numbers and names in each, and nobody's text becomes markup."""

import html
import re

import pytest
from markdown_it import MarkdownIt

from usvit.documents import (
    Card,
    Cards,
    CodeBlock,
    Column,
    Details,
    Document,
    DocumentSection,
    Facts,
    Listing,
    Note,
    Paragraph,
    Picture,
    Quantity,
    Shaded,
    Table,
    TableRow,
    bad,
    code,
    html_page,
    latex_tables,
    link,
    markdown_document,
    muted,
    numbers,
    strong,
    terminal_text,
)
from usvit.estimate import Estimate

HOSTILE = '<img src=x onerror=alert(1)> | $x$ & 50 % \\input{y} `a` [b](c) "q"'
AREA = Estimate(value=0.8667, ci95=(0.8123, 0.9012))
NEAR_ZERO = Estimate(value=-0.02, ci95=(-0.04, -0.0001))
UNDEFINED = Estimate(value=None, ci95=None, reason="no image of class 'x'")
ALONE = Estimate(value=0.5, ci95=None, reason="one group")


def document(name="name"):
    table = Table(
        "Figures",
        [Column("Figure"), *numbers("Value"), *numbers("n"), Column("Note", detail=True)],
        [
            TableRow((name,), "group"),
            ("AUC", AREA, 1234, muted("seen")),
            TableRow(("all", Quantity(AREA, 4), Shaded((7, " images"), 0.25), None), "total"),
            TableRow(("hidden", NEAR_ZERO, "", ""), detail=True),
            ("undefined", UNDEFINED, 3, ""),
            ("missing", "no figure: too few images"),
        ],
        ("Caption of ", code(name)),
    )
    blocks = [
        Note(name),
        Paragraph(("See ", link(name, "other.html"), " and ", link("below", "#one"), ".")),
        Facts([(name, (strong(name), ", ", AREA)), ("Nothing", None)]),
        Listing([name, bad("bad")], small=True),
        CodeBlock("Command", f"usvit {name}"),
        Cards([Card(name, [Picture("data:image/png;base64,AA==", name, name)], Facts([("Reference", name)]))]),
        Details(name, [table], opened=True),
        DocumentSection(name, [Paragraph(ALONE)]),
    ]
    return Document(name, [DocumentSection(name, [*blocks, table], "one"), DocumentSection("Two", [], "two")])


@pytest.mark.parametrize(
    ("render", "shown"),
    [
        (html_page, ["0.867 <span class=\"ci\">0.812 to 0.901</span>", "0.8667", "1,234", "-0.040 to -0.0001"]),
        (markdown_document, ["0.867 (0.812 to 0.901)", "0.8667 (0.8123 to 0.9012)", "1,234", "-0.040 to -0.0001"]),
        (latex_tables, ["0.867 (0.812--0.901)", "0.8667 (0.8123--0.9012)", "1,234", "(-0.040 to -0.0001)"]),
        (terminal_text, ["0.867 [0.812, 0.901]", "0.8667 [0.8123, 0.9012]", "1,234"]),
    ],
)  # fmt: skip
def test_every_form_shows_the_same_numbers(render, shown):
    text = render(document())
    assert all(one in text for one in shown), text
    assert "undefined" in text and "no figure: too few images" in text
    assert "For research use only. Not a medical device." in text or render is latex_tables


def test_a_page_escapes_everything_and_is_accessible():
    page = html_page(document(HOSTILE))
    assert "<img src=x" not in page and page.count("<img") == 1 and "<script" not in page
    assert html.escape(HOSTILE, quote=False).replace('"', "&#34;") in page
    assert all("scope=" in cell for cell in re.findall(r"<th\b[^>]*>", page))
    assert page.count("<caption") == page.count("<table") == page.count('tabindex="0"') - 1 == 2
    assert re.findall(r"<h(\d)", page) == ["1", "2", "3", "2"]
    assert '<a href="#one">' in page and '<section id="one" aria-labelledby="one-title">' in page
    assert 'colspan="4"' in page and 'colspan="3"' in page  # the group, and the row with a reason
    assert "not recorded" in page and "--share: 0.250" in page and 'title="one group"' in page
    assert html_page(document(HOSTILE)) == page


def test_markdown_has_whole_tables_and_shows_strangers_text_as_it_is():
    text = markdown_document(document(HOSTILE))
    shown = MarkdownIt("commonmark").enable("table").render(text)
    assert "<img" not in shown and "x onerror" in shown
    assert shown.count("<table>") == 2
    for table in re.findall(r"(?:^\|.*\|\n)+", text, flags=re.M):
        assert {len(re.findall(r"(?<!\\)\|", line)) for line in table.splitlines()} == {5}
    assert "> **name**" in markdown_document(document())


def test_latex_is_balanced_and_spans_the_rest_of_a_short_row():
    tex = latex_tables(document(HOSTILE))
    assert tex.count(r"\begin{") == tex.count(r"\end{") == 4
    assert r"\input" not in tex.replace(r"\textbackslash{}input", "")
    assert r"\multicolumn{3}{l}{no figure: too few images}" in tex
    rows = [line for line in tex.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {3}


def test_the_terminal_aligns_columns_and_leaves_details_out():
    lines = terminal_text([document().sections[0].blocks[-1]]).splitlines()
    assert lines == [
        "Figure       Value                                    n",
        "name",
        "  AUC        0.867 [0.812, 0.901]                 1,234",
        "  all        0.8667 [0.8123, 0.9012]           7 images",
        "  undefined  undefined: no image of class 'x'         3",
        "  missing    no figure: too few images",
    ]
