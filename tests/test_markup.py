import html

from markdown_it import MarkdownIt

from usvit.markup import latex_text, markdown_code, markdown_text

HOSTILE = "<script>alert(1)</script> | **b** `c` [x](http://y) ![z](w) &lt;\n# h & $1$ ~s~ \\"


def test_markdown_shows_a_strangers_text_as_it_is():
    """markdown-it is an implementation of CommonMark by others."""
    shown = MarkdownIt("commonmark").enable("table").render(f"| a |\n|---|\n| {markdown_text(HOSTILE)} |\n")
    cell = shown.partition("<tbody>")[2].partition("<td>")[2].partition("</td>")[0]
    assert "<" not in cell and html.unescape(cell) == " ".join(HOSTILE.split())
    assert markdown_code("timm:vit_b16.a") == "`timm:vit_b16.a`"
    assert MarkdownIt("commonmark").renderInline(markdown_code("a`b|c")) == "a`b|c"


def test_latex_prints_a_strangers_text_as_it_is():
    """After a line break of a table, LaTeX reads ``[`` and ``*`` as its arguments."""
    assert latex_text("[2cm] a_b & 50 % \\input{x}") == r"{[}2cm{]} a\_b \& 50 \% \textbackslash{}input\{x\}"
    assert latex_text("*\n$^~#<>") == r"{*} \$\textasciicircum{}\textasciitilde{}\#\textless{}\textgreater{}"
