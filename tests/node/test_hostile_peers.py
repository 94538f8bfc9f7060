"""Answers of peers that redirect, never end or drip: each client stops soon, with the reason."""

import threading
import time

import pytest
from pynetdicom.presentation import build_context

from benchmarks.fuzzing.servers import dicom_peer, http_peer, serving
from tests.node.images import image
from usvit.errors import UsvitError
from usvit.node.config.settings import PeerConfig
from usvit.node.receiving.archives import ArchivedInstance, DimseArchive, WebArchive
from usvit.node.sending import PeerUnavailable, associate, echo, end, send_dicom
from usvit.node.sending.answers import Outgoing
from usvit.node.sending.stow import StowClient

MOST_SECONDS = 8.0


def web(port, seconds=0.5):
    return PeerConfig(dicomweb=f"http://127.0.0.1:{port}/dicom-web", timeout_seconds=seconds)


def ae(port, seconds=0.5):
    return PeerConfig(ae_title="X", host="127.0.0.1", port=port, timeout_seconds=seconds)


def within_limits(call, reason):
    start = time.monotonic()
    with pytest.raises((PeerUnavailable, UsvitError), match=reason):
        call()
    assert time.monotonic() - start < MOST_SECONDS


KINDS = {
    "endless": "more than",
    "endless_header": "cannot be reached|more than",
    "drip": "too slowly",
    "drip_header": "too slowly",
    "bomb": "compresses",
    "silent": "did not answer in time|too slowly",
}


@pytest.mark.parametrize("kind", KINDS)
def test_stow_stops_at_an_answer_without_end(tmp_path, kind, monkeypatch):
    monkeypatch.setattr("usvit.node.sending.stow.ANSWER_BYTES", 300_000)
    file = Outgoing.of(image(tmp_path / "a.dcm", 1, 1))
    with serving(http_peer(kind)) as port, StowClient(web(port)) as client:
        within_limits(lambda: client.send(file), KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
def test_qido_stops_at_an_answer_without_end(kind, monkeypatch):
    monkeypatch.setattr("usvit.node.receiving.archives.PAGE_BYTES", 300_000)
    with serving(http_peer(kind)) as port, WebArchive(web(port), 10**6) as archive:
        within_limits(lambda: archive.studies({"StudyDate": "2026"}), KINDS[kind])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("content_type", ["application/dicom", "multipart/related; boundary=b"])
def test_wado_stops_at_an_instance_without_end(tmp_path, kind, content_type):
    one = ArchivedInstance("1.2", "1.3", "1.4", "")
    with serving(http_peer(kind, content_type=content_type)) as port, WebArchive(web(port), 10**6) as archive:
        start = time.monotonic()
        try:
            assert not archive.instance(one, tmp_path / "a.dcm")  # no part of a multipart answer
        except PeerUnavailable as error:
            assert any(words in str(error) for words in KINDS[kind].split("|"))
        assert time.monotonic() - start < MOST_SECONDS
    assert not (tmp_path / "a.dcm").exists() or (tmp_path / "a.dcm").stat().st_size < 2_000_000


def test_a_service_that_ignores_the_offset_is_asked_for_two_pages_only():
    with serving(http_peer("pages")) as port, WebArchive(web(port), 10**6) as archive:
        assert archive.studies({}) == ["1.2.3"]
        assert [one.instance for one in archive.instances("1.2.3")] == []  # its series is no UID


def test_no_client_follows_a_redirect_which_would_name_the_patient_to_another_server(tmp_path):
    asked = []

    def other(connection, over):
        asked.append(connection.recv(1 << 16))

    image(tmp_path / "out" / "a.dcm", 1, 1)
    with serving(other) as target, serving(http_peer("redirect", f"http://127.0.0.1:{target}/x")) as port:
        address = f"http://127.0.0.1:{port}/dicom-web"
        within_limits(lambda: send_dicom(tmp_path / "out", stow=address, timeout=1), "leads to another address")
        with WebArchive(web(port), 10**6) as archive:
            within_limits(lambda: archive.studies({"PatientName": "Doe*"}), "leads to another address")
            one = ArchivedInstance("1.2", "1.3", "1.4", "")
            within_limits(lambda: archive.instance(one, tmp_path / "b.dcm"), "leads to another address")
    assert asked == []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("endless", "more than 2,000 answers"),
        ("slow_matches", "too slowly"),
        ("fragments", "ended the association"),
        ("drip", "ended the association|too slowly"),
        ("huge", "ended the association"),
        ("silent", "ended the association|too slowly"),
    ],
)
def test_c_find_stops_at_answers_without_end(kind, reason, monkeypatch):
    monkeypatch.setattr("usvit.node.receiving.archives.MOST_MATCHES", 2_000)
    with serving(dicom_peer(kind)) as port:
        archive = DimseArchive(ae(port), "USVIT")
        archive.__enter__()
        within_limits(lambda: archive.studies({}), reason)
        start = time.monotonic()
        archive.__exit__(None, None, None)
        assert time.monotonic() - start < MOST_SECONDS


@pytest.mark.parametrize("kind", ["drip", "huge", "fragments", "silent"])
def test_c_echo_stops_too(kind):
    with serving(dicom_peer(kind)) as port:
        within_limits(lambda: echo(ae(port)), "does not answer C-ECHO")


def test_an_association_that_is_not_answered_ends():
    with serving(lambda connection, over: over.wait()) as port:
        within_limits(lambda: end(associate(ae(port), [build_context("1.2.840.10008.1.1")], "A")), "cannot be reached")
    assert threading.active_count() < 40
