"""Peers that several tests of the node share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.images import RunningNode, serving, settings
from tests.node.peers import Archive, certificates
from tests.programs import Orthanc, orthanc_server, tool
from tests.reports.conftest import browser, visit  # noqa: F401 - fixtures
from tests.scoring.conftest import run  # noqa: F401 - fixture


@pytest.fixture(scope="session")
def _orthanc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Orthanc]:
    with orthanc_server(tmp_path_factory.mktemp("orthanc")) as found:
        yield found


@pytest.fixture
def orthanc(_orthanc: Orthanc) -> Orthanc:
    """An empty Orthanc with DICOMweb; all tests of a session share one."""
    _orthanc.clear()
    return _orthanc


@pytest.fixture
def archive() -> Iterator[Archive]:
    """An archive that is not started yet."""
    found = Archive()
    yield found
    found.stop()


@pytest.fixture(scope="session")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return certificates(tmp_path_factory.mktemp("pem"))


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory, run: Path, _orthanc: Orthanc) -> Iterator[RunningNode]:  # noqa: F811
    """A service that sends to Orthanc; all tests of a session share one, and use studies of their own."""
    tool("storescu")
    folder = tmp_path_factory.mktemp("node")
    content = settings(
        folder,
        models={
            "main": {"path": str(run), "device": "cpu"},
            "one": {"path": str(run), "folds": "0", "device": "cpu"},
        },
        peers={"pacs": {"ae_title": "ORTHANC", "host": "127.0.0.1", "port": _orthanc.dicom}},
        rules=[
            {"name": "phantoms", "when": {"description": "*phantom*"}, "leave_alone": True},
            {
                "name": "research",
                "when": {"description": "*research*"},
                "model": "one",
                "outputs": ["sr", "sc"],
                "send_to": ["pacs"],
                "identity": "pseudonym",
                "pictures": True,
            },
            {
                "name": "breast",
                "when": {"description": "*breast*", "modality": "US"},
                "model": "main",
                "outputs": ["sr", "sc", "gsps"],
                "send_to": ["pacs"],
            },
        ],
        send={"first_retry_seconds": 0.2},
    )
    with serving(folder, content) as found:
        yield found
