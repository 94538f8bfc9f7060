import threading
import time

import pydicom
import pytest

from tests.node.sending.objects import CAPTURE, REPORT, STATE, Queue, ae, config_of, uid_of
from tests.programs import a_free_port, storescp, until
from usvit.node.config.settings import PeerConfig
from usvit.node.sending import run_sender
from usvit.node.sending.delivery_process import HOLDS, PeerDelivery, wait_after

NEVER = threading.Event()


@pytest.fixture
def queue(tmp_path):
    found = Queue(tmp_path / "node")
    yield found
    found.database.close()


def delivery_of(queue, peer, **send):
    return PeerDelivery(config_of(queue.folder, peer, **send), "pacs", queue.database)


def deliver(delivery, queue, seconds=20.0):
    """Work until nothing waits."""
    end = time.monotonic() + seconds
    while "waiting" in queue.states():
        assert time.monotonic() < end, queue.audit()
        if not delivery.work(NEVER):
            time.sleep(0.01)


def test_results_arrive_once_and_in_order_over_one_association(queue, archive):
    uids = [*queue.add("a", "sc", "gsps", "sr"), *queue.add("b", "sc", "sr")]
    with archive.up():
        deliver(delivery_of(queue, ae(archive.port)), queue)
    assert archive.stored == uids
    assert archive.classes == [{CAPTURE, STATE, REPORT}]  # and nothing else is proposed
    assert queue.states() == ["sent"] * 5 and queue.events() == ["delivered"] * 5
    (row,) = queue.database.rows("SELECT * FROM deliveries WHERE id = 1")
    assert row["attempts"] == 1 and row["last_status"] == 0 and row["first_sent_at"] <= row["done_at"]


def test_everything_arrives_in_order_after_the_archive_was_down(queue, archive):
    uids = queue.add("a", "sc", "gsps", "sr")
    delivery = delivery_of(queue, ae(archive.port))
    for _ in range(3):
        until(lambda: delivery.work(NEVER))
    assert queue.states() == ["waiting"] * 3 and set(queue.events()) == {"peer_unavailable"}
    attempts = [row["attempts"] for row in queue.database.rows("SELECT attempts FROM deliveries ORDER BY id")]
    assert attempts == [3, 0, 0]
    with archive.up():
        deliver(delivery, queue)
    assert archive.stored == uids == archive.asked


def test_a_peer_that_stores_again_gets_what_has_waited_at_once(queue, archive):
    first = queue.add("a", "sc", "sr")
    delivery = delivery_of(queue, ae(archive.port), first_retry_seconds=600, longest_retry_minutes=600)
    assert delivery.work(NEVER)
    assert not delivery.work(NEVER)  # it waits for ten minutes
    with archive.up():
        later = queue.add("b", "sr")  # a new result is offered at once
        deliver(delivery, queue)
    assert archive.stored == [*later, *first]


@pytest.mark.parametrize("status", [0xA700, 0xC000, 0x0124])
def test_an_object_that_is_refused_holds_up_its_study_and_no_other(queue, archive, status):
    uids = [*queue.add("a", "sc", "sr"), *queue.add("b", "sc", "sr")]
    archive.statuses = [status] * 3
    with archive.up():
        deliver(delivery_of(queue, ae(archive.port)), queue)
    assert sorted(archive.stored) == sorted(uids) and len(archive.stored) == 4
    order = [uid for uid in archive.stored if uid in uids[:2]], [uid for uid in archive.stored if uid in uids[2:]]
    assert order == (uids[:2], uids[2:])


def test_warnings_count_as_stored_and_are_audited(queue, archive):
    uids = queue.add("a", "sc", "gsps", "sr")
    archive.statuses = [0xB000, 0xB006, 0xB007]
    with archive.up():
        deliver(delivery_of(queue, ae(archive.port)), queue)
    assert archive.stored == uids and queue.states() == ["sent"] * 3
    assert queue.events() == ["delivered_with_warning"] * 3


def test_a_lost_answer_is_repeated_with_the_same_uid(queue, archive):
    uids = queue.add("a", "sc", "sr")
    archive.before_answer = lambda event: event.assoc.abort() if len(archive.asked) == 1 else None
    with archive.up():
        deliver(delivery_of(queue, ae(archive.port)), queue)
    assert archive.asked == [uids[0], *uids]
    assert set(archive.stored) == set(uids)


def test_an_archive_that_says_it_has_the_object_already_ends_the_attempts(queue, archive):
    queue.add("a", "sr")
    archive.statuses = [0x0111]
    with archive.up():
        deliver(delivery_of(queue, ae(archive.port)), queue)
    assert queue.states() == ["sent"] and len(archive.asked) == 1


@pytest.mark.slow
def test_an_archive_that_does_not_answer_in_time_is_tried_again(queue, archive):
    uids = queue.add("a", "sc", "sr")
    archive.before_answer = lambda event: time.sleep(1.5) if len(archive.asked) == 1 else None
    with archive.up():
        deliver(delivery_of(queue, ae(archive.port, timeout_seconds=0.5)), queue)
    assert archive.asked == [uids[0], *uids]
    assert queue.states() == ["sent"] * 2


def test_a_class_that_is_never_accepted_does_not_keep_the_report_back(queue, archive):
    uids = queue.add("a", "gsps", "sr")
    archive.refuses = {STATE}
    delivery = delivery_of(queue, ae(archive.port))
    with archive.up():
        until(lambda: (delivery.work(NEVER) and queue.states() == ["waiting", "sent"]) or None)
    assert archive.stored == uids[1:]
    (row,) = queue.database.rows("SELECT * FROM deliveries WHERE state = 'waiting'")
    assert row["attempts"] >= HOLDS and "does not accept Grayscale Softcopy" in row["last_error"]


def test_what_never_succeeds_is_given_up_and_audited(queue, archive):
    queue.add("a", "sc", "sr")
    archive.statuses = [0xC000] * 1000
    delivery = delivery_of(queue, ae(archive.port), give_up_hours=0.5 / 3600)
    with archive.up():
        deliver(delivery, queue)
    assert queue.states() == ["gave_up"] * 2 and queue.events()[-1] == "delivery_gave_up"


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_file_that_is_gone_or_changed_is_not_sent(queue, archive, damage):
    queue.add("a", "sc", "sr")
    path = next((queue.folder / "results").rglob("0-sc.dcm"))
    path.unlink() if damage == "gone" else path.write_bytes(path.read_bytes() + b"\0\0")
    with archive.up():
        deliver(delivery_of(queue, ae(archive.port)), queue)
    assert queue.states() == ["gave_up", "sent"] and len(archive.stored) == 1


def test_waiting_times_double_up_to_the_longest(queue):
    send = config_of(queue.folder, ae(1), first_retry_seconds=5, longest_retry_minutes=1).send
    assert [wait_after(send, attempts) for attempts in (1, 2, 3, 4, 5, 1000)] == [5, 10, 20, 40, 60, 60]


def test_waiting_times_survive_a_restart(queue, archive):
    queue.add("a", "sr")
    slow = {"first_retry_seconds": 60.0, "longest_retry_minutes": 60.0}
    assert delivery_of(queue, ae(archive.port), **slow).work(NEVER)
    with archive.up():
        assert not delivery_of(queue, ae(archive.port), **slow).work(NEVER)  # another process
    assert archive.asked == []


@pytest.mark.slow
def test_a_dry_run_sends_nothing(queue, archive):
    queue.add("a", "sc", "sr")
    stop = threading.Event()
    config = config_of(queue.folder, ae(archive.port), dry_run=True)
    with archive.up():
        thread = threading.Thread(target=run_sender, args=(config, stop))
        thread.start()
        time.sleep(1.0)
        stop.set()
        thread.join(20)
    assert archive.classes == [] and queue.states() == ["waiting"] * 2


@pytest.mark.slow
def test_the_process_delivers_to_storescp_over_tls_and_stops(queue, tmp_path, pem):
    from usvit.node.config.settings import NodeTlsConfig

    port = a_free_port()
    tls = NodeTlsConfig(ca=pem["ca.pem"], certificate=pem["client.pem"], private_key=pem["client.key"])
    stop = threading.Event()
    thread = threading.Thread(target=run_sender, args=(config_of(queue.folder, ae(port, tls=tls)), stop))
    thread.start()
    uids = queue.add("a", "sc", "gsps", "sr")
    with storescp(tmp_path / "got", port, "+tls", pem["server.key"], pem["server.pem"], "+cf", pem["ca.pem"]) as got:
        until(lambda: queue.states() == ["sent"] * 3)
        stop.set()
        thread.join(20)
        assert not thread.is_alive()
    assert {pydicom.dcmread(path).SOPInstanceUID for path in got.iterdir()} == set(uids)


@pytest.mark.slow
def test_stow_delivers_to_orthanc_and_waits_for_it(queue, orthanc, tmp_path):
    uids = queue.add("a", "sc", "gsps", "sr")
    (tmp_path / "token").write_text("abc\n")
    away = PeerConfig(dicomweb=f"http://127.0.0.1:{a_free_port()}/dicom-web", token_file=tmp_path / "token")
    assert delivery_of(queue, away).work(NEVER)
    assert queue.states() == ["waiting"] * 3 and "cannot be reached" in queue.audit()
    there = PeerConfig(dicomweb=f"{orthanc.base}/dicom-web", token_file=tmp_path / "token")
    deliver(delivery_of(queue, there), queue)
    assert orthanc.instances() == set(uids) and queue.states() == ["sent"] * 3


def test_a_token_that_is_missing_is_told_and_the_results_wait(queue, tmp_path):
    queue.add("a", "sr")
    peer = PeerConfig(dicomweb="https://127.0.0.1:1/dicom-web", token_file=tmp_path / "no-token")
    delivery_of(queue, peer).work(NEVER)
    assert queue.states() == ["waiting"] and "no-token" in queue.audit()


def test_neither_names_nor_uids_are_in_the_audit_log(queue, archive):
    queue.add("a", "sc", "sr")
    archive.statuses = [0, 0xC000, 0xB000]
    with archive.up():
        deliver(delivery_of(queue, ae(archive.port)), queue)
    told = queue.audit() + str([tuple(row) for row in queue.database.rows("SELECT last_error FROM deliveries")])
    assert "p-a" in told and "pacs" in told
    assert [one for one in ("Doe", "MRN", uid_of("a"), uid_of("a-0"), uid_of("a-1")) if one in told] == []
