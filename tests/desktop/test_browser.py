"""The whole way of ``usvit app`` in a browser: choose by clicks, score, test, recalibrate, read."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.reviewing.accessibility import HAS_AXE, check_accessibility
from usvit.data.phantom import PhantomSpec, write_phantom


@pytest.mark.slow
def test_images_are_scored_read_and_tested_without_a_shell(browser, tiny_run, tmp_path):
    home = tmp_path / "home"
    images = home / "export"
    images.mkdir(parents=True)
    rows = ["path,label"]
    for picture in sorted(
        write_phantom(PhantomSpec(n=30, seed=77, size=64), tmp_path / "phantom", workers=1).rglob("*.png")
    ):
        label = picture.relative_to(tmp_path / "phantom").parts[0]
        if label in ("benign", "malignant", "normal") and "mask" not in picture.name:
            (images / picture.name).write_bytes(picture.read_bytes())
            rows.append(f"{picture.name},{label}")
    (tmp_path / "diagnoses.csv").write_text("\n".join(rows) + "\n")
    command = [sys.executable, "-m", "usvit", "app", "--no-browser", "--results", str(home / "results")]
    shutil.copytree(tiny_run, tmp_path / "models" / "tiny")  # beside it, other tests have runs of their own
    command += ["--models", str(tmp_path / "models")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "HOME": str(home)})
    try:
        link = re.search(r"http\S+", process.stdout.readline())[0]
        page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
        page.set_default_timeout(120_000)
        errors = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("response", lambda answer: answer.status >= 400 and errors.append(answer.url))
        page.goto(link)
        page.click("[data-pick=images]")
        page.click("#picker-list button:text-is('export')")
        page.click("#picker-use")
        page.wait_for_selector("#found p")
        assert f"{len(rows) - 1} files" in page.inner_text("#found")
        page.click("#models label:has-text('tiny') input")
        page.wait_for_selector("[data-start=score]:enabled")
        page.focus("#models input")
        page.wait_for_timeout(5_000)  # the page asks for the state again
        assert page.evaluate("() => document.activeElement.name") == "model"
        page.press("[data-start=score]", "Enter")
        page.wait_for_function(
            "() => document.activeElement.dataset.act === 'stop'"
        )  # where Score was cannot be pressed
        page.wait_for_selector("#scores a")
        assert f"{len(rows) - 1} images of {len(rows) - 1} files scored" in page.inner_text("#scores")
        page.wait_for_selector("[data-start=score]:enabled")
        page.set_input_files("#file", tmp_path / "diagnoses.csv")
        page.wait_for_selector("[data-start=test]:enabled")
        page.click("[data-start=test]")
        page.wait_for_selector("#tests a")
        assert "AUC" in page.inner_text("#tests")
        page.wait_for_selector("[data-start=recalibrate]:enabled")
        page.click("[data-start=test]")
        page.wait_for_selector("#tests > details")  # the earlier one is folded
        page.click("#tests > details summary")
        page.wait_for_timeout(5_000)  # the page asks for the state again
        assert page.locator("#tests > details[open]").count() == 1
        page.wait_for_selector("[data-start=recalibrate]:enabled")
        page.click("[data-start=recalibrate]")
        page.wait_for_selector("#fit li")
        page.click("[data-act=read]")
        page.wait_for_selector("#reader a")
        with page.expect_popup() as popup:
            page.click("#reader a")
        popup.value.wait_for_selector("canvas")
        assert "Is the model right?" in popup.value.inner_text("#questions")
        with page.expect_download() as download:
            page.click("#exports a >> nth=0")
        assert download.value.suggested_filename.endswith(".xlsx") and download.value.path().stat().st_size > 3_000
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
        page.wait_for_selector("#job.runs", state="hidden")
        for scheme in ("light", "dark") if HAS_AXE else ():
            page.evaluate("(scheme) => document.documentElement.dataset.theme = scheme", scheme)
            check_accessibility(page)
        page.click("[data-act=close]")
        assert process.wait(60) == 0 and errors == []
    finally:
        process.kill()
