"""Programs of others that tests talk to: how to find, start and await them; dcmtk's storescp and Orthanc."""

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

DICOMWEB = ("/usr/share/orthanc/plugins/libOrthancDicomWeb.so", "/usr/lib/orthanc/libOrthancDicomWeb.so")


def tool(name: str) -> str:
    """The path of a Debian tool; the test is skipped where it is absent."""
    found = shutil.which(name, path="/usr/bin:/usr/sbin") or shutil.which(name)  # pynetdicom has scripts of these names
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def said(*command: object) -> str:
    """What a program prints, which must end without an error."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def a_free_port() -> int:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        return own.getsockname()[1]


def listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0


def until(ready: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
    return found


@contextlib.contextmanager
def running(*command: object, **options: Any) -> Iterator[subprocess.Popen]:
    """A program for as long as a test needs it."""
    process = subprocess.Popen(
        [str(part) for part in command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **options
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextlib.contextmanager
def storescp(folder: Path, port: int, *options: object) -> Iterator[Path]:
    """dcmtk's storescp, which writes what it receives into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with running(tool("storescp"), *options, "-od", folder, port):
        until(lambda: listens(port), seconds=600)
        yield folder


class Orthanc:
    """What the REST interface of a running Orthanc answers."""

    def __init__(self, http: int, dicom: int):
        self.http, self.dicom, self.base = http, dicom, f"http://127.0.0.1:{http}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def read(self, path: str, data: Any = None, method: str | None = None, **headers: str) -> bytes:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.base + path, data=body, method=method, headers=headers)
        return self._opener.open(request, timeout=60).read()

    def call(self, path: str, data: Any = None, method: str | None = None) -> Any:
        answer = self.read(path, data, method)
        return json.loads(answer) if answer else None

    def answers(self) -> bool:
        try:
            return bool(self.call("/system"))
        except (urllib.error.URLError, OSError):
            return False

    def instances(self) -> set[str]:
        """SOP instance UIDs of what it holds."""
        return {one["MainDicomTags"]["SOPInstanceUID"] for one in self.call("/instances?expand")}

    def clear(self) -> None:
        for one in self.call("/patients"):
            self.call(f"/patients/{one}", method="DELETE")


@contextlib.contextmanager
def orthanc_server(folder: Path, *, dicomweb: bool = True, **settings: Any) -> Iterator[Orthanc]:
    """Orthanc on the loopback, with DICOMweb unless it is not wanted."""
    plugins = [one for one in DICOMWEB if dicomweb and Path(one).exists()][:1]
    if dicomweb and not plugins:
        pytest.skip("orthanc-dicomweb is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    found = Orthanc(a_free_port(), a_free_port())
    config = {
        **{"Name": "usvit", "StorageDirectory": str(folder / "db"), "IndexDirectory": str(folder / "db")},
        **{"HttpPort": found.http, "DicomPort": found.dicom, "DicomAet": "ORTHANC", "RemoteAccessAllowed": False},
        **{"Plugins": plugins, "DicomWeb": {"Enable": dicomweb, "Root": "/dicom-web/"}, "AuthenticationEnabled": False},
        **{"DicomAlwaysAllowStore": True, "DicomCheckCalledAet": False, "DicomAlwaysAllowFind": True},
        **{"DicomAlwaysAllowGet": True, "DicomAlwaysAllowMove": True, **settings},
    }
    (folder / "orthanc.json").write_text(json.dumps(config))
    with running(tool("Orthanc"), folder / "orthanc.json", cwd=folder) as server:
        until(lambda: server.poll() is not None or found.answers(), seconds=600)
        assert server.poll() is None, "Orthanc did not start"
        yield found
