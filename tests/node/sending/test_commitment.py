import contextlib
import threading
import time

import pytest
from pynetdicom import AE, evt
from pynetdicom.presentation import build_role
from pynetdicom.sop_class import StorageCommitmentPushModel

from tests.node.peers import TITLE, report_on
from tests.node.sending.objects import Queue, ae, config_of, uid_of
from tests.programs import a_free_port, orthanc_server
from usvit.node.config.settings import NodeConfig
from usvit.node.sending import on_event_report
from usvit.node.sending.delivery_process import PeerDelivery

NEVER = threading.Event()


@pytest.fixture
def queue(tmp_path):
    found = Queue(tmp_path / "node")
    yield found
    found.database.close()


@contextlib.contextmanager
def receiver(queue, port=None):
    """What the receiver of a node does with N-EVENT-REPORT; yields its port."""
    port = port or a_free_port()
    entity = AE(ae_title="USVIT")
    entity.add_supported_context(StorageCommitmentPushModel, scu_role=True, scp_role=True)
    handlers = [(evt.EVT_N_EVENT_REPORT, lambda event: on_event_report(queue.database, event))]
    server = entity.start_server(("127.0.0.1", port), block=False, evt_handlers=handlers)
    try:
        yield port
    finally:
        server.shutdown()


def report_to(port, transaction, committed, failed=None):
    """Report on a new association, as an archive does: it proposes the role of the SCP."""
    entity = AE(ae_title=TITLE)
    entity.add_requested_context(StorageCommitmentPushModel)
    role = build_role(StorageCommitmentPushModel, scu_role=True, scp_role=True)
    association = entity.associate("127.0.0.1", port, ae_title="USVIT", ext_neg=[role])
    assert association.is_established
    try:
        return report_on(association, transaction, committed, failed)
    finally:
        association.release()


def work(delivery, done, seconds=20.0):
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        if not delivery.work(NEVER):
            time.sleep(0.01)


def delivery_of(queue, archive, **send):
    return PeerDelivery(
        config_of(queue.folder, ae(archive.port, storage_commitment=True), **send), "pacs", queue.database
    )


def on_the_same(archive, event, transaction):
    report_on(event.assoc, transaction, archive.requests[-1][1])


def test_an_answer_on_the_same_association_commits(queue, archive):
    uids = queue.add("a", "sc", "gsps", "sr")
    archive.answer_commitment = on_the_same
    with archive.up():
        work(delivery_of(queue, archive), lambda: queue.states() == ["committed"] * 3)
    assert [found for _, found in archive.requests] == [uids]
    assert len(archive.classes) == 1  # stored, asked and answered on one association
    assert queue.events()[-2:] == ["commitment_requested", "commitment_complete"]
    (row,) = queue.database.rows("SELECT * FROM commitments")
    assert row["state"] == "complete" and row["answered_at"] >= row["requested_at"]


def test_an_answer_on_the_next_association_commits(queue, archive, monkeypatch):
    monkeypatch.setattr("usvit.node.sending.commitment.LINGER_SECONDS", 0.3)
    queue.add("a", "sr")
    told = []

    def on_the_next(event):
        if archive.requests and event.assoc is not first[0] and not told:
            told.append(report_on(event.assoc, *archive.requests[0]))

    first = []
    archive.answer_commitment = lambda archive, event, transaction: first.append(event.assoc)
    archive.start()
    archive._server.bind(evt.EVT_ESTABLISHED, lambda event: threading.Thread(target=on_the_next, args=(event,)).start())
    with archive.up() if archive._server is None else contextlib.nullcontext():
        work(delivery_of(queue, archive), lambda: queue.states() == ["committed"])
    assert told == [0] and len(archive.classes) == 2 and len(archive.requests) == 1


def test_an_answer_on_a_new_association_commits(queue, archive, monkeypatch):
    monkeypatch.setattr("usvit.node.sending.commitment.LINGER_SECONDS", 0.0)
    uids = queue.add("a", "sc", "sr")
    with archive.up(), receiver(queue) as port:
        work(delivery_of(queue, archive), lambda: bool(archive.requests))
        assert report_to(port, archive.requests[0][0], uids) == 0
        assert queue.states() == ["committed"] * 2
        assert report_to(port, archive.requests[0][0], [], dict.fromkeys(uids, 0x0112)) == 0  # once more: no change
        assert queue.states() == ["committed"] * 2
        assert report_to(port, "2.25.4711", uids) == 0x0110  # never asked


def test_what_the_archive_does_not_have_is_sent_again_with_the_same_uid(queue, archive):
    uids = queue.add("a", "sc", "sr")

    def lacks_the_first_once(archive, event, transaction):
        failed = {uids[0]: 0x0112} if len(archive.requests) == 1 else {}
        asked = archive.requests[-1][1]
        report_on(event.assoc, transaction, [uid for uid in asked if uid not in failed], failed)

    archive.answer_commitment = lacks_the_first_once
    with archive.up():
        work(delivery_of(queue, archive), lambda: queue.states() == ["committed"] * 2)
    assert archive.asked == [*uids, uids[0]]
    assert [found for _, found in archive.requests] == [uids, uids[:1]]
    assert archive.requests[0][0] != archive.requests[1][0]
    assert "commitment_incomplete" in queue.events()


def test_other_failures_are_asked_for_again_and_not_sent_again(queue, archive):
    uids = queue.add("a", "sr")

    def later(archive, event, transaction):
        failed = {uids[0]: 0x0213} if len(archive.requests) == 1 else {}
        report_on(event.assoc, transaction, [] if failed else uids, failed)

    archive.answer_commitment = later
    with archive.up():
        work(delivery_of(queue, archive), lambda: queue.states() == ["committed"])
    assert archive.asked == uids and len(archive.requests) == 2


def test_a_request_that_is_refused_or_never_answered_is_repeated(queue, archive, monkeypatch):
    monkeypatch.setattr("usvit.node.sending.commitment.LINGER_SECONDS", 0.05)
    queue.add("a", "sr")
    archive.commitment_status = 0x0110
    with archive.up():
        delivery = delivery_of(queue, archive, commitment_minutes=0.2 / 60)
        work(delivery, lambda: len(archive.requests) == 2)
        archive.commitment_status = 0  # accepted, and not answered
        work(delivery, lambda: len(archive.requests) == 4)
        archive.answer_commitment = on_the_same
        work(delivery, lambda: queue.states() == ["committed"])
    assert len({transaction for transaction, _ in archive.requests}) == len(archive.requests)


def test_nothing_is_asked_of_an_archive_without_storage_commitment(queue, archive):
    queue.add("a", "sr")
    config = config_of(queue.folder, ae(archive.port))
    with archive.up():
        work(PeerDelivery(config, "pacs", queue.database), lambda: queue.states() == ["sent"])
        assert not PeerDelivery(config, "pacs", queue.database).work(NEVER)
    assert archive.requests == [] and StorageCommitmentPushModel not in archive.classes[0]


def test_an_answer_that_cannot_be_read_or_names_others_changes_nothing(queue, archive, monkeypatch):
    monkeypatch.setattr("usvit.node.sending.commitment.LINGER_SECONDS", 0.0)
    queue.add("a", "sr")
    with archive.up(), receiver(queue) as port:
        work(delivery_of(queue, archive), lambda: bool(archive.requests))
        assert report_to(port, "", []) in (0x0110, 0x0115)
        assert report_to(port, archive.requests[0][0], ["1.2.3.4"]) == 0
    assert queue.states() == ["sent"]  # it is asked for again
    assert uid_of("a") not in queue.audit()


@pytest.mark.slow
def test_orthanc_commits_itself(queue, tmp_path):
    """Orthanc answers on a new association, which it opens to our receiver."""
    uids = queue.add("a", "sc", "gsps", "sr")
    with receiver(queue) as port:
        modalities = {"usvit": ["USVIT", "127.0.0.1", port]}
        with orthanc_server(tmp_path / "orthanc", DicomModalities=modalities) as orthanc:
            peer = ae(orthanc.dicom, storage_commitment=True, ae_title="ORTHANC")
            config: NodeConfig = config_of(queue.folder, peer, first_retry_seconds=0.5)
            work(PeerDelivery(config, "pacs", queue.database), lambda: queue.states() == ["committed"] * 3)
            assert orthanc.instances() == set(uids)
