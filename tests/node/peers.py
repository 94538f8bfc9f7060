"""An SCP whose answers a test chooses, certificates for it, and the command line in this process."""

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydicom import Dataset
from pynetdicom import AE, StoragePresentationContexts, evt
from pynetdicom.sop_class import StorageCommitmentPushModel, StorageCommitmentPushModelInstance, Verification

from tests.programs import a_free_port, tool

TITLE = "ARCHIVE"


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
