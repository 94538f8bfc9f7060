"""A trained run that the tests of scoring share."""

import json
import os

import filelock
import pytest

from tests.conftest import TINY
from tests.processes import command_line, ended_well
from tests.processes import run as run_process
from usvit.files import sha256_of_file


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A folder that all workers of pytest-xdist share: what takes long is made once."""
    root = tmp_path_factory.getbasetemp()
    return root.parent if "PYTEST_XDIST_WORKER" in os.environ else root


@pytest.fixture(scope="session")
def run(shared, small_phantom):
    """Three folds of a tiny network, trained by the command itself."""
    out = shared / "score-run"
    command = ["cv", "--dataset", "phantom", "--data-root", str(small_phantom)]
    with filelock.FileLock(shared / "score-run.lock"):
        if not (out / "report.html").is_file():
            ended_well(run_process(command_line, *command, *TINY, "--out", str(out)))
            for path in out.glob("fold-*/model.json"):  # so short a training leaves some networks without a temperature
                edit_metadata(path.parent, temperature=json.loads(path.read_text())["temperature"] or 1.5)
    return out


def edit_metadata(folder, without=(), /, **changed):
    """Change the ``model.json`` of a fold, and the hash of it that its run has on record."""
    path, run = folder / "model.json", folder.parent / "run.json"
    metadata = json.loads(path.read_text()) | changed
    path.write_text(json.dumps({key: value for key, value in metadata.items() if key not in without}))
    record = json.loads(run.read_text())
    record["files"][f"{folder.name}/model.json"] = sha256_of_file(path)
    run.write_text(json.dumps(record))
