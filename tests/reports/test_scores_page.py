"""The page of a scored set as a person's browser shows it: headless Chromium, from file://, no network."""

import base64
import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from tests.scoring.scored import CLASSES, JOB, POSITIVE, THRESHOLD, failed, many, portions, row
from usvit.errors import UsvitError
from usvit.reports.data_table import highest
from usvit.reports.scores_document import ADVICE
from usvit.reports.scores_page import write_scores_page
from usvit.scoring.items import FAILURES
from usvit.scoring.tables.writer import write_tables

pytestmark = pytest.mark.slow

HOSTILE = "\"><img src=x onerror=alert(1)></script><script>alert(2)</script>\u2028'=1+1"
CODES = ["truncated"] * 3 + ["not_an_image"] * 5 + ["empty"]


def score(out, rows, *codes, path="", job=JOB, **settings):
    told = {"threshold": THRESHOLD, "threshold_origin": "sensitivity at least 0.9"} | settings
    write_tables(out, portions(rows), failed(*codes, path=path), job, classes=CLASSES, positive=POSITIVE, **told)
    return out


def pictures(rows):
    buffer = io.BytesIO()
    Image.new("L", (80, 60), 90).save(buffer, "JPEG")
    return ((one["item_id"], one["frame"], buffer.getvalue()) for one in rows)


ROWS = many(450)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory):
    out = score(tmp_path_factory.mktemp("scored"), ROWS, *CODES)
    return write_scores_page(out, pictures(ROWS), max_thumbnails=120)


def column(page, title, sheet="images"):
    heads = page.locator(f"#{sheet} table.rows thead th").all_inner_texts()
    at = [head.strip() for head in heads].index(title)
    return page.evaluate(
        """([sheet, at]) => [...document.querySelectorAll(`#${sheet} table.rows tbody tr`)]
            .map(row => row.cells[at].innerText)""",
        [sheet, at],
    )


def status(page, sheet="images"):
    return page.locator(f"#{sheet} [role=status]").inner_text()


def heading(page, title, sheet="images"):
    return page.locator(f"#{sheet} table.rows thead th", has_text=title)


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_the_counts_are_told_first_and_nothing_runs_over_the_edge(visit, page_file, width, scheme):
    page = visit(page_file, width, scheme)
    head = page.inner_text("header")
    summary = json.loads((page_file.parent / "summary.json").read_text())["counts"]
    assert "For research use only" in head
    assert f"{summary['files_scored']} files scored" in " ".join(head.split())
    assert f"{summary['frames_positive']} called malignant" in " ".join(head.split())
    assert f"{summary['frames_unusual']} unusual" in " ".join(head.split())
    assert "9 files with failures" in " ".join(head.split())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator("svg[role=img]").count() == 4
    ink, paper = page.evaluate(
        "[getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor]"
    )
    assert ink != paper


def test_a_press_on_a_heading_sorts_up_and_down_and_says_so(visit, page_file):
    page = visit(page_file)
    assert heading(page, "Calibrated").get_attribute("aria-sort") == "descending"
    first = [float(text) for text in column(page, "Calibrated")]
    assert first == sorted(first, reverse=True)
    assert first[0] == round(max(one["calibrated_malignant"] for one in ROWS), 3)
    heading(page, "Quality").get_by_role("button").click()
    best = [float(text) for text in column(page, "Quality")]
    assert best == sorted(best, reverse=True)
    heading(page, "Quality").get_by_role("button").click()
    worst = [float(text) for text in column(page, "Quality")]
    assert worst == sorted(worst)
    assert worst[0] == round(min(one["quality"] for one in ROWS), 3)
    assert heading(page, "Quality").get_attribute("aria-sort") == "ascending"
    assert heading(page, "Calibrated").get_attribute("aria-sort") is None


def test_the_keyboard_sorts_too(visit, page_file):
    page = visit(page_file)
    heading(page, "Image").get_by_role("button").focus()
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
    page.keyboard.press("Enter")
    names = column(page, "Image")
    assert names == sorted(one["item_id"] for one in ROWS)[:100]
    page.keyboard.press("Space")
    assert heading(page, "Image").get_attribute("aria-sort") == "descending"


def test_pages_of_a_hundred_hold_every_row_once(visit, page_file):
    page = visit(page_file)
    seen = []
    for _ in range(5):
        seen += zip(column(page, "Image"), column(page, "Frame"), strict=True)
        following = page.locator("#images .before [data-go=on]")
        if following.is_enabled():
            following.click()
    assert status(page) == "401\N{EN DASH}450 of 450 rows"
    assert sorted(seen) == sorted((one["item_id"], str(one["frame"])) for one in ROWS)
    assert page.locator("#images .before [data-go=last]").is_disabled()
    page.locator("#images .after [data-go=first]").click()
    assert status(page).startswith("1\N{EN DASH}100 ")


def test_filters_leave_the_rows_that_fit_and_tell_how_many(visit, page_file):
    page = visit(page_file)
    expected = {
        "decision": [one for one in ROWS if one["decision"] == POSITIVE],
        "unusual": [one for one in ROWS if one["unusual"]],
        "range": [one for one in ROWS if 0.2 <= float(f"{one['calibrated_malignant']:.6g}") <= 0.4],
        "words": [one for one in ROWS if "calipers" in one["flags"] and "text" in one["flags"]],
    }
    assert all(expected.values())
    tools = page.locator("#images .tools")

    def fits(name):
        n = len(expected[name])
        assert f"{n} rows (of 450)" in status(page), name
        assert len(column(page, "Image")) == min(n, 100)
        assert set(column(page, "Image")) <= {one["item_id"] for one in expected[name]}
        tools.get_by_role("button", name="Show all").click()
        assert status(page).endswith("of 450 rows")

    tools.get_by_label("Decision").select_option(POSITIVE)
    fits("decision")
    tools.get_by_label("only unusual").check()
    fits("unusual")
    tools.get_by_label("Calibrated from").fill("0.2")
    tools.get_by_label("to", exact=True).fill("0.4")
    fits("range")
    tools.get_by_label("Find").fill("Calipers text")
    fits("words")
    tools.get_by_label("Find").fill(ROWS[7]["item_id"])
    assert set(column(page, "Image")) == {ROWS[7]["item_id"]}
    tools.get_by_label("Find").fill("no such row")
    assert status(page) == "No row matches (of 450)."


def test_the_rows_that_are_left_can_be_saved(visit, page_file):
    page = visit(page_file)
    page.get_by_label("only unusual").check()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Save these rows").click()
    saved = pd.read_csv(waiting.value.path(), dtype=str)
    unusual = [one for one in ROWS if one["unusual"]]
    assert sorted(saved["Image"]) == sorted(one["item_id"] for one in unusual)
    assert all(flags.startswith("unusual") for flags in saved["Flags"])


def test_thumbnails_stand_by_their_own_rows_up_to_the_cap(visit, page_file):
    page = visit(page_file)
    images = page.locator("#images tbody img")
    assert images.count() == 100
    assert images.first.evaluate("image => image.decode().then(() => image.naturalWidth)") == 80
    page.locator("#images .before [data-go=on]").click()
    assert images.count() == 20
    assert "Thumbnails: only of the 120 images with the highest probability" in page.inner_text("#images")


def test_a_thumbnail_is_that_of_its_row(tmp_path):
    rows = many(40)
    told = [(one["item_id"], one["frame"], f"{one['item_id']} {one['frame']}".encode()) for one in rows]
    text = write_scores_page(score(tmp_path, rows), iter(told[3::2]), max_rows=25).read_text()

    def block(name):
        return json.loads(re.search(rf'id="images-{name}">(.*?)</script>', text, re.DOTALL)[1])

    shown, kept = block("rows"), block("pictures")
    assert len(shown) == 25
    assert 5 < len(kept) < 25
    for number, picture in kept.items():
        assert base64.b64decode(picture).decode() == f"{shown[int(number)][1]} {shown[int(number)][2]}"
    best = sorted((one["calibrated_malignant"] for one in rows), reverse=True)[:25]
    assert sorted((one[4] for one in shown), reverse=True) == pytest.approx(best, rel=1e-5)
    assert "Of 40 rows, the 25 highest are on this page" in " ".join(text.split())


def test_patients_failures_and_flags_are_those_of_the_tables(visit, page_file):
    page = visit(page_file)
    patients = pd.read_csv(page_file.parent / "patients.csv", dtype={"patient_id": str})
    patients = patients.sort_values("mean_calibrated_malignant", ascending=False, kind="stable")
    assert column(page, "Patient", "patients") == patients["patient_id"].tolist()[:100]
    assert column(page, "Decision", "patients") == patients["decision"].tolist()[:100]
    reasons = page.locator("#failures table").first.locator("tbody tr").all_inner_texts()
    assert [line.split("\t")[0] for line in reasons] == ["not_an_image", "truncated", "empty"]
    assert reasons[0].split("\t")[1:4:2] == [FAILURES["not_an_image"], "5 (55.6 %)"]
    assert column(page, "Code", "failures") == CODES
    summary = json.loads((page_file.parent / "summary.json").read_text())
    flags = dict(line.split("\t")[::2][:2] for line in page.locator("#flags tbody tr").all_inner_texts())
    assert {flag: int(words.split()[0]) for flag, words in flags.items()} == summary["flags"]


def test_what_was_written_for_the_images_is_told_with_the_reasons_why_not(visit, tmp_path):
    folder = score(tmp_path, [row(0)])
    summary = json.loads((folder / "summary.json").read_text())
    why = {"burned_in": {"rows": 2, "reason": "words may be burned in"}}
    summary["products"] = {"sr": {"written": 3, "failed": 0}, "sc": {"written": 1, "failed": 2, "reasons": why}}
    (folder / "summary.json").write_text(json.dumps(summary))
    page = visit(write_scores_page(folder))
    rows = [line.split("\t") for line in page.locator("#products tbody tr").all_inner_texts()]
    assert rows[0] == ["structured report", "dicom/<image>-sr.dcm", "3", "0", ""]
    assert rows[1][2:] == ["1", "2", "burned_in 2: words may be burned in"]


def test_every_failure_says_what_to_do():
    assert set(ADVICE) == set(FAILURES)


def test_hostile_paths_do_nothing_and_are_seen_as_text(visit, tmp_path):
    rows = [row(k, prob=0.9, path=f"{k} {HOSTILE}", flags=HOSTILE.replace(";", "")) for k in range(3)]
    rows += [row(9, patient_id=HOSTILE, study_id=HOSTILE)]
    page = visit(write_scores_page(score(tmp_path, rows, "empty", path=HOSTILE), pictures(rows[:1])))
    page.wait_for_timeout(200)
    shown = HOSTILE.replace("\u2028", "\\x2028")
    assert sorted(column(page, "Path"))[1:] == [f"{k} {shown}" for k in range(3)]
    assert column(page, "Path", "failures") == [shown]
    assert shown in column(page, "Patient", "patients")
    assert page.locator("img").count() == 1
    assert page.locator("script:not([type])").count() == 1


def test_what_the_page_may_do_is_written_in_it(page_file):
    text = page_file.read_text()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-")
    assert not re.findall(r"https?://(?!www\.w3\.org/)", text)
    assert not re.findall(r'(?:src|href)="(?!#)', text)


def test_a_reader_with_no_script_is_sent_to_the_tables(visit, page_file):
    page = visit(page_file, javascript=False)
    assert "The same rows are in scores.csv" in page.inner_text("#images")
    assert not page.locator("#images table.rows").is_visible()
    assert page.locator("svg[role=img]").count() == 4


def test_an_abstaining_job_and_one_without_threshold_say_so(visit, tmp_path):
    odd = {"unusual": True, "decision": ""}
    rows = [row(0, prob=0.9), row(1, prob=0.8, **odd)]
    page = visit(write_scores_page(score(tmp_path / "a", rows, abstain=True)))
    assert column(page, "Decision") == [POSITIVE, "no decision"]
    assert "No decision is made on them" in page.inner_text("header")
    assert "every file was scored" in page.inner_text("#failures")
    undecided = [one | {"decision": "", "threshold": None} for one in rows]
    out = score(tmp_path / "b", undecided, threshold=None, threshold_origin="none: no such rule")
    page = visit(write_scores_page(out))
    assert "no decisions" in page.inner_text("header")
    assert heading(page, "Decision").count() == 0
    assert "none: no such rule" in page.inner_text("#model")


def test_a_job_in_which_everything_failed_has_a_page(visit, tmp_path):
    page = visit(write_scores_page(score(tmp_path, [], "empty", "timeout")), 390)
    assert "No image was scored" in page.inner_text("#distributions")
    assert column(page, "Code", "failures") == ["empty", "timeout"]
    assert status(page) == "No row matches."


def test_a_row_is_a_card_on_a_phone_and_still_a_row_to_a_screen_reader(visit, page_file):
    page = visit(page_file, 390)
    assert page.get_by_role("table").first.get_by_role("row").count() == 1 + 25
    card = page.locator("#images tbody tr").first
    assert card.bounding_box()["width"] <= 350
    assert page.evaluate("getComputedStyle(document.querySelector('#images tbody tr')).display") == "grid"


def test_a_printed_page_holds_its_tables_and_no_controls(visit, page_file):
    a4_less_margins = 680  # 180 mm at 96 dots per inch
    page = visit(page_file, a4_less_margins, "dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= a4_less_margins
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("#images .tools").is_visible()


def test_a_screen_reader_finds_names_for_tables_pictures_and_sections(visit, page_file):
    page = visit(page_file)
    assert page.evaluate("[...document.querySelectorAll('table')].filter(t => !t.caption).length") == 0
    assert (
        page.evaluate("[...document.querySelectorAll('svg[role=img]')].filter(s => !s.querySelector('title')).length")
        == 0
    )
    anchors = page.evaluate("[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href').slice(1))")
    assert anchors == page.evaluate("[...document.querySelectorAll('main > section')].map(s => s.id)")
    unnamed = "[...document.querySelectorAll('input, select')].filter(c => !c.labels.length).length"
    assert page.evaluate(unnamed) == 0


@pytest.mark.slow
def test_thousands_of_rows_load_sort_and_filter(visit, tmp_path):
    rows = many(5_000)
    file = write_scores_page(score(tmp_path, rows))
    assert file.stat().st_size < 1_500_000
    page = visit(file)
    assert status(page) == "1\N{EN DASH}100 of 5,000 rows"
    heading(page, "OOD score").get_by_role("button").click()
    assert float(column(page, "OOD score")[0]) == round(max(one["novelty"] for one in rows), 3)
    page.get_by_label("only unusual").check()
    assert f"{sum(one['unusual'] for one in rows):,} rows (of 5,000)" in status(page)


def test_the_same_tables_give_the_same_bytes(tmp_path, page_file):
    before = page_file.read_bytes()
    assert write_scores_page(page_file.parent, pictures(ROWS), max_thumbnails=120).read_bytes() == before


@pytest.mark.parametrize("name", ["summary.json", "scores.parquet", "patients.csv", "failures.csv"])
def test_a_missing_or_damaged_table_is_told_and_leaves_the_page_as_it_was(tmp_path, name):
    file = write_scores_page(score(tmp_path, [row(0)]))
    before = file.read_bytes()
    (tmp_path / name).write_bytes(b"\x00 no table" if name.endswith(("parquet", "json")) else b"")
    with pytest.raises(UsvitError):
        write_scores_page(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(UsvitError):
        write_scores_page(tmp_path)
    assert file.read_bytes() == before
    assert not list(tmp_path.glob(".*partial*"))


def test_of_equals_the_first_are_the_highest_and_what_is_missing_is_not():
    values = np.array([0.5, np.nan, 0.9, 0.5, 0.1])
    assert highest(values, 2).tolist() == [True, False, True, False, False]
    assert highest(values, 9).all()
