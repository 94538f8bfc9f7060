"""A page against the rules of axe-core, whose ``axe.min.js`` (``npm pack axe-core``) the variable USVIT_AXE names."""

import os
from pathlib import Path

HAS_AXE = "USVIT_AXE" in os.environ
NO_AXE = "USVIT_AXE names no axe.min.js (npm pack axe-core)"


def check_accessibility(page):
    page.evaluate(Path(os.environ["USVIT_AXE"]).read_text())
    found = page.evaluate("() => axe.run()")
    assert len(found["passes"]) > 10
    bad = [one for one in found["violations"] if one["impact"] in ("serious", "critical")]
    assert [(one["id"], one["nodes"][0]["html"]) for one in bad] == []
