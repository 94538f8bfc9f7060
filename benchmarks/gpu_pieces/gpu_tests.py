"""The tests that are skipped on a machine without a GPU."""

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
_ASKS = re.compile(r"cuda\.is_available\(\)|needs?_(a_)?gpu")
"""Sign of a test file in which the presence of a GPU decides what runs."""


def files() -> list[str]:
    """List the test files whose tests depend on the presence of a GPU, relative to the repository."""
    found = [path for path in sorted((REPOSITORY / "tests").rglob("test_*.py")) if _ASKS.search(path.read_text())]
    return [path.relative_to(REPOSITORY).as_posix() for path in found]


def measure(settings: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Run these tests.

    Args:
        settings: ``files``, or None for all that ``files()`` finds.
        scratch: Folder for pytest's report.

    Returns:
        The number of ``passed`` tests, and names and messages of the ``failed`` and the ``skipped`` ones.

    Raises:
        RuntimeError: pytest itself failed.
    """
    chosen, report = settings["files"] or files(), scratch / "tests.xml"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *chosen]
    done = subprocess.run(words, cwd=REPOSITORY, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
    passed, failed, skipped = [], [], []
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        problems = [child for child in case if child.tag in ("failure", "error")]
        skips = [child for child in case if child.tag == "skipped"]
        if problems:
            failed.append({"name": name, "message": (problems[0].get("message") or "")[:500]})
        elif skips:
            skipped.append({"name": name, "message": (skips[0].get("message") or "")[:200]})
        else:
            passed.append(name)
    return {
        "files": chosen,
        "passed": len(passed),
        "failed": failed,
        "skipped": skipped,
        "command": f"python -m pytest {' '.join(chosen)}",
    }
