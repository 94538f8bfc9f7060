"""The pages: they say what study.json says, hurt nobody, and stand alone."""

import re

import pytest

from usvit.upstream.records.study import StudyCorrelation
from usvit.upstream.studies import formatters
from usvit.upstream.studies.pages import write_pages

HOSTILE = '<script>alert(1)</script> & "quotes" | pipes | 100% $x_1$ {braces} \\input{x} [a](javascript:b) `tick`'


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
    lines = [line for line in (tmp_path / "study.md").read_text().splitlines() if line.startswith("|")]
    assert len(lines) == 2 + len(hostile.table)
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1
    assert not re.search(r"(?<!\\)<script", (tmp_path / "study.md").read_text())


def test_latex_keeps_its_columns_and_runs_no_command_of_a_cell(hostile, tmp_path):
    write_pages(tmp_path, hostile)
    tex = (tmp_path / "study.tex").read_text()
    assert "\\input" not in tex and "\\textbackslash{}input\\{x\\}" in tex
    rows = [line for line in tex.splitlines() if line.endswith("\\\\")]
    assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(formatters.grid(hostile)[0]) - 1}
    assert len(re.findall(r"(?<!\\)%", tex)) == 1, "only our own comment is one"


def test_the_same_state_gives_the_same_bytes(finished, tmp_path):
    for name in ("a", "b"):
        write_pages(tmp_path / name, finished.record)
    for name in ("study.html", "study.md", "study.tex"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_ours_stands_beside_the_papers_in_the_papers_unit(finished):
    header, lines = formatters.grid(finished.record)
    vit = dict(zip(header, lines[1], strict=False))
    assert vit["row"] == "Tiny/8" and re.fullmatch(r"\d+\.\d \[\d+\.\d, \d+\.\d\] %", vit["accuracy"])
    assert re.fullmatch(r"0\.\d{3} \[0\.\d{3}, 0\.\d{3}\]", vit["AUC, macro one vs rest"])
    assert lines[1].count("35%") == 1 and lines[1].count("0.99") == 1
    of_accuracy = header.index("accuracy")
    assert header[of_accuracy + 1 : of_accuracy + 4] == ["paper", "difference", "within"]
    ours, _, difference, within = lines[1][of_accuracy : of_accuracy + 4]
    assert float(difference) == pytest.approx(float(ours.split()[0]) - 35, abs=0.06) and within in ("yes", "no")
    assert lines[0][of_accuracy + 1 : of_accuracy + 4] == ["–"] * 3, "the paper prints nothing of the other"


def test_without_a_paper_there_are_no_columns_for_it(finished):
    record = finished.record.model_copy(update={"paper": None}, deep=True)
    for line in record.table:
        for figure in line.figures.values():
            figure.paper = figure.within = figure.difference = None
    assert formatters.grid(record)[0] == [
        "row",
        "images",
        "accuracy",
        "AUC, macro one vs rest",
        "sensitivity, positive",
    ]


def test_what_must_be_known_comes_first(finished):
    said = formatters.caveats(
        finished.record.model_copy(update={"other_dataset": "phantom", "changed": ["train.steps=2"]})
    )
    assert "not on the paper's data" in said[0] and "train.steps=2" in said[1] and "not said" in said[2]
    assert any("24 groups" in line or "groups only" in line for line in said[3:]), said


def test_a_tolerance_stands_in_the_head_of_its_column_in_the_columns_unit(finished):
    column = finished.record.columns[0].model_copy(update={"title": "ImageNet", "tolerance": 0.003})
    assert formatters.title(column) == "ImageNet (±0.3)"
    assert formatters.title(column.model_copy(update={"percent": False, "tolerance": 1.5})) == "ImageNet (±1.5)"


def test_a_tiny_study_says_so_first_and_compares_nothing(finished):
    said = formatters.caveats(finished.record.model_copy(update={"scale": "tiny"}))
    assert said[0].startswith("Tiny networks on generated images") and "say nothing about the paper" in said[0]


def test_correlations_stand_below_the_table_by_the_titles_of_their_columns(finished, tmp_path):
    pair = ["accuracy", "sensitivity.positive"]
    found = StudyCorrelation(columns=pair, n=100, pearson=0.304, spearman=None)
    record = finished.record.model_copy(update={"correlations": [found]})
    write_pages(tmp_path, record)
    shown = " ".join(formatters.terminal(record).split())
    assert "column with pairs Pearson's r Spearman's ρ accuracy sensitivity, positive 100 0.30 –" in shown
    assert "| accuracy | sensitivity, positive | 100 | 0.30 | – |" in (tmp_path / "study.md").read_text()
    assert '<td class="n">0.30</td>' in (tmp_path / "study.html").read_text()


@pytest.mark.parametrize(("given", "said"), [([0], "0"), ([0, 1, 7, 8], "0, 1, 7, 8"), ([1, 2, 3, 4], "1 to 4")])
def test_many_seeds_are_named_as_a_range(finished, given, said):
    assert formatters.seeds(finished.record.model_copy(update={"seeds": given})) == said


def test_groups_and_notes_of_rows_are_shown(finished, tmp_path):
    record = finished.record.model_copy(deep=True)
    for row in record.table:
        row.group, row.note = "BUSI", "An erratum."
    header, lines = formatters.grid(record)
    assert header[0] == "" and [line[0] for line in lines] == ["BUSI", "BUSI"]
    html = write_pages(tmp_path, record).read_text()
    assert html.count("An erratum.") == 2 and html.count("<td>BUSI</td>") == 1, "a heading stands once"
