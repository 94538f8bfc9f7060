"""The pages: they say what study.json says, hurt nobody, and stand alone."""

import re

import pytest

from tests.studies.conftest import CONTENT, study_of
from usvit.records.study import StudyTableRow
from usvit.studies import formatters
from usvit.studies.pages import write_pages

HOSTILE = '<script>alert(1)</script> & "quotes" | pipes | 100% $x_1$ {braces} \\input{x} [a](javascript:b) `tick`'


@pytest.fixture
def hostile(finished):
    """The record of a study whose every text is hostile; one run failed."""
    record = finished.record.model_copy(deep=True)
    record.title = record.command = HOSTILE
    record.notes, record.changed = [HOSTILE], [HOSTILE]
    record.paper.source = record.paper.table = record.paper.protocol = HOSTILE
    record.runs[0].state, record.runs[0].error, record.runs[0].id = "failed", HOSTILE, HOSTILE
    for line in record.table:
        line.model = line.printed_as = HOSTILE
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
    assert vit["in the paper"] == "Tiny/8" and re.fullmatch(r"\d+\.\d \[\d+\.\d, \d+\.\d\] %", vit["accuracy"])
    assert re.fullmatch(r"0\.\d{3} \[0\.\d{3}, 0\.\d{3}\]", vit["AUC, macro one vs rest"])
    assert lines[1].count("35%") == 1 and lines[1].count("0.99") == 1
    assert set(lines[0][5:6] + lines[0][8:9]) == {"–"}, "the paper prints nothing of the other"


def test_without_a_paper_there_are_no_columns_for_it(finished):
    record = finished.record.model_copy(update={"paper": None}, deep=True)
    for line in record.table:
        for figure in line.figures.values():
            figure.paper = figure.within = None
    assert formatters.grid(record)[0] == [
        "model",
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


def test_lines_that_differ_in_their_recipe_or_variant_say_so(finished):
    blocks = [{**CONTENT["grid"][0], "variant": name} for name in ("a", "b")]
    study = study_of(grid=blocks, paper=None)
    common = {"dataset": "phantom", "model": "m", "recipe": "demo"}
    table = [StudyTableRow(variant=block.variant, **common) for block in study.grid]
    record = finished.record.model_copy(update={"table": table})
    assert [formatters.label_of(line, record) for line in table] == ["m, demo, a", "m, demo, b"]
