"""The documentation site: it builds without a warning and works offline; the commands of its gallery exist."""

import re
import runpy
import subprocess
import sys

import filelock
import pytest

from tests.conftest import REPOSITORY
from usvit.cli.commands import import_command

SITE = REPOSITORY / "site"


@pytest.fixture(scope="module")
def site(shared_folder):
    """The built site, made once for all workers: it takes half a minute."""
    if not SITE.is_dir():
        pytest.skip("not a checkout")
    out = shared_folder / "site"
    with filelock.FileLock(shared_folder / "site.lock"):
        if not (out / "site").is_dir():
            words = ("-W", "-n", "--keep-going", "-q", "-d", out / "read", "-c", SITE, REPOSITORY, out / "being-built")
            done = subprocess.run([sys.executable, "-m", "sphinx", *map(str, words)], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            (out / "being-built").rename(out / "site")
    return out / "site"


@pytest.mark.slow
def test_it_loads_nothing_from_elsewhere_and_finds_what_is_sought(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    for page in pages:
        if "gallery" not in page.parts:
            text = page.read_text(encoding="utf-8")
            assert not re.search(
                r"<(script|img|iframe)[^>]*src=\"(https?:)?//|<link[^>]*rel=\"stylesheet\"[^>]*href=\"https?:", text
            )
    assert "recalibr" in (site / "searchindex.js").read_text(encoding="utf-8")
    assert 'id="usvit.score"' in (site / "docs" / "reference" / "api.html").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1920])
@pytest.mark.parametrize("page", ["site/index", "docs/reference/commands", "docs/reference/api"])
def test_no_page_is_wider_than_the_window(site, browser, page, width):
    view = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    view.goto((site / f"{page}.html").as_uri())
    assert view.evaluate("() => document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("command", runpy.run_path(str(SITE / "gallery.py"))["COMMANDS"] if SITE.is_dir() else [])
def test_the_commands_of_the_gallery_exist(command):
    found = import_command(command.split()[0])
    if hasattr(found, "commands"):
        found = found.commands[command.split()[1]]
    flags = {flag for one in found.params for flag in one.opts}
    assert {word for word in command.split() if word.startswith("--")} <= flags
