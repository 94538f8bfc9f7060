"""A page as PDF, printed by a browser of this machine."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import read_bytes

_BROWSERS = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "microsoft-edge",
    "msedge",
    "chrome",
)
_SECONDS = 300
_MOST_BYTES = 1 << 30


def browser() -> str:
    """Return the browser that prints: that of ``USVIT_BROWSER``, or else a Chromium, Chrome or Edge on the path.

    Raises:
        UsvitError: There is none.
    """
    own = os.environ.get("USVIT_BROWSER")
    found = next(filter(None, map(shutil.which, (own,) if own else _BROWSERS)), None)
    if found is None:
        missing = (
            f"USVIT_BROWSER names {own}, which is not there" if own else "no Chromium, Chrome or Edge is installed"
        )
        raise UsvitError(
            f"A PDF is printed by a browser, and {missing}. Install one (Debian: apt-get install chromium), name it "
            "with USVIT_BROWSER, or open report.html in any browser and print it."
        )
    return found


def pdf_of(page: Path) -> bytes:
    """Print a page that is one file, and return the PDF. The browser may reach no server, and keeps no profile.

    Raises:
        UsvitError: There is no browser, or it fails.
    """
    program = browser()
    with tempfile.TemporaryDirectory(prefix="usvit-pdf-", ignore_cleanup_errors=True) as place:
        target = Path(place) / "page.pdf"
        command = [
            *(program, "--headless", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
            *(f"--user-data-dir={place}/profile", "--host-resolver-rules=MAP * ~NOTFOUND", "--no-pdf-header-footer"),
            *(["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []),  # Chromium has none for root
            *(f"--print-to-pdf={target}", page.absolute().as_uri()),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=_SECONDS)
            said = f"it ended with code {done.returncode}: {' '.join(done.stderr.split())[-300:]}"
        except (OSError, subprocess.TimeoutExpired) as error:
            said = str(error)[:300]
        content = read_bytes(target, _MOST_BYTES) if target.is_file() else b""
    if not content.startswith(b"%PDF-"):
        raise UsvitError(
            f"The browser {program} printed no PDF of {page}: {said}. Open the page in it and print it there."
        )
    return content
