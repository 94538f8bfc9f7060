"""A trained run that the tests of scoring share."""

import json
import os
import subprocess
import sys

import filelock
import pytest

from tests.conftest import TINY
from usvit.records import run_hashes


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder that all workers of pytest-xdist share: what takes long is made once."""
    root = tmp_path_factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root


@pytest.fixture(scope="session")
def run(shared, small_phantom):
    """Three folds of a tiny network, trained by the command itself."""
    out = shared / "score-run"
    command = [sys.executable, "-m", "usvit", "cv", "--dataset", "phantom", "--data-root", str(small_phantom)]
    with filelock.FileLock(shared / "score-run.lock"):
        if not (out / "report.html").is_file():
            subprocess.run([*command, *TINY, "--out", str(out)], check=True, capture_output=True)
            for path in out.glob("fold-*/model.json"):  # so short a training leaves some networks without a temperature
                passport = json.loads(path.read_text())
                path.write_text(json.dumps(passport | {"temperature": passport["temperature"] or 1.5}))
            record = json.loads((out / "run.json").read_text())  # which holds the hashes of these files
            (out / "run.json").write_text(json.dumps(record | {"files": run_hashes(out)}))
    return out
