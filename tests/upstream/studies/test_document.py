"""The pages: they say what study.json says, hurt nobody, and stand alone."""

import re

import pytest

from usvit.documents import Column, Drawn, Table, TableRow, terminal_text
from usvit.upstream.records.study import StudyCorrelation
from usvit.upstream.studies.document import study_document, write_pages

HOSTILE = '<script>alert(1)</script> & "quotes" | pipes | 100% $x_1$ {braces} \\input{x} [a](javascript:b) `tick`'


def results(record) -> Table:
    return study_document(record).sections[0].blocks[0]


def heads(record) -> list[str]:
    return [column.title if isinstance(column, Column) else column for column in results(record).columns]


def lead(record) -> list[str]:
    return [block.words for block in study_document(record).lead]


@pytest.fixture
def hostile(finished):
    """The record of a study whose every text is hostile; one run failed."""
    record = finished.record.model_copy(deep=True)
    record.title = record.command = HOSTILE
    record.notes, record.changed = [HOSTILE], [HOSTILE]
    record.paper.source = record.paper.table = record.paper.protocol = HOSTILE
    record.runs[0].state, record.runs[0].error, record.runs[0].id = "failed", HOSTILE, HOSTILE
    for row in record.table:
        row.name = row.model = row.group = row.note = HOSTILE
    for column in record.columns:
        column.title = HOSTILE
    return record


@pytest.mark.slow
def test_html_escapes_every_text_and_asks_nothing_of_the_network(hostile, tmp_path):
    html = write_pages(tmp_path, hostile).read_text()
    assert "<script" not in html and "&lt;script&gt;" in html
    assert "default-src 'none'" in html
    assert not re.search(r"(src|href)=\"(?!#|runs/)", html) and "@import" not in html and "url(" not in html


def test_markdown_keeps_its_columns_whatever_a_cell_holds(hostile, tmp_path):
    write_pages(tmp_path, hostile)
    text = (tmp_path / "study.md").read_text()
    lines = [line for line in text.partition("\n## Runs\n")[0].splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 1 + len(hostile.table), "with the heading of a group"
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert not re.search(r"(?<!\\)<script", re.sub(r"^```\n.*?^```\n", "", text, flags=re.M | re.S)), "outside code"


def test_latex_keeps_its_columns_and_runs_no_command_of_a_cell(hostile, tmp_path):
    write_pages(tmp_path, hostile)
    tex = (tmp_path / "study.tex").read_text()
    assert "\\input" not in tex and "\\textbackslash{}input\\{x\\}" in tex
    rows = [line for line in tex.splitlines() if line.endswith("\\\\") and "\\multicolumn" not in line]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(results(hostile).columns) - 1}
    assert len(re.findall(r"(?<!\\)%", tex)) == 1, "only our own comment is one"


def test_the_same_state_gives_the_same_bytes(finished, tmp_path):
    for name in ("a", "b"):
        write_pages(tmp_path / name, finished.record)
    for name in ("study.html", "study.md", "study.tex"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_ours_stands_beside_the_papers_in_the_papers_unit(finished):
    table = results(finished.record)
    header = [head.title for head in table.heads]
    _, vit = (row.cells for row in table.lines)
    at, area = header.index("accuracy (%)"), header.index("AUC, macro one vs rest")
    assert vit[0] == "Tiny/8" and header[at + 1 : at + 4] == ["Paper", "Difference", "Within"]
    value = finished.record.table[1].figures["accuracy"].value
    ours, paper, difference, within = vit[at : at + 4]
    assert isinstance(ours, Drawn) and ours.words.estimate.value == pytest.approx(100 * value)
    assert paper == "35%" and ours.reference == 0.35
    assert float(difference) == pytest.approx(100 * value - 35, abs=0.06) and within in ("yes", "no")
    assert vit[area].words.estimate is finished.record.table[1].figures["auc_macro_ovr"] and vit[area + 1] == "0.99"
    assert table.lines[0].cells[at + 1 : at + 4] == ("–", "–", "–"), "the paper prints nothing of the other"


def test_a_cell_draws_ours_with_its_interval_and_the_papers(finished, tmp_path):
    html = write_pages(tmp_path, finished.record).read_text()
    drawings = re.findall(r'<svg class="drawn".*?</svg>', html)
    assert len(drawings) == 6 and all(one.count("<line") == one.count("<circle") == 1 for one in drawings)
    assert sum("<path" in one for one in drawings) == 2 and "Diamond: the paper&#39;s." in html


def test_without_a_paper_there_are_no_columns_for_it(finished):
    record = finished.record.model_copy(update={"paper": None}, deep=True)
    for line in record.table:
        for figure in line.figures.values():
            figure.paper = figure.within = figure.difference = None
    assert [head.title for head in results(record).heads] == [
        "Row",
        "Model",
        "Test images",
        "Groups",
        "accuracy (%)",
        "AUC, macro one vs rest",
        "sensitivity, positive",
    ]


def test_what_must_be_known_comes_first(finished):
    said = lead(finished.record.model_copy(update={"other_dataset": "phantom", "changed": ["train.steps=2"]}))
    assert "not on the paper's data" in said[0] and "train.steps=2" in said[1] and "not said" in said[2]
    assert any("24 groups" in line or "groups only" in line for line in said[3:]), said


def test_a_tolerance_stands_in_the_head_of_its_column_in_the_columns_unit(finished):
    def heads(**changes):
        column = finished.record.columns[0].model_copy(update={"title": "ImageNet", **changes})
        record = finished.record.model_copy(update={"columns": [column]})
        return [head.title for head in results(record).heads]

    assert "ImageNet (%, ±0.3)" in heads(tolerance=0.003)
    assert "ImageNet (±1.5)" in heads(percent=False, tolerance=1.5)


def test_a_tiny_study_says_so_first_and_compares_nothing(finished):
    said = lead(finished.record.model_copy(update={"scale": "tiny"}))
    assert said[0].startswith("Tiny networks on generated images") and "say nothing about the paper" in said[0]


def test_a_missing_figure_is_a_dash_and_its_reason_stands_below(finished):
    record = finished.record.model_copy(deep=True)
    one = record.table[0].figures["accuracy"]
    one.value, one.ci95, one.reason = None, None, "the row has no run for it"
    assert "–" in results(record).lines[0].cells
    missing = study_document(record).sections[0].blocks[1]
    assert missing.blocks[0].rows == [("Tiny ResNet, accuracy", "the row has no run for it")]


def test_correlations_stand_below_the_table_by_the_titles_of_their_columns(finished, tmp_path):
    pair = ["accuracy", "sensitivity.positive"]
    found = StudyCorrelation(columns=pair, n=100, pearson=0.304, spearman=None)
    record = finished.record.model_copy(update={"correlations": [found]})
    write_pages(tmp_path, record)
    shown = " ".join(terminal_text(study_document(record)).split())
    assert "Column With Pairs Pearson's r Spearman's ρ accuracy sensitivity, positive 100 0.30 –" in shown
    assert "| accuracy | sensitivity, positive | 100 | 0.30 | – |" in (tmp_path / "study.md").read_text()
    assert '<td class="n">0.30</td>' in (tmp_path / "study.html").read_text()


@pytest.mark.parametrize(("given", "said"), [([0], "0"), ([0, 1, 7, 8], "0, 1, 7, 8"), ([1, 2, 3, 4], "1 to 4")])
def test_many_seeds_are_named_as_a_range(finished, given, said):
    document = study_document(finished.record.model_copy(update={"seeds": given}))
    assert ("Seeds", said) in document.sections[-1].blocks[1].rows


def test_groups_and_notes_of_rows_are_shown(finished, tmp_path):
    record = finished.record.model_copy(deep=True)
    for row in record.table:
        row.group, row.note = "BUSI", "An erratum."
    lines = results(record).lines
    assert lines[0] == TableRow(("BUSI",), "group") and [line.kind for line in lines[1:]] == ["row", "row"]
    html = write_pages(tmp_path, record).read_text()
    assert html.count("An erratum.") == 2 and html.count(">BUSI</th>") == 1, "a heading stands once"


def test_what_the_weights_were_trained_on_is_a_column_where_rows_differ(finished):
    head = "Weights trained on"
    assert head not in heads(finished.record)
    first, *others = finished.record.table
    rows = [first.model_copy(update={"trained_on": "phantom"}), *others]
    rows[-1] = rows[-1].model_copy(update={"trained_on": "nothing (random weights)"})
    table = results(finished.record.model_copy(update={"table": rows}))
    place = heads(finished.record.model_copy(update={"table": rows})).index(head)
    shown = [row[place] for row in table.rows if isinstance(row, tuple)]
    assert shown[0] == "phantom" and shown[-1] == "nothing (random weights)"
