"""Peers that several tests of the node share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.peers import Archive, Orthanc, certificates, orthanc_server


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
