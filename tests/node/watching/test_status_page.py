"""The status page over a real socket, and in a browser."""

import http.client
import socket
import time

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.node.watching.conftest import FilledNode
from usvit.errors import UsvitError
from usvit.node.database import add_event
from usvit.node.watching import status_page


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    node = FilledNode(tmp_path_factory.mktemp("page") / "node")
    done = node.study(last_at=time.time(), n_images=3)
    node.result(done, deliveries=[("pacs", "sent"), ("archive", "waiting")], created_at=time.time())
    with node.database.transaction() as connection:
        connection.execute("UPDATE deliveries SET attempts = 1, last_error = '<script>x</script>' WHERE peer='archive'")
        add_event(connection, "study_failed", study="b" * 16, reason="crashed", images=1)
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    with status_page(node.config(status={"port": port})) as (_, served_port):
        assert served_port == port
        yield node, port
    node.database.close()


def ask(port, path="/", method="GET", **headers):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, headers={"Host": f"127.0.0.1:{port}"} | headers)
    answer = connection.getresponse()
    return answer.status, answer.read().decode(), dict(answer.getheaders())


def test_the_page_shows_counts_and_runs_nothing(served):
    state, page, headers = ask(served[1])
    assert state == 200 and headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert 'scored</th><td class="n">3</td>' in page and "A study could not be scored" in page
    assert "<script" not in page and "&lt;script&gt;" in page
    assert "1.2.840" not in page and "MARY" not in page
    assert headers["Server"].strip() == "usvit" and headers["Cache-Control"] == "no-store"


def test_metrics_are_read_by_the_parser_of_prometheus(served):
    state, text, headers = ask(served[1], "/metrics")
    assert state == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found["usvit_node_instances", "scored"] == 3
    assert found["usvit_node_deliveries", "archive", "waiting"] == 1
    assert found["usvit_node_images_bytes",] == 3000
    assert "1.2.840" not in text


@pytest.mark.parametrize("path", ["/x", "/metrics/", "/../etc/passwd", "/healthz?x=1", "http://127.0.0.1/x"])
def test_no_other_path_is_served(served, path):
    state, text, _ = ask(served[1], path)
    assert state == 404 and "passwd" not in text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "NAME"])
def test_no_other_method_is_served(served, method):
    state, text, headers = ask(served[1], method=method)
    assert state == 405 and headers["Allow"] == "GET, HEAD" and "NAME" not in text


def test_head_has_no_body(served):
    state, text, headers = ask(served[1], method="HEAD")
    assert (state, text) == (200, "") and int(headers["Content-Length"]) > 1000


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "127.0.0.1.nip.io"])
def test_a_name_that_somebody_else_may_resolve_is_refused(served, host):
    state, text, _ = ask(served[1], Host=host)
    assert state == 421 and "scored" not in text


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:8484"])
def test_names_and_addresses_of_this_machine_are_served(served, host):
    assert ask(served[1], Host=host)[0] == 200


def test_requests_without_or_with_two_hosts_are_refused(served):
    for request in (b"GET / HTTP/1.0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: x\r\n\r\n"):
        with socket.create_connection(("127.0.0.1", served[1]), timeout=10) as connection:
            connection.sendall(request)
            assert b" 421 " in connection.recv(100)


def test_health_tells_of_processes_that_do_not_run(served):
    node, port = served
    assert ask(port, "/healthz")[:2] == (200, "ok\n")
    (node.folder / "processes.json").write_text('{"receiver": 99999999}')
    try:
        end = time.monotonic() + 10
        while (found := ask(port, "/healthz")[:2]) == (200, "ok\n") and time.monotonic() < end:
            time.sleep(0.1)
        assert found == (503, "not running: receiver\n")
    finally:
        (node.folder / "processes.json").unlink()


def test_clients_that_say_nothing_do_not_keep_others_from_the_page(served):
    port = served[1]
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    try:
        assert ask(port, "/healthz")[0] in (200, 503)
    finally:
        for one in silent:
            one.close()


def test_garbage_is_answered_without_quoting_it(served):
    for garbage in (b"MARY\r\n\r\n", b"GET / HTTP/9.9 MARY\r\n\r\n", b"\x16\x03\x01MARY\r\n", b"GET /" + b"M" * 70000):
        with socket.create_connection(("127.0.0.1", served[1]), timeout=10) as connection:
            connection.sendall(garbage + b"\r\n")
            assert b"MARY" not in connection.recv(1000)
    assert ask(served[1])[0] == 200


def test_a_port_in_use_is_one_sentence(served):
    node, port = served
    with (
        pytest.raises(UsvitError, match=r"cannot listen at 127.0.0.1"),
        status_page(node.config(status={"port": port})),
    ):
        pass
