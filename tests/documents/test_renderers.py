"""One document in four forms: the same numbers and names in each, and nobody's text becomes markup."""

import base64
import hashlib
import html
import re

import pytest
from markdown_it import MarkdownIt
from markupsafe import Markup

from usvit.documents import (
    Card,
    Cards,
    CodeBlock,
    Column,
    Details,
    Document,
    DocumentSection,
    Drawn,
    Facts,
    Listing,
    Note,
    Paragraph,
    Picture,
    Quantity,
    ScriptTable,
    Shaded,
    Table,
    TableRow,
    bad,
    code,
    html_page,
    html_pieces,
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


def test_a_change_has_a_sign_in_every_form():
    change = Quantity(Estimate(value=0.02, ci95=(-0.04, 0.0001)), signed=True)
    one = Document("Change", [DocumentSection("One", [Table("Change", ["a", *numbers("b")], [("x", change)])], "one")])
    assert "+0.020 [-0.040, +0.0001]" in terminal_text(one)
    assert "+0.020 (-0.040 to +0.0001)" in markdown_document(one)
    assert '+0.020 <span class="ci">-0.040 to +0.0001</span>' in html_page(one)
    assert "+0.020 (-0.040 to +0.0001)" in latex_tables(one)


def test_a_drawn_cell_is_a_picture_on_the_page_and_a_number_elsewhere():
    table = Table(
        "Drawn", ["a", *numbers("b")], [("x", Drawn(AREA, AREA, (0.8, 1.0), reference=0.85))], legend=f"Key {HOSTILE}"
    )
    one = Document("Drawn", [DocumentSection("One", [table], "one")])
    page = html_page(one)
    assert '<line x1="7.4" x2="60.7"' in page and '<circle cx="40.0"' in page and 'd="M30.0 2l' in page
    assert "Key &lt;img" in page
    for text in (terminal_text(one), markdown_document(one), latex_tables(one)):
        assert "0.867" in text and "svg" not in text and "Key" not in text


def test_the_first_table_in_latex_carries_the_lead():
    table = Table("Figures", ["a"], [("x",)], "Caption.")
    lead = [Note(HOSTILE), Paragraph("Said before.")]
    tex = latex_tables(Document("Two", [DocumentSection("One", [table, table], "one")], lead=lead))
    first, second = (line for line in tex.splitlines() if r"\caption" in line)
    assert first.startswith(r"  \caption{Caption. \textless{}img") and first.endswith("Said before.}")
    assert second == r"  \caption{Caption.}"


def test_a_script_is_the_only_one_allowed_and_reads_data_that_is_written_after_the_page():
    blocks = [ScriptTable("rows", "rows.csv"), Cards([Card("One", [], data={"image": HOSTILE})])]
    one = Document("Script", [DocumentSection("One", blocks, "one")])
    script = "document.title = 'a < b';"
    data = (Markup(piece) for piece in ('<script type="application/json" id="rows-rows">', "[1]", "</script>"))
    page = "".join(html_pieces(one, "td { color: red }", script, data))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page and f"<script>{script}</script>" in page
    assert page.index('id="rows-rows">[1]</script>') < page.index(f"<script>{script}")
    assert '<div data-table="rows"><p>The table needs JavaScript. The same rows are in rows.csv.' in page
    assert 'data-image="&#34;' in page or 'data-image="&lt;img' in page
    assert "script-src" not in html_page(one) and "rows.csv" in markdown_document(one)
    assert "rows.csv" not in terminal_text(one)
