"""Real peers for the tests: dcmtk's programs, Orthanc, and an SCP whose answers a test chooses."""

import contextlib
import json
import shutil
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydicom import Dataset
from pynetdicom import AE, StoragePresentationContexts, evt
from pynetdicom.sop_class import StorageCommitmentPushModel, StorageCommitmentPushModelInstance, Verification

DICOMWEB = ("/usr/share/orthanc/plugins/libOrthancDicomWeb.so", "/usr/lib/orthanc/libOrthancDicomWeb.so")
TITLE = "ARCHIVE"


def tool(name: str) -> str:
    """The path of a Debian tool; the test is skipped where it is absent."""
    found = shutil.which(name, path="/usr/bin:/usr/sbin") or shutil.which(name)  # pynetdicom has scripts of these names
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


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
        until(lambda: listens(port))
        yield folder


class Orthanc:
    """What the REST interface of a running Orthanc answers."""

    def __init__(self, http: int, dicom: int):
        self.http, self.dicom, self.base = http, dicom, f"http://127.0.0.1:{http}"
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, path: str, data: Any = None, method: str | None = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(self.base + path, data=body, method=method)
        answer = self._opener.open(request, timeout=60).read()
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
def orthanc_server(folder: Path, **settings: Any) -> Iterator[Orthanc]:
    """Orthanc with DICOMweb on the loopback."""
    plugin = next((one for one in DICOMWEB if Path(one).exists()), None)
    if plugin is None:
        pytest.skip("orthanc-dicomweb is not installed")
    folder.mkdir(parents=True, exist_ok=True)
    found = Orthanc(a_free_port(), a_free_port())
    config = {
        **{"Name": "usvit", "StorageDirectory": str(folder / "db"), "IndexDirectory": str(folder / "db")},
        **{"HttpPort": found.http, "DicomPort": found.dicom, "DicomAet": "ORTHANC", "RemoteAccessAllowed": False},
        **{"Plugins": [plugin], "DicomWeb": {"Enable": True, "Root": "/dicom-web/"}, "AuthenticationEnabled": False},
        **{"DicomAlwaysAllowStore": True, "DicomCheckCalledAet": False, "DicomAlwaysAllowFind": True},
        **{"DicomAlwaysAllowGet": True, "DicomAlwaysAllowMove": True, **settings},
    }
    (folder / "orthanc.json").write_text(json.dumps(config))
    with running(tool("Orthanc"), folder / "orthanc.json", cwd=folder) as server:
        until(lambda: server.poll() is not None or found.answers())
        assert server.poll() is None, "Orthanc did not start"
        yield found


@dataclass
class Archive:
    """An SCP that answers what a test tells it to, and remembers what it was asked."""

    port: int = field(default_factory=a_free_port)
    statuses: list[int] = field(default_factory=list)
    """Status of each next C-STORE; Success when they are used up."""
    stored: list[str] = field(default_factory=list)
    """SOP instance UIDs, as often as they were stored with Success or a warning."""
    asked: list[str] = field(default_factory=list)
    """SOP instance UIDs of all C-STOREs."""
    classes: list[set[str]] = field(default_factory=list)
    """SOP classes that each association proposed."""
    before_answer: Callable[[evt.Event], None] | None = None
    refuses: set[str] = field(default_factory=set)
    """SOP classes that are not accepted."""
    requests: list[tuple[str, list[str]]] = field(default_factory=list)
    """Transaction UID and SOP instance UIDs of each N-ACTION."""
    answer_commitment: Callable[["Archive", evt.Event, str], None] | None = None
    """Called after an N-ACTION was answered."""
    commitment_status: int = 0
    _server: Any = None

    def start(self) -> None:
        entity = AE(ae_title=TITLE)
        entity.supported_contexts = [
            one for one in StoragePresentationContexts if one.abstract_syntax not in self.refuses
        ]
        entity.add_supported_context(Verification)
        entity.add_supported_context(StorageCommitmentPushModel)
        handlers = [
            (evt.EVT_C_STORE, self._on_store),
            (evt.EVT_N_ACTION, self._on_action),
            (evt.EVT_ACCEPTED, self._on_accepted),
        ]
        self._server = entity.start_server(("127.0.0.1", self.port), block=False, evt_handlers=handlers)

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server = None

    @contextlib.contextmanager
    def up(self) -> Iterator["Archive"]:
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def _on_accepted(self, event: evt.Event) -> None:
        self.classes.append({one.abstract_syntax for one in event.assoc.requestor.requested_contexts})

    def _on_store(self, event: evt.Event) -> int:
        uid = event.request.AffectedSOPInstanceUID
        self.asked.append(uid)
        if self.before_answer is not None:
            self.before_answer(event)
        status = self.statuses.pop(0) if self.statuses else 0
        if status == 0 or status >> 12 == 0xB:
            self.stored.append(uid)
        return status

    def _on_action(self, event: evt.Event) -> tuple[int, None]:
        data = event.action_information
        uids = [str(item.ReferencedSOPInstanceUID) for item in data.ReferencedSOPSequence]
        self.requests.append((str(data.TransactionUID), uids))
        if self.answer_commitment is not None and self.commitment_status == 0:
            answer = self.answer_commitment
            threading.Thread(target=answer, args=(self, event, str(data.TransactionUID)), daemon=True).start()
        return self.commitment_status, None


def report_on(association: Any, transaction: str, committed: list[str], failed: dict[str, int] | None = None) -> int:
    """Send N-EVENT-REPORT on an association; the status of the answer."""
    data = Dataset()
    data.TransactionUID = transaction
    data.ReferencedSOPSequence, data.FailedSOPSequence = [], []
    for uid in committed:
        item = Dataset()
        item.ReferencedSOPClassUID, item.ReferencedSOPInstanceUID = "1.2.840.10008.5.1.4.1.1.88.33", uid
        data.ReferencedSOPSequence.append(item)
    for uid, reason in (failed or {}).items():
        item = Dataset()
        item.ReferencedSOPClassUID, item.ReferencedSOPInstanceUID = "1.2.840.10008.5.1.4.1.1.88.33", uid
        item.FailureReason = reason
        data.FailedSOPSequence.append(item)
    if not failed:
        del data.FailedSOPSequence
    status, _ = association.send_n_event_report(
        data, 2 if failed else 1, StorageCommitmentPushModel, StorageCommitmentPushModelInstance
    )
    return int(status.get("Status", -1))


def certificates(folder: Path) -> dict[str, Path]:
    """A certificate authority and two certificates of it for 127.0.0.1, as PEM files: ca, server, client and keys."""
    folder.mkdir(parents=True, exist_ok=True)

    def openssl(*arguments: object) -> None:
        subprocess.run([tool("openssl"), *map(str, arguments)], cwd=folder, check=True, capture_output=True)

    new = ("-newkey", "rsa:2048", "-nodes", "-days", "2")
    openssl("req", "-x509", *new, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test authority")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
    for name in ("server", "client"):
        openssl("req", *new[:3], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(
            *("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial"),
            *("-out", f"{name}.pem", "-days", "2", "-extfile", "names"),
        )
    return {name: folder / name for name in ("ca.pem", "server.pem", "server.key", "client.pem", "client.key")}


def said(*arguments: object, code: int = 0) -> str:
    """What the command line prints, run in this process."""
    from typer.testing import CliRunner

    from usvit.cli import app

    done = CliRunner().invoke(app, [str(one) for one in arguments])
    assert done.exit_code == code, done.output
    return done.output
