"""The page of ``usvit review`` in a browser, by keyboard, against a server of made-up cases."""

import os

import numpy as np
import pytest

from tests.reviewing.accessibility import HAS_AXE, NO_AXE, check_accessibility
from tests.reviewing.fake_server import AID, EVERY_KIND, MASKS, SCALE, FakeServer, image, task

pytestmark = pytest.mark.slow

STILL = [image("a")]


@pytest.fixture(scope="module")
def running():
    server = FakeServer()
    address = server.start()
    yield server, address
    server.stop()


@pytest.fixture
def server(running):
    return running[0]


@pytest.fixture
def visit(browser, running):
    """Open the page; afterwards no script may have failed, and nothing may have broken the policy of its security."""
    errors, contexts = [], []

    def visit(width=1280, height=800, scheme="light", own_time=False):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        context.set_default_timeout(30_000)
        page = context.new_page()
        visit.sent = []
        page.on("request", lambda request: visit.sent.append(request.url))
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda message: "Policy" in message.text and errors.append(message.text))
        if own_time:
            page.clock.install()
        page.goto(running[1])
        page.wait_for_selector("main > section:not([hidden])")
        if page.locator("canvas").count():
            page.wait_for_function(SHOWN)
        return page

    yield visit
    for context in contexts:
        context.close()
    assert errors == []


PIXELS = """() => [...document.querySelectorAll("canvas")].map(
    (canvas) => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data)"""
SHOWN = f"() => ({PIXELS})().every((data) => data.some((value, n) => n % 4 < 3 && value > 100))"


def pixels(page):
    """Some 20,000 values of the first canvas."""
    return np.array(page.evaluate(f"() => [...({PIXELS})()[0].filter((_, n) => n % 101 === 0)]"), float)


def same(a, b):
    """Whether two pictures are one, but for what a browser changes when it draws one again."""
    return np.abs(a - b).mean() < 0.5


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def status(page):
    return page.locator("#status").inner_text()


def wait_for_saved(page, server, n):
    for _ in range(500):
        if len(server.saved) >= n:
            return server.saved
        page.wait_for_timeout(20)
    raise AssertionError(server.saved)


def test_each_kind_of_question_is_answered_by_the_keyboard_alone(visit, server):
    server.begin([task(STILL, EVERY_KIND), task([image("b")], EVERY_KIND)])
    page = visit()
    press(page, "Enter")
    assert status(page) == "Please answer: Is the lesion malignant?" and server.current == 0
    press(page, "2", "4")
    assert status(page) == "4, then a, b, c."
    press(page, "b", "7", "5", "n", "1", "3")
    press(page, "n", "d", "ArrowRight", "ArrowRight", "Shift+ArrowDown", " ")
    press(page, "n", "d", " ", "Shift+ArrowRight", "Shift+ArrowDown", "ArrowDown", " ")
    press(page, "t")
    page.keyboard.type("Seen u p well")  # no letter does what it does outside of the text
    page.keyboard.press("Control+Enter")
    page.wait_for_function("() => document.querySelector('#count').textContent.startsWith('Reading 2')")
    assert {name: value for _, name, value in server.saved} == {
        "verdict": "malignant",
        "birads": "4b",
        "chance": 75,
        "signs": ["shadow", "calcification"],
        "centre": {"image": 0, "frame": 0, "x": 162, "y": 130},
        "lesion": {"image": 0, "frame": 0, "x": 160, "y": 120, "width": 10, "height": 11},
        "remark": "Seen u p well",
    }
    assert server.current == 1 and 0 < server.seconds[-1] < 60
    press(page, "u")  # reopens the last reading with its answers
    page.wait_for_function("() => document.querySelector('#count').textContent.startsWith('Reading 1')")
    assert page.locator("textarea").input_value() == "Seen u p well"
    assert page.locator("[type=number]").input_value() == "75"
    assert page.get_by_label("Malignant", exact=False).first.is_checked()


def test_window_zoom_flip_and_measurement(visit, server):
    server.begin([task(STILL, SCALE)])
    page = visit()
    first = pixels(page)
    page.keyboard.down("w")
    press(page, *["ArrowUp"] * 5)
    page.keyboard.up("w")
    assert pixels(page).mean() < first.mean() - 2  # a higher level is darker
    press(page, "r")
    assert same(pixels(page), first)
    press(page, "f")
    assert not same(pixels(page), first)
    press(page, "f")
    assert same(pixels(page), first)
    for key in ("+", "ArrowLeft", "x"):
        before = pixels(page)
        press(page, key)
        assert not same(pixels(page), before), key
    press(page, "z")
    assert same(pixels(page), first)
    press(page, "m", " ", *["Shift+ArrowRight"] * 3, *["Shift+ArrowUp"] * 4, " ")
    assert status(page) == "Distance: 5.0 mm."  # 30 and 40 pixels of 0.1 mm
    press(page, "Escape", "Delete")
    assert same(pixels(page), first)
    box = page.locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 300, box["y"] + 300)
    page.mouse.down(button="right")
    page.mouse.move(box["x"] + 200, box["y"] + 300)
    page.mouse.up(button="right")
    assert not same(pixels(page), first)
    assert server.saved == []


def test_without_a_spacing_lengths_are_pixels(visit, server):
    server.begin([task([image("a", spacing=None)], SCALE)])
    page = visit()
    press(page, "m", " ", "Shift+ArrowRight", " ")
    assert status(page) == "Distance: 10 px."


def test_loops_play_step_and_are_fetched_in_order(visit, server):
    server.begin([task([image("loop", frames=8)], SCALE), task([image("next")], SCALE)])
    page = visit()
    page.wait_for_function(
        "() => performance.getEntriesByType('resource').some((r) => r.name.endsWith('/image/next/0.png'))"
    )
    frames = [url for url in visit.sent if "/image/" in url]  # as they were sent; three travel at once
    assert [url.partition("/image/")[2] for url in frames] == [*(f"loop/{n}.png" for n in range(8)), "next/0.png"]
    frame = page.locator("output")
    press(page, ".", ".", ",")
    page.wait_for_function("() => document.querySelector('output').textContent === '2 / 8'")
    press(page, ",", ",")
    page.wait_for_function("() => document.querySelector('output').textContent === '8 / 8'")
    before = pixels(page)
    press(page, " ")
    page.wait_for_function("() => !['8 / 8', '1 / 8'].includes(document.querySelector('output').textContent)")
    press(page, " ")
    stopped = frame.inner_text()
    page.wait_for_timeout(150)
    assert frame.inner_text() == stopped and not same(pixels(page), before)
    asked = len(server.asked)
    press(page, "5", "0", "Enter")
    page.wait_for_function("() => document.querySelector('#count').textContent.startsWith('Reading 2')")
    page.wait_for_function(SHOWN)
    assert not any(path.startswith("/image/next") for path in server.asked[asked:])  # it was there already


def test_a_failed_answer_is_sent_until_it_is_saved(visit, server):
    server.begin([task(STILL, EVERY_KIND[:1]), task([image("b")], SCALE)])
    page = visit()
    server.failures = [503, 503]
    press(page, "1")
    page.wait_for_function("() => document.querySelector('#problem').textContent.includes('Nothing is lost')")
    press(page, "3", "Enter")  # a second thought, and the next case before the first answer is saved
    page.wait_for_function("() => document.querySelector('#count').textContent.startsWith('Reading 2')")
    assert server.saved[-1] == (100, "verdict", "unsure")
    assert page.locator("#problem").inner_text() == ""


def test_an_answer_that_was_not_saved_outlives_a_reload(visit, server):
    server.begin([task(STILL, EVERY_KIND[:1])])
    page = visit()
    server.failures = [503] * 3
    page.on("dialog", lambda dialog: dialog.accept())
    press(page, "2")
    page.wait_for_function("() => sessionStorage.getItem('unsaved')")
    page.reload()
    assert wait_for_saved(page, server, 1) == [(100, "verdict", "malignant")]
    assert page.get_by_label("Malignant", exact=False).is_checked()


def test_a_page_out_of_date_says_so_and_shows_how_things_stand(visit, server):
    server.begin([task(STILL, EVERY_KIND[:1]), task([image("b")], EVERY_KIND[:1])])
    page = visit()
    server.current = 1  # by another window
    press(page, "1")
    page.wait_for_function("() => document.querySelector('#count').textContent.startsWith('Reading 2')")
    assert "Another window has gone on." in page.locator("#problem").inner_text()
    assert server.saved == [] and not page.get_by_label("Benign", exact=False).is_checked()


def test_stages_feedback_and_the_end(visit, server):
    earlier = [{"label": "Your answers without the model", "answers": {"chance": 40}}]
    aided = {"stage": "aided", "stage_label": "With the model", "aid": AID, "masks": MASKS, "earlier": earlier}
    server.begin([task(STILL, EVERY_KIND[:1], training=True), task(STILL, SCALE), task(STILL, SCALE, **aided)])
    page = visit()
    press(page, "1", "Enter")
    page.get_by_text("The reference class is malignant.").wait_for()
    press(page, "2", "Enter")  # 2 answers nothing any more
    page.wait_for_function("() => document.querySelector('#count').textContent.startsWith('Reading 2')")
    assert server.saved == [(100, "verdict", "benign")]
    assert page.locator("#stage").inner_text() == "Without the model" and not page.locator("#aid").is_visible()
    assert not any("map" in path or "mask" in path for path in server.asked)
    plain = pixels(page)
    press(page, "4", "0", "Enter")
    page.get_by_text("Score of malignant").wait_for()
    assert page.locator("#stage").inner_text() == "With the model"
    assert page.locator("#earlier").inner_text().split("\n")[:3] == [
        "Your answers without the model",
        "How likely is malignancy?",
        "40",
    ]
    page.wait_for_function(
        f"() => ({PIXELS})()[0].some((red, n, data) => n % 4 === 0 && red > data[n + 2] + 50)"
    )  # colour
    assert {"/map/a/0", "/mask/a"} <= set(server.asked)
    weak = pixels(page)
    press(page, *"lllll")
    assert np.abs(pixels(page) - plain).mean() > np.abs(weak - plain).mean() + 0.1
    press(page, "o")
    assert same(pixels(page), plain)
    press(page, "6", "0", "Enter")
    page.get_by_text("All 3 readings are done. Thank you.").wait_for()
    press(page, "u")
    page.get_by_text("Score of malignant").wait_for()


def test_breaks_do_not_count(visit, server):
    server.begin([task(STILL, EVERY_KIND[:1])])
    page = visit(own_time=True)
    page.clock.run_for(10_000)
    press(page, "p")
    assert not page.locator("canvas").is_visible()
    page.clock.run_for(60_000)
    press(page, "1", "p", "?")  # 1 answers nothing in a break
    assert page.locator("#keys").is_visible()
    page.clock.run_for(60_000)
    press(page, "3", "Escape")
    assert not page.locator("#keys").is_visible()
    page.clock.run_for(10_000)
    press(page, "1")
    assert wait_for_saved(page, server, 1) == [(100, "verdict", "benign")]
    assert 19 < server.seconds[0] < 25
    page.clock.run_for(600_000)
    assert status(page) == "The clock stands still: there was no input for two minutes."
    press(page, "2")
    wait_for_saved(page, server, 2)
    assert 139 < server.seconds[1] < 146


READERS = [
    {"name": "R1", "link": "http://127.0.0.1:1/enter?token=x", "done": 3, "total": 9, "session": 1, "sessions": 2,
     "mean_seconds": 12.34, "finished": False, "opens_at": None},
]  # fmt: skip


def test_the_host_sees_the_readers(visit, server):
    readers = [{**READERS[0]}]
    server.begin([], role="host", readers=readers, export="usvit review export study.yaml")
    page = visit(own_time=True)
    row = page.locator("#readers tr")
    words = "R1 http://127.0.0.1:1/enter?token=x Copy 3 of 9 1 of 2 12.3 s reads"
    assert " ".join(row.inner_text().split()) == words
    assert page.locator("#export").inner_text() == "usvit review export study.yaml"
    readers[0].update(done=9, finished=True)
    page.clock.run_for(5000)
    page.get_by_role("cell", name="finished").wait_for()
    assert "9 of 9" in row.inner_text()


VIEWS = [image("a", label="left breast, view 1"), image("loop", frames=8, label="left breast, view 2")]
EARLIER = [{"label": "Without the model", "answers": {"verdict": "benign", "chance": 40}}]
AIDED = task(
    VIEWS, EVERY_KIND, stage="aided", stage_label="With the model", aid=AID, masks=MASKS, earlier=EARLIER, training=True
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_at_any_width(visit, server, scheme):
    for width in (390, 1280, 1920):
        server.begin([AIDED])
        page = visit(width, 844 if width == 390 else 900, scheme)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        assert page.locator("canvas").first.bounding_box()["width"] > 100
        press(page, *"nnnnn")  # the current question is seen, between the images and the button
        seen = "([x, y]) => document.elementFromPoint(x, y).closest('fieldset')?.ariaCurrent"
        page.wait_for_timeout(100)
        box = page.locator("[aria-current=true]").bounding_box()
        assert [page.evaluate(seen, [box["x"] + 30, box["y"] + y]) for y in (12, box["height"] - 12)] == [
            "true",
            "true",
        ]
        if folder := os.environ.get("USVIT_SCREENSHOTS"):
            page.screenshot(path=f"{folder}/{width}-{scheme}.png", full_page=width == 390)


@pytest.mark.skipif(not HAS_AXE, reason=NO_AXE)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_violation(visit, server, scheme):
    server.begin([AIDED])
    page = visit(scheme=scheme)
    check_accessibility(page)
    press(page, "?")
    check_accessibility(page)
    press(page, "Escape", "p")
    check_accessibility(page)
    press(page, "p", "1", "2", "5", "Enter")
    page.get_by_text("The reference class").wait_for()
    check_accessibility(page)
    press(page, "Enter")
    page.get_by_text("Thank you.").wait_for()
    check_accessibility(page)
    server.begin([], role="host", readers=READERS, export="usvit review export study.yaml")
    page = visit(390, scheme=scheme)
    check_accessibility(page)
