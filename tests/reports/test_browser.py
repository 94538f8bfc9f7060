"""The report as a reader's browser shows it: headless Chromium, from file://, no network."""

import itertools
import json

import pandas as pd
import pytest

from tests.reports.conftest import fake_run
from usvit.reports import Options, write_report
from usvit.reports.author_answers import Answers

pytestmark = pytest.mark.slow

SCRIPT = "<script>alert(1)</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
LATEX = "$\\frac{a}{b}$ {{ 7 * 7 }} & id=\"x\" 'q'"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    return write_report(fake_run(tmp_path_factory.mktemp("run") / "vit-b32-busi"))


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    def change(record):
        record["name"] = SCRIPT
        record["command"] = f"usvit cv --dataset '{IMAGE}'"
        record["config"]["data"]["dataset"] = IMAGE
        record["versions"] = {SCRIPT: IMAGE}
        record["model"]["weights"] = {"source": "file", "file": IMAGE, "sha256": None}
        record["data"]["excluded"] = [{"dataset": SCRIPT, "image_id": IMAGE, "reason": "</table></section>"}]
        record["data"]["skipped"] = [{"path": f"/export/{'long-folder-name/' * 12}{IMAGE}", "reason": SCRIPT}]

        record["data"]["datasets"] = [SCRIPT]

    folder = tmp_path_factory.mktemp("hostile") / "run"
    answers = Answers(summary=SCRIPT, limits=(IMAGE,), items={"claim_2024": {"44": SCRIPT}})
    run = fake_run(folder, classes=(LATEX, SCRIPT, IMAGE), change=change)
    return write_report(run, Options(answers=answers))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 400])
def test_the_numbers_are_on_the_page_and_nothing_runs_over_its_edge(visit, report, width, scheme):
    page = visit(report, width, scheme)
    metrics = json.loads((report.parent / "metrics.json").read_text())
    rows = page.locator("#results table.headline tbody tr").all_inner_texts()
    quoted, whole = metrics["headline"]["accuracy"], metrics["pooled"]["accuracy"]
    (low, high), (least, most) = quoted["ci95"], whole["ci95"]
    assert [" ".join(cell.split()) for cell in rows[0].split("\t")] == [
        "Accuracy",
        f"{quoted['value']:.3f} {low:.3f} to {high:.3f}",
        "778",
        f"{whole['value']:.3f} {least:.3f} to {most:.3f}",
        f"{metrics['mean_sd']['accuracy']['sd']:.3f}",
    ]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # The flow, the folds' strip, five curves, two of abstention, and five losses.
    assert page.locator("svg[role=img]").count() == 14
    assert page.get_by_role("img", name="ROC curves, one for each of 3 classes").is_visible()


def test_hostile_names_do_nothing_and_are_seen_as_text(visit, hostile):
    for width in (1280, 400):
        page = visit(hostile, width)
        page.wait_for_timeout(200)
        text = page.inner_text("body")
        assert page.title().startswith(SCRIPT)
        assert page.inner_text("h1") == SCRIPT
        for name in (LATEX, SCRIPT, IMAGE):
            assert name in " ".join(page.inner_text("#classes").split())
            assert name in " ".join(page.inner_text("#curves").split())
            assert name in " ".join(page.inner_text("#cases").split())
        assert IMAGE in page.inner_text("#limits")
        assert SCRIPT in page.locator("table.checklist").first.text_content()
        assert "</table></section>" in text
        assert page.locator("script, img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_figure_is_drawn_with_the_colours_of_the_scheme(visit, report):
    inks = {}
    for scheme in ("light", "dark"):
        page = visit(report, scheme=scheme)
        inks[scheme] = page.evaluate("getComputedStyle(document.querySelector('#curves svg text')).fill")
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert inks[scheme] != paper
    assert inks["light"] != inks["dark"]


def test_curves_lie_inside_their_figures(visit, report):
    page = visit(report)
    drawn = page.evaluate(
        "[...document.querySelectorAll('#curves svg.plot')].map(s => s.querySelectorAll('path[clip-path]').length)"
    )
    # Each has 12 grid lines and the diagonal; then five folds and the pooled curve; three classes.
    assert drawn[:2] == [12 + 1 + 5 + 1, 12 + 1 + 3]
    assert page.locator("#curves svg[aria-labelledby=roc-title] g[id*=Collection]").count() == 1  # the band
    outside = page.evaluate("""() => [...document.querySelectorAll('svg.plot')].filter(svg => {
        const frame = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')].some(text => {
            const box = text.getBoundingClientRect();
            return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
        });
    }).length""")
    assert outside == 0


def test_a_hold_out_is_shown_too(visit, tmp_path):
    page = visit(write_report(fake_run(tmp_path / "run", kind="train")), 400)
    assert page.locator("svg[role=img]").count() == 9
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_printing_a_dark_page_gives_dark_text_on_white(visit, report):
    page = visit(report, scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_the_widest_table_fits_a_printed_page(visit, report):
    a4_less_margins = 680  # 180 mm at 96 dots per inch
    page = visit(report, a4_less_margins)
    page.emulate_media(media="print")
    assert page.evaluate("document.documentElement.scrollWidth") <= a4_less_margins


def test_many_classes_and_a_long_list_of_files_stay_readable(visit, tmp_path):
    classes = tuple(f"class {k}" for k in range(9))

    def change(record):
        record["data"]["skipped"] = [{"path": f"a/{k:04d}.png", "reason": "truncated"} for k in range(500)]

    run = fake_run(tmp_path / "run", classes=classes, shares=(1 / 9,) * 9, change=change)
    page = visit(write_report(run), 400)
    assert page.get_by_text("500 entries").is_visible()
    assert not page.get_by_text("a/0499.png").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    assert page.locator("table.confusion tbody tr").count() == 9
    assert len(pd.read_csv(run / "predictions.csv")) == 778


def test_a_keyboard_reaches_every_table_that_scrolls_and_opens_the_checklists(visit, report):
    page = visit(report, 400)
    unreachable = page.evaluate("""() => [...document.querySelectorAll('.wide')]
        .filter(region => region.tabIndex !== 0 || !region.getAttribute('aria-label')).length""")
    assert unreachable == 0
    item = page.locator("table.checklist th", has_text="44").first
    assert not item.is_visible()
    page.locator("#checklists summary").first.focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    assert item.is_visible()


def test_a_screen_reader_finds_names_for_tables_pictures_and_sections(visit, report):
    page = visit(report)
    assert page.evaluate("[...document.querySelectorAll('table')].filter(t => !t.caption).length") == 0
    assert (
        page.evaluate("[...document.querySelectorAll('svg[role=img]')].filter(s => !s.querySelector('title')).length")
        == 0
    )
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => +h.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    anchors = page.evaluate("[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href').slice(1))")
    assert anchors == page.evaluate("[...document.querySelectorAll('main > section')].map(s => s.id)")


def test_printing_shows_the_checklists_that_the_screen_folds_away(visit, report):
    page = visit(report)
    item = page.locator("table.checklist th", has_text="44").first
    assert not item.is_visible()
    page.emulate_media(media="print")
    assert item.bounding_box()["height"] > 5
