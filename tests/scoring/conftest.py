"""A trained run that the tests of scoring share."""

import json
import shutil

import filelock
import pytest

from usvit.files import sha256_of_file


@pytest.fixture(scope="session")
def run(shared_folder, tiny_run):
    """Three folds of a tiny network, each with a temperature."""
    out = shared_folder / "score-run"
    with filelock.FileLock(shared_folder / "score-run.lock"):
        if not out.is_dir():
            copied = shutil.copytree(tiny_run, shared_folder / "score-run-copy")
            for path in copied.glob("fold-*/model.json"):  # so short a training leaves some networks without one
                edit_metadata(path.parent, temperature=json.loads(path.read_text())["temperature"] or 1.5)
            copied.rename(out)
    return out


def edit_metadata(folder, without=(), /, **changed):
    """Change the ``model.json`` of a fold, and the hash of it that its run has on record."""
    path, run = folder / "model.json", folder.parent / "run.json"
    metadata = json.loads(path.read_text()) | changed
    path.write_text(json.dumps({key: value for key, value in metadata.items() if key not in without}))
    record = json.loads(run.read_text())
    record["files"][f"{folder.name}/model.json"] = sha256_of_file(path)
    run.write_text(json.dumps(record))
