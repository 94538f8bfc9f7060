"""The receiver, with dcmtk's storescu and raw sockets as peers."""

import os
import signal
import socket
import ssl
import struct
import subprocess
import threading
import time

import pytest

from tests.data.conftest import speckle
from tests.node.images import ROOT, image, images, settings, storescu, write_config
from tests.programs import tool, until
from usvit.node.child_process import ChildProcess
from usvit.node.config.file import load_node_config
from usvit.node.database import NodeDatabase
from usvit.pseudonyms import Pseudonyms

pytestmark = pytest.mark.slow


class Receiver:
    """The receiver's process, without the rest of a node."""

    def __init__(self, folder, **receive):
        tool("storescu")
        content = settings(folder)
        content["receive"] |= receive
        path = write_config(folder, content)
        self.config = load_node_config(path)
        self.port = self.config.receive.port
        self.config.folder.mkdir(mode=0o700)
        self.database = NodeDatabase(self.config.database, create=True)
        Pseudonyms.of_key(self.config.key_path)
        self.child = ChildProcess("receiver", "usvit.node.receiving.storage_scp:run_receiver", path)
        self.start()

    def start(self):
        self.child.start()
        self.child.wait_until_ready(threading.Event())

    def stop(self):
        self.child.ask_to_stop()
        self.child.end(30)
        self.database.close()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def n_stored(self):
        return self.database.one("SELECT count(*) FROM instances")[0]

    def refusals(self):
        query = "SELECT json_extract(data, '$.reason') FROM audit_events WHERE event = 'association_refused'"
        return [row[0] for row in self.database.rows(query)]


@pytest.fixture(scope="module")
def receiver(tmp_path_factory):
    """A receiver with narrow limits; tests use studies of their own."""
    own = Receiver(
        tmp_path_factory.mktemp("receiver"),
        max_associations=5,
        max_pdu_kb=64,
        max_instance_mb=1,
        idle_seconds=1.5,
        allow=[{"ae_title": "SCANNER", "address": "127.0.0.0/8"}, {"ae_title": "STORESCU"}],
    )
    yield own
    own.stop()


def test_four_associations_at_once_are_served(receiver, tmp_path):
    def send(study):
        answers.append(storescu(receiver.port, images(tmp_path / str(study), study, 5)))

    before, answers = receiver.n_stored(), []
    threads = [threading.Thread(target=send, args=(study,)) for study in range(100, 104)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [answer.returncode for answer in answers] == [0] * 4
    assert receiver.n_stored() == before + 20
    rows = receiver.database.rows("SELECT path, n_bytes FROM instances")
    assert all((receiver.config.folder / row["path"]).stat().st_size == row["n_bytes"] for row in rows)


@pytest.mark.parametrize(
    ("options", "title", "reason"),
    [((), "OTHER", "negotiation"), (("-aet", "STRANGER"), "USVIT", "calling_ae")],
)
def test_wrong_titles_are_rejected(receiver, tmp_path, options, title, reason):
    before = len(receiver.refusals())
    answer = storescu(receiver.port, image(tmp_path / "a.dcm", 110, 1), options=options, title=title)
    assert answer.returncode != 0
    assert "AE Title Not Recognized" in answer.stdout
    until(lambda: receiver.refusals()[before:] == [reason])


@pytest.mark.parametrize("syntax", ["--propose-implicit", "--propose-big", "--propose-deflated", "--propose-rle"])
def test_transfer_syntaxes_and_retired_classes_are_accepted(receiver, tmp_path, syntax):
    number = 120 + ["--propose-implicit", "--propose-big", "--propose-deflated", "--propose-rle"].index(syntax)
    retired = {"SOPClassUID": "1.2.840.10008.5.1.4.1.1.6"}
    converted = tmp_path / "b.dcm"
    image(tmp_path / "a.dcm", number, 1, **retired)
    coder = {
        "--propose-rle": ["dcmcrle"],
        "--propose-deflated": ["dcmconv", "+td"],
        "--propose-big": ["dcmconv", "+tb"],
    }
    command = coder.get(syntax, ["dcmconv", "+ti"])
    subprocess.run([tool(command[0]), *command[1:], str(tmp_path / "a.dcm"), str(converted)], check=True)
    answer = storescu(receiver.port, converted, options=(syntax, "-R"))
    assert answer.returncode == 0, answer.stdout
    row = receiver.database.one("SELECT * FROM instances WHERE study_uid = ?", (f"{ROOT}.{number}",))
    assert row["sop_class_uid"] == retired["SOPClassUID"]
    assert speckle(1000 * number + 1, 64, 64).shape == (64, 64)


def test_an_instance_that_is_too_large_ends_its_association_and_leaves_nothing(receiver, tmp_path):
    before = receiver.n_stored()
    large = image(tmp_path / "large.dcm", 130, 1, ImageComments="x" * 10_000, PixelData=bytes(3_000_000), Rows=1000)

    def sent():
        """Send it again while there is no free place: associations of the tests before end in their own time."""
        answer = storescu(receiver.port, large)
        return None if "Rejected Transient" in answer.stdout else answer

    answer = until(sent)
    assert answer.returncode != 0, answer.stdout
    until(lambda: "size" in receiver.refusals())
    assert receiver.n_stored() == before
    until(lambda: list((receiver.config.folder / "incoming" / ".partial").iterdir()) == [])


@pytest.mark.parametrize(
    "start", [b"\x01\x00" + struct.pack(">L", 2**31), b"\x01\x00\x00\x00\x02\x00" + bytes(3), b"GET "]
)
def test_a_client_that_sends_nonsense_or_a_byte_a_second_is_dropped_while_others_are_served(receiver, tmp_path, start):
    with receiver.connect() as slow:
        slow.sendall(start)
        answer = storescu(receiver.port, image(tmp_path / "a.dcm", 140 + len(start), 1))
        assert answer.returncode == 0
        end = time.monotonic() + 30
        try:
            while time.monotonic() < end:
                slow.settimeout(0.5)
                try:
                    if not slow.recv(100):
                        break
                except TimeoutError:
                    slow.sendall(b"\0")
        except OSError:
            pass
        assert time.monotonic() < end, "it was not dropped"


def test_connections_beyond_the_limit_are_closed_and_free_again_later(receiver, tmp_path):
    held = [receiver.connect() for _ in range(40)]
    until(lambda: "connections" in receiver.refusals())
    for one in held:
        one.close()
    until(lambda: storescu(receiver.port, image(tmp_path / "a.dcm", 150, 1)).returncode == 0)


def test_an_association_that_breaks_off_leaves_no_file_and_a_killed_receiver_starts_again(receiver, tmp_path):
    large = image(tmp_path / "l.dcm", 160, 1, PixelData=bytes(900_000), Rows=900, Columns=1000)
    process = subprocess.Popen(
        ["storescu", "-pdu", "4096", "-aec", "USVIT", "127.0.0.1", str(receiver.port), str(large)]
    )
    partial = receiver.config.folder / "incoming" / ".partial"
    until(lambda: process.poll() is not None or list(partial.iterdir()))
    os.kill(receiver.child.pid, signal.SIGKILL)
    process.wait(60)
    before = receiver.n_stored()
    receiver.start()
    assert list(partial.iterdir()) == []
    assert storescu(receiver.port, large).returncode == 0
    assert receiver.n_stored() in (before, before + 1)
    assert receiver.database.one("SELECT count(*) FROM instances WHERE study_uid = ?", (f"{ROOT}.160",))[0] == 1


def test_without_room_the_sender_is_told_0xa700_and_served_when_there_is_room(tmp_path):
    content = settings(tmp_path)
    receiver = Receiver(tmp_path, port=content["receive"]["port"], min_free_gb=10**7)
    try:
        answer = storescu(receiver.port, image(tmp_path / "a.dcm", 170, 1))
        assert "OutOfResources" in answer.stdout
        assert receiver.n_stored() == 0
        assert list((receiver.config.folder / "incoming").glob("*/*/*")) == []
    finally:
        receiver.stop()


def test_tls_with_certificates_of_both_sides(tmp_path, pem):
    keys = {"certificate": str(pem["server.pem"]), "private_key": str(pem["server.key"]), "ca": str(pem["ca.pem"])}
    receiver = Receiver(tmp_path, tls=keys, idle_seconds=3)
    try:
        with receiver.connect():  # a peer that never begins its handshake keeps nobody waiting
            trusted = ("+tls", str(pem["client.key"]), str(pem["client.pem"]), "+cf", str(pem["ca.pem"]))
            answer = storescu(receiver.port, image(tmp_path / "a.dcm", 180, 1), options=trusted)
            assert answer.returncode == 0, answer.stdout
        assert storescu(receiver.port, tmp_path / "a.dcm").returncode != 0  # without TLS
        anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anonymous.check_hostname, anonymous.verify_mode = False, ssl.CERT_NONE
        with pytest.raises((ssl.SSLError, ConnectionError)), anonymous.wrap_socket(receiver.connect()) as client:
            client.sendall(b"\x01\x00")
            if not client.recv(10):
                raise ConnectionError
        assert receiver.n_stored() == 1
    finally:
        receiver.stop()
