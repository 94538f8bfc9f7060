"""A page becomes a PDF by the browser that is there, and says what is missing without one."""

import shutil

import pytest

from tests.reports.conftest import CHROMIUM
from usvit.errors import UsvitError
from usvit.reports.pdf import pdf_of


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_chromium_prints_a_page_of_two_sheets(tmp_path):
    (tmp_path / "page.html").write_text("<p>one</p><p style='break-before: page'>two</p>")
    content = pdf_of(tmp_path / "page.html")
    assert content.startswith(b"%PDF-") and content.rstrip().endswith(b"%%EOF")
    assert content.count(b"/Type /Page\n") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_without_a_browser_nothing_is_written(usvit, run_dir, monkeypatch, tmp_path):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    answer = usvit("report", run_dir, "--out", tmp_path / "out", "--pdf")
    assert answer.code == 2 and "no Chromium, Chrome or Edge is installed" in answer.err
    assert len(answer.err.splitlines()) == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("program", ["true", "false"])
def test_a_browser_that_prints_nothing_is_named(tmp_path, monkeypatch, program):
    if shutil.which(program) is None:
        pytest.skip(f"needs {program}")
    monkeypatch.setenv("USVIT_BROWSER", program)
    (tmp_path / "page.html").write_text("<p>one</p>")
    with pytest.raises(UsvitError, match=rf"browser .*{program} printed no PDF"):
        pdf_of(tmp_path / "page.html")
