"""The receiver: an application entity with C-ECHO and C-STORE, in a process that never infers.

An instance is written into ``incoming/.partial`` as its bytes arrive, so that memory stays flat, and Success is
answered only after ``InstanceStore.take`` has made it durable.

Status codes of C-STORE (PS3.4 B.2.3, PS3.7 annex C): 0xA700 out of resources, which senders try again; 0xA900 the data
set is not what was announced; 0xC000 the data set cannot be understood; 0xC111 another instance with this UID is
stored. The standard has no code of C-STORE for the last: 0x0111 (duplicate SOP instance) belongs to N-CREATE, 0xA7xx
would make the sender try again for ever, and the digits of 0xCxxx are the implementation's own.
"""

import contextlib
import gc
import logging
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pynetdicom
from pynetdicom import AE, dimse_messages, evt
from pynetdicom.sop_class import StorageCommitmentPushModel, Verification  # type: ignore[attr-defined]

from usvit.node.bounded_association import BoundedMessages
from usvit.node.child_process import report_ready
from usvit.node.config.settings import NodeConfig, ReceiveConfig
from usvit.node.database import NodeDatabase, add_event, count
from usvit.node.receiving.bounded_server import BoundedServer, limits_of, may_send
from usvit.node.receiving.instance_store import InstanceStore, Outcome
from usvit.node.receiving.sop_classes import TRANSFER_SYNTAXES, image_classes

STATUSES = {
    Outcome.STORED: 0x0000,
    Outcome.DUPLICATE: 0x0000,
    Outcome.FULL: 0xA700,
    Outcome.MISMATCH: 0xA900,
    Outcome.INVALID: 0xC000,
    Outcome.CONFLICT: 0xC111,
    Outcome.TOO_LARGE: 0xC000,
}
_BUG = 0xC001
"""Status if the receiver itself fails."""
_SWEEP_SECONDS = 2.0
_END_SECONDS = 20.0
"""Time that open associations have to end when the service stops."""
_TOLD_A_MINUTE = 20
"""Refusals of one kind that are audited one by one in a minute."""


def run_receiver(config: NodeConfig, stop: threading.Event) -> None:
    """Receive until ``stop`` is set; the main function of the process.

    Raises:
        OSError: the port is in use.
    """
    assert config.receive is not None
    database = NodeDatabase(config.database)
    store = InstanceStore.of(config, database, "receiver")
    store.clear_partials()
    with receive_into(store):
        server = _Receiver(config.receive, database, store).listen()
        gc.freeze()  # what was imported is not looked through again
        report_ready()
        try:
            while not stop.wait(_SWEEP_SECONDS):
                gc.collect()  # an association that broke off is a cycle, which may hold memory and a file
        finally:
            server.shutdown()
            end = time.monotonic() + _END_SECONDS
            while server.active_associations and time.monotonic() < end:
                time.sleep(0.05)
            for association in server.active_associations:
                association.abort()
            database.close()


class _Receiver:
    """The handlers of pynetdicom's events. They run in the threads of the associations."""

    def __init__(self, settings: ReceiveConfig, database: NodeDatabase, store: InstanceStore):
        self._settings, self._database, self._store = settings, database, store
        self._refusals = _Refusals(database)

    def listen(self) -> BoundedServer:
        settings = self._settings
        ae = AE(ae_title=settings.ae_title)
        ae.require_called_aet = True
        ae.maximum_associations = settings.max_associations
        ae.maximum_pdu_size = settings.max_pdu_kb * 1024
        ae.acse_timeout = ae.network_timeout = ae.dimse_timeout = settings.idle_seconds
        ae.add_supported_context(Verification)
        ae.add_supported_context(StorageCommitmentPushModel, scu_role=True, scp_role=True)
        for sop_class in image_classes():
            ae.add_supported_context(sop_class, list(TRANSFER_SYNTAXES))
        handlers = [
            (evt.EVT_REQUESTED, self._on_requested),
            (evt.EVT_REJECTED, self._on_rejected),
            (evt.EVT_C_STORE, self._on_store),
            (evt.EVT_N_EVENT_REPORT, self._on_event_report),
            (evt.EVT_ACCEPTED, self._on_accepted),
            *BoundedMessages(limits_of(settings), self._on_limit).handlers,
        ]
        server = ae.make_server(
            (settings.host, settings.port),
            ae_title=settings.ae_title,
            ssl_context=_tls_of_receiver(settings),
            evt_handlers=handlers,
            server_class=BoundedServer,
            limits=settings,
            refused=self._refusals.tell,
        )
        ae._servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True, name="listener").start()
        return server  # type: ignore[return-value]

    def _on_requested(self, event: evt.Event) -> None:
        """Refuse a peer that is not on the allow-list."""
        request: Any = event.assoc.requestor.primitive
        title, address = str(request.calling_ae_title).strip(), str(event.assoc.requestor.address)
        if not may_send(self._settings.allow, title, address):
            self._refusals.tell("calling_ae", "")
            event.assoc.acse.send_reject(0x01, 0x01, 0x03)  # permanent; calling AE title not recognised
            event.assoc.is_rejected = True
            event.assoc.kill()

    def _on_rejected(self, event: evt.Event) -> None:
        self._refusals.tell("negotiation", self._listed(event))

    def _listed(self, event: evt.Event) -> str:
        """Return the AE title of a peer if the allow-list names it; "" otherwise, because anything could be in it."""
        title = str(event.assoc.requestor.ae_title).strip()
        return title if any(one.ae_title == title for one in self._settings.allow) else ""

    def _on_accepted(self, event: evt.Event) -> None:
        with self._database.transaction() as connection:
            count(connection, "associations")

    def _on_limit(self, reason: str, event: evt.Event) -> None:
        self._refusals.tell(reason, self._listed(event))

    def _on_store(self, event: evt.Event) -> int:
        title = str(event.assoc.requestor.ae_title).strip()
        try:
            return STATUSES[store_received(event, self._store, source="dimse", calling_ae=title)]
        except Exception as error:
            with contextlib.suppress(Exception):
                self._refusals.tell(f"bug_{type(error).__name__}", self._listed(event))
            return _BUG

    def _on_event_report(self, event: evt.Event) -> tuple[int, Any]:
        from usvit.node.sending import on_event_report

        return on_event_report(self._database, event)


def store_received(event: evt.Event, store: InstanceStore, *, source: str, calling_ae: str = "") -> Outcome:
    """Take in the instance of a C-STORE, whose data set pynetdicom has written to a file of ``receive_into``."""
    request: Any = event.request
    file: _ReceivedFile = request._dataset_file
    try:
        file.finish()
        if file.trouble is not None:
            return Outcome.FULL
        announced = (str(request.AffectedSOPClassUID), str(request.AffectedSOPInstanceUID))
        return store.take(Path(file.name), source=source, calling_ae=calling_ae, announced=announced).outcome
    finally:
        file.discard()


class _Refusals:
    """Audits refused connections. If there are many, only their number is audited, once a minute."""

    def __init__(self, database: NodeDatabase):
        self._database, self._lock = database, threading.Lock()
        self._minute, self._told = 0, dict[str, int]()
        self._silent = dict[str, int]()

    def tell(self, reason: str, ae_title: str) -> None:
        """Audit one refusal.

        Args:
            reason: why, as one word.
            ae_title: title of a peer that is on the allow-list; "" otherwise, because anything could be in it.
        """
        with self._lock:
            minute = int(time.monotonic() // 60)
            if minute != self._minute:
                self._minute, self._told = minute, {}
            self._told[reason] = self._told.get(reason, 0) + 1
            if self._told[reason] > _TOLD_A_MINUTE:
                self._silent[reason] = self._silent.get(reason, 0) + 1
                return
            before = self._silent.pop(reason, 0)
        with contextlib.suppress(Exception), self._database.transaction() as connection:
            told = {"calling_ae": ae_title} if ae_title else {}
            told |= {"also": before} if before else {}  # type: ignore[dict-item]
            add_event(connection, "association_refused", reason=reason, **told)
            count(connection, "associations_refused", 1 + before)


class _ReceivedFile:
    """The file that pynetdicom writes a data set to, in place of ``tempfile.NamedTemporaryFile``.

    A write that fails is remembered, and the rest of the data set is dropped, so that the sender gets 0xA700 when it
    has sent all of it. The file is removed with the object if its association ends before.
    """

    store: InstanceStore

    def __init__(self, *_: Any, **__: Any):
        path = self.store.partial()
        self.name, self.trouble = str(path), None if self.store.has_room() else "full"
        self._file: Any = None
        try:
            self._file = open(path, "xb", buffering=1 << 18)  # noqa: SIM115
        except OSError as error:
            self.trouble = type(error).__name__

    @property
    def file(self) -> "_ReceivedFile":
        return self

    def write(self, data: bytes) -> int:
        if self.trouble is None:
            try:
                self._file.write(data)
            except OSError as error:
                self.trouble = type(error).__name__
        return len(data)

    def flush(self) -> None:
        """Do nothing: pynetdicom flushes after each fragment."""

    def finish(self) -> None:
        """Write what is buffered."""
        try:
            if self._file is not None:
                self._file.close()
        except OSError as error:
            self.trouble = self.trouble or type(error).__name__

    close = finish

    def discard(self) -> None:
        """Remove the file, if it is still there."""
        self.finish()
        with contextlib.suppress(OSError):
            Path(self.name).unlink()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self.discard()


def _tls_of_receiver(settings: ReceiveConfig) -> ssl.SSLContext | None:
    """Return the TLS context of the receiver; None without TLS.

    Raises:
        OSError: a file is missing or is no certificate or key (``ssl.SSLError``).
    """
    if settings.tls is None:
        return None
    assert settings.tls.certificate is not None and settings.tls.private_key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.tls.certificate, settings.tls.private_key)
    if settings.tls.ca is not None:
        context.load_verify_locations(settings.tls.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


@contextlib.contextmanager
def receive_into(store: InstanceStore) -> Iterator[None]:
    """Let pynetdicom write the data sets of this process to files as they arrive, and silence its log, which quotes
    UIDs and data sets.

    How data sets are written is a setting of the whole process. It is put back at the end, so that a later association
    of the caller, which has its own handlers, does not write into a store that is gone.
    """
    before = pynetdicom._config.STORE_RECV_CHUNKED_DATASET, dimse_messages.NamedTemporaryFile
    _ReceivedFile.store = store
    logging.getLogger("pynetdicom").setLevel(logging.CRITICAL + 1)
    pynetdicom._config.LOG_HANDLER_LEVEL = "none"
    pynetdicom._config.STORE_RECV_CHUNKED_DATASET = True
    dimse_messages.NamedTemporaryFile = _ReceivedFile  # type: ignore[assignment]
    try:
        yield
    finally:
        pynetdicom._config.STORE_RECV_CHUNKED_DATASET, dimse_messages.NamedTemporaryFile = before
