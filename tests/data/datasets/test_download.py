import hashlib
import random
import socket
import time
from pathlib import Path

import pytest

from benchmarks.fuzzing.servers import http_peer, serving
from tests.data.file_server import FileServer, Reply
from tests.messages import record_messages
from usvit.data.datasets import download as module
from usvit.data.datasets.cards import FetchFile
from usvit.data.datasets.download import download, read_url
from usvit.errors import UsvitError
from usvit.progress import NoProgress

BODY = random.Random(0).randbytes(300_000)
OTHER = random.Random(1).randbytes(300_000)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(module, "WAITS", (0.0, 0.0, 0.0))
    monkeypatch.setenv("no_proxy", "*")
    with FileServer() as server:
        yield server


def promised(url: str, body: bytes = BODY, *, size: bool = True) -> FetchFile:
    return FetchFile(url=url, md5=hashlib.md5(body).hexdigest(), bytes=len(body) if size else None)


class Heard(NoProgress):
    def __init__(self):
        self.lines, self.tasks = record_messages(), []

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None:
        self.tasks.append((name, total, unit, done))


def test_whole_file_arrives_and_nothing_else_is_left(server, tmp_path):
    heard = Heard()
    download(promised(server.serve("/a.zip", Reply(BODY, etag='"1"'))), tmp_path / "a.zip", heard)
    assert [path.name for path in tmp_path.iterdir()] == ["a.zip"]
    assert (tmp_path / "a.zip").read_bytes() == BODY
    assert heard.tasks == [("downloading a.zip", 1, "MB", 0)]
    assert server.asked[0][1]["User-Agent"].startswith("usvit/")


def test_file_that_is_there_is_checked_and_not_asked_for_again(server, tmp_path):
    file = promised(server.serve("/a", Reply(BODY)))
    download(file, tmp_path / "a", NoProgress())
    download(file, tmp_path / "a", NoProgress())
    assert len(server.asked) == 1


def test_broken_connection_goes_on_where_it_broke(server, tmp_path):
    url = server.serve("/a", Reply(BODY, breaks_after=100_000, etag='"1"'), Reply(BODY, etag='"1"'))
    heard = Heard()
    download(promised(url), tmp_path / "a", heard)
    assert (tmp_path / "a").read_bytes() == BODY
    assert server.asked[1][1]["Range"] == "bytes=100000-"
    assert server.asked[1][1]["If-Range"] == '"1"'
    assert "closed the connection at 100,000 of 300,000 bytes" in heard.lines[0]


def test_many_breaks_are_borne_as_long_as_each_brings_more(server, tmp_path):
    download(promised(server.serve("/a", Reply(BODY, breaks_after=30_000))), tmp_path / "a", NoProgress())
    assert (tmp_path / "a").read_bytes() == BODY
    assert len(server.asked) == 10


def test_killed_command_is_taken_up_by_the_next_one(server, tmp_path):
    url = server.serve("/a", Reply(BODY, etag='"1"'))
    (tmp_path / "a.part").write_bytes(BODY[:1234])
    (tmp_path / "a.etag").write_text('"1"')
    download(promised(url), tmp_path / "a", NoProgress())
    assert (tmp_path / "a").read_bytes() == BODY
    assert server.asked[0][1]["Range"] == "bytes=1234-"


def test_file_that_changed_meanwhile_is_begun_anew(server, tmp_path):
    url = server.serve("/a", Reply(OTHER, breaks_after=100_000, etag='"old"'), Reply(BODY, etag='"new"'))
    download(promised(url, size=False), tmp_path / "a", NoProgress())
    assert (tmp_path / "a").read_bytes() == BODY


def test_server_that_ignores_range_is_read_from_the_start(server, tmp_path):
    url = server.serve("/a", Reply(BODY, breaks_after=100_000, ranges=False), Reply(BODY, ranges=False))
    download(promised(url), tmp_path / "a", NoProgress())
    assert (tmp_path / "a").read_bytes() == BODY


def test_leftover_longer_than_the_file_is_thrown_away(server, tmp_path):
    (tmp_path / "a.part").write_bytes(BODY + b"more")
    download(promised(server.serve("/a", Reply(BODY))), tmp_path / "a", NoProgress())
    assert (tmp_path / "a").read_bytes() == BODY


def test_wrong_file_is_deleted_and_both_sums_are_named(server, tmp_path):
    url = server.serve("/a", Reply(OTHER))
    with pytest.raises(UsvitError) as caught:
        download(promised(url), tmp_path / "a", NoProgress())
    expected, found = (hashlib.md5(body).hexdigest() for body in (BODY, OTHER))
    assert f"expected md5 {expected}, found {found}" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_both_sums_count(server, tmp_path):
    url = server.serve("/a", Reply(BODY))
    right, wrong = hashlib.md5(BODY).hexdigest(), hashlib.sha256(OTHER).hexdigest()
    with pytest.raises(UsvitError, match=f"expected sha256 {wrong}"):
        download(FetchFile(url=url, md5=right, sha256=wrong), tmp_path / "a", NoProgress())


@pytest.mark.parametrize("announce", [200_000, 400_000], ids=["too short", "too long"])
def test_length_other_than_the_card_s_is_refused_before_the_transfer(server, tmp_path, announce):
    url = server.serve("/a", Reply(BODY, announce=announce))
    with pytest.raises(UsvitError, match=f"expected 300,000 bytes, found {announce:,}"):
        download(promised(url), tmp_path / "a", NoProgress())
    assert list(tmp_path.iterdir()) == []


def test_length_too_long_ends_in_an_error_that_says_where_it_breaks_off(server, tmp_path):
    url = server.serve("/a", Reply(BODY, announce=400_000, ranges=False))
    with pytest.raises(
        UsvitError, match=r"failed 4 times: the server closed the connection at 300,000 of 400,000 bytes"
    ):
        download(promised(url, size=False), tmp_path / "a", NoProgress())
    assert not (tmp_path / "a").exists()


def test_server_that_lies_and_knows_ranges_is_given_up_too(server, tmp_path):
    url = server.serve("/a", Reply(BODY, announce=400_000))
    with pytest.raises(UsvitError, match="failed"):
        download(promised(url, size=False), tmp_path / "a", NoProgress())
    assert len(server.asked) < 10


def test_length_too_short_gives_a_wrong_sum(server, tmp_path):
    url = server.serve("/a", Reply(BODY, announce=200_000))
    with pytest.raises(UsvitError, match="expected md5"):
        download(promised(url, size=False), tmp_path / "a", NoProgress())


@pytest.mark.parametrize("status", [401, 403, 404, 410])
def test_refusal_is_final(server, tmp_path, status):
    url = server.serve("/a", Reply(b"", status=status))
    with pytest.raises(UsvitError, match=f"answers {status}.*usvit data info"):
        download(promised(url), tmp_path / "a", NoProgress())
    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_trouble_of_the_server_is_waited_for(server, tmp_path, status):
    url = server.serve("/a", Reply(b"", status=status), Reply(b"", status=status), Reply(BODY))
    download(promised(url), tmp_path / "a", NoProgress())
    assert (tmp_path / "a").read_bytes() == BODY


def test_lasting_trouble_is_an_error_and_keeps_what_is_there(server, tmp_path):
    url = server.serve("/a", Reply(BODY, breaks_after=5_000), Reply(b"", status=500))
    with pytest.raises(UsvitError, match=r"failed \d times: the server answers 500.*5,000 bytes are here"):
        download(promised(url), tmp_path / "a", NoProgress())
    assert (tmp_path / "a.part").stat().st_size == 5_000


def test_no_server_at_all_is_an_error(server, tmp_path):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # nobody else can listen there, and it does not
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/a"
        with pytest.raises(UsvitError, match="failed 4 times: no connection"):
            download(promised(url), tmp_path / "a", NoProgress())


@pytest.mark.parametrize("url", ["http://example.org/a", "http://10.0.0.1/a", "http://localhost.example.org/a"])
def test_unencrypted_address_is_refused(tmp_path, url):
    with pytest.raises(UsvitError, match="only https"):
        download(promised(url), tmp_path / "a", NoProgress())


def test_redirection_to_an_unencrypted_address_is_refused(server, tmp_path):
    url = server.serve("/a", Reply(b"", status=302, location="http://example.org/a"))
    with pytest.raises(UsvitError, match=r"leads to another one \(example.org\)"):
        download(promised(url), tmp_path / "a", NoProgress())


def test_redirection_is_followed(server, tmp_path):
    server.serve("/b", Reply(BODY))
    url = server.serve("/a", Reply(b"", status=302, location="/b"))
    download(promised(url), tmp_path / "a", NoProgress())
    assert (tmp_path / "a").read_bytes() == BODY


def test_full_disk_says_so_and_keeps_what_fits(server, small_disk):
    body = random.Random(2).randbytes(3_000_000)
    url = server.serve("/a", Reply(body))
    with pytest.raises(UsvitError, match="No space left on the disk while writing"):
        download(promised(url, body), small_disk / "a", NoProgress())
    assert not (small_disk / "a").exists()


def test_small_answer_is_read_whole_and_a_long_one_refused(server):
    assert read_url(server.serve("/a", Reply(b"", status=500), Reply(b"{}")), 10) == b"{}"
    with pytest.raises(UsvitError, match="more than 10 bytes"):
        read_url(server.serve("/b", Reply(b"x" * 11)), 10)


def test_the_real_waits_are_seconds_to_half_a_minute():
    """The other tests set them to 0."""
    assert 0 < sum(module.WAITS) < 30


def test_every_byte_goes_through_a_part_file(server, tmp_path, monkeypatch):
    """The final name never holds less than all."""
    url = server.serve("/a", Reply(BODY))
    seen = []
    verify = module._verify
    monkeypatch.setattr(module, "_verify", lambda file, path: (seen.append(path), verify(file, path)))
    download(promised(url), tmp_path / "a", NoProgress())
    assert seen == [Path(tmp_path / "a.part")]


@pytest.mark.parametrize("announce", [True, False])
def test_a_file_of_unstated_length_is_bounded_all_the_same(server, tmp_path, monkeypatch, announce):
    monkeypatch.setattr(module, "MAX_BYTES", 100_000)
    monkeypatch.setattr(module, "MAX_UNTOLD", 100_000)
    reply = Reply(BODY) if announce else Reply(BODY, announce=-1)
    with pytest.raises(
        UsvitError, match=r"sends more than 100,000 bytes\. If the file is that long, state its length in the data card"
    ):
        download(promised(server.serve("/a", reply), size=False), tmp_path / "a", NoProgress())
    assert list(tmp_path.iterdir()) == []


def test_redirection_to_another_server_is_not_followed(server, tmp_path):
    with FileServer() as other:
        moved = Reply(b"", status=302, location=other.serve("/a", Reply(BODY)))
        with pytest.raises(UsvitError, match="leads to another one"):
            download(promised(server.serve("/a", moved)), tmp_path / "a", NoProgress())
        assert other.asked == []


@pytest.mark.parametrize("kind", ["endless", "endless_header", "drip", "drip_header", "silent"])
def test_a_server_that_never_ends_its_answer_is_left(monkeypatch, tmp_path, kind):
    monkeypatch.setattr(module, "WAITS", ())
    monkeypatch.setattr(module, "TIMEOUT", 0.5)
    monkeypatch.setattr(module, "MAX_UNTOLD", 300_000)
    monkeypatch.setenv("no_proxy", "*")
    start = time.monotonic()
    with serving(http_peer(kind)) as port:
        with pytest.raises(UsvitError, match=r"slowly|more than|timed out|got more"):
            read_url(f"http://127.0.0.1:{port}/a", 100_000)
        with pytest.raises(UsvitError, match=r"slowly|more than|timed out|got more"):
            download(FetchFile(url=f"http://127.0.0.1:{port}/a", md5="0" * 32), tmp_path / "a", NoProgress())
    assert time.monotonic() - start < 8
    assert not (tmp_path / "a").exists()


def test_a_server_that_breaks_off_again_and_again_is_left_in_the_end(server, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    monkeypatch.setattr(module, "BYTES_PER_SECOND", 1e12)
    with pytest.raises(UsvitError, match="again and again"):
        download(promised(server.serve("/a", Reply(BODY, breaks_after=30_000))), tmp_path / "a", NoProgress())
