"""Small DICOM files of made-up patients, and a running node."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.data.conftest import speckle, write_dicom
from tests.programs import a_free_port, tool, until
from usvit.node import NodeDatabase
from usvit.node.config.file import load_node_config
from usvit.node.config.settings import NodeConfig

ROOT = "1.2.826.0.1.3680043.8.498.77"
PLANTED = ("Doe^Jane", "MRN-4711", "Mercy Hospital", "ACC-99", ROOT)
"""Identity in the files: it may be in no log and no message."""


def image(path: Path, study: int, number: int, seed: int | None = None, **tags: object) -> Path:
    """An image of 64 x 64; the same numbers give the same bytes."""
    said = {
        "PatientName": "Doe^Jane",
        "PatientID": "MRN-4711",
        "InstitutionName": "Mercy Hospital",
        "AccessionNumber": "ACC-99",
        "Manufacturer": "ACME",
        "StudyDescription": "left breast",
        "StudyInstanceUID": f"{ROOT}.{study}",
        "SeriesInstanceUID": f"{ROOT}.{study}.1",
        "SOPInstanceUID": f"{ROOT}.{study}.1.{number}",
    }
    return write_dicom(path, speckle(1000 * study + number if seed is None else seed, 64, 64), **{**said, **tags})


def images(folder: Path, study: int, count: int) -> Path:
    for number in range(1, count + 1):
        image(folder / f"{study}-{number}.dcm", study, number)
    return folder


def settings(folder: Path, **changed: Any) -> dict[str, Any]:
    """Settings of a node on free ports of the loopback."""
    return {
        "folder": str(folder / "node"),
        "receive": {"port": a_free_port(), "allow": "any", "min_free_gb": 0, "idle_seconds": 20},
        "status": None,
        "studies": {"quiet_seconds": 0.5},
        "models": {"main": {"path": str(folder / "model"), "device": "cpu"}},
        "rules": [{"name": "breast", "when": {"description": "*breast*"}, "model": "main"}],
        **changed,
    }


def write_config(folder: Path, content: dict[str, Any]) -> Path:
    path = folder / "node.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


class RunningNode:
    """A service in a process of its own."""

    def __init__(self, path: Path, process: subprocess.Popen, log: Path):
        self.path, self.process, self.log = path, process, log
        self.config: NodeConfig = load_node_config(path)
        assert self.config.receive is not None
        self.port = self.config.receive.port
        self.database = NodeDatabase(self.config.database)

    def send(self, *what: object, options: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
        return storescu(self.port, *what, options=options)

    def wait_for(self, query: str, *values: object, seconds: float = 240.0) -> Any:
        """Wait until a query has a row whose first value is true, and return the row."""
        return until(lambda: (row := self.database.one(query, values)) is not None and row[0] and row, seconds)

    def wait_for_study(self, study: int, revision: int = 1, state: str = "done") -> Any:
        return self.wait_for(
            "SELECT id, * FROM studies WHERE study_uid = ? AND revision = ? AND state = ?",
            *(f"{ROOT}.{study}", revision, state),
        )


def storescu(port: int, *what: object, options: tuple[str, ...] = (), title: str = "USVIT") -> Any:
    """dcmtk's storescu; ``stdout`` holds what it says of the answers."""
    command = [tool("storescu"), "-v", "-aec", title, *options, "+sd", "+r", "127.0.0.1", str(port), *map(str, what)]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


@contextlib.contextmanager
def serving(folder: Path, content: dict[str, Any], command: tuple[str, ...] = ()) -> Iterator[RunningNode]:
    """``usvit node serve`` until the block ends; ``command`` is put before it."""
    path, log = write_config(folder, content), folder / "log.txt"
    with open(log, "wb") as file:
        process = subprocess.Popen(
            [*command, sys.executable, "-m", "usvit", "node", "serve", str(path)], stdout=file, stderr=file
        )
    try:
        until(lambda: process.poll() is not None or "is running" in log.read_text(), 300)
        assert process.poll() is None, log.read_text()
        node = RunningNode(path, process, log)
        yield node
        node.database.close()
    finally:
        process.terminate()
        process.wait(90)
