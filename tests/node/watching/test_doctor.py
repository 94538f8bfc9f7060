"""The doctor finds planted faults. Peers are real: pynetdicom, TLS sockets, and a web server."""

import contextlib
import json
import os
import re
import socket
import ssl
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import yaml
from pynetdicom import AE, evt
from pynetdicom.sop_class import SecondaryCaptureImageStorage, Verification
from typer.testing import CliRunner

from tests.node.watching.conftest import FilledNode
from usvit.node.cli.node import app
from usvit.node.watching import check_node


def free_port():
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return trial.getsockname()[1]


def written(folder, **changes):
    """Write a configuration without faults, with changes, and return its path."""
    (folder / "model").mkdir(exist_ok=True)
    content = {
        "folder": str(folder / "node"),
        "receive": {"port": free_port(), "allow": [{"ae_title": "SCANNER"}], "min_free_gb": 0.001},
        "models": {"main": {"path": "model"}},
        "rules": [{"name": "all", "model": "main", "send_to": []}],
        "status": {"port": free_port()},
    }
    path = folder / "node.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return path


def faults(path, **options):
    found = check_node(path, models=False, **options).faults
    assert all("\n" not in one.text for one in found)
    return [f"{one.check}: {one.text}" for one in found]


def certificate(folder, name="peer", days=30, host="127.0.0.1"):
    """Make a certificate that signs itself; negative days: one that has expired."""
    key, request, made = (folder / f"{name}.{kind}" for kind in ("key", "csr", "crt"))
    extensions = folder / f"{name}.ext"
    extensions.write_text(f"subjectAltName={'IP' if host[0].isdigit() else 'DNS'}:{host}\n")
    for command in (
        f"req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout {key} -out {request} -subj /CN={name}",
        f"x509 -req -in {request} -signkey {key} -days {days} -extfile {extensions} -out {made}",
    ):
        subprocess.run(["openssl", *command.split()], check=True, capture_output=True)
    key.chmod(0o600)
    return made, key


@pytest.fixture(scope="module")
def certificates(tmp_path_factory):
    folder = tmp_path_factory.mktemp("certificates")
    return {
        "good": certificate(folder, "good"),
        "other": certificate(folder, "other"),
        "named": certificate(folder, "named", host="elsewhere.example"),
        "expired": certificate(folder, "expired", days=-1),
        "soon": certificate(folder, "soon", days=5),
    }


@contextlib.contextmanager
def dicom_peer(title="PACS", classes=(), known=None, tls=None):
    ae = AE(ae_title=title)
    ae.require_called_aet = True
    if known:
        ae.require_calling_aet = [known]
    ae.add_supported_context(Verification)
    for one in classes:
        ae.add_supported_context(one)
    port = free_port()
    server = ae.start_server(
        ("127.0.0.1", port), block=False, evt_handlers=[(evt.EVT_C_ECHO, lambda _: 0)], ssl_context=tls
    )
    try:
        yield port
    finally:
        server.shutdown()


def server_context(made):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*made)
    return context


def with_peer(folder, port, outputs=("sc",), **peer):
    peer = {"ae_title": "PACS", "host": "127.0.0.1", "port": port, "timeout_seconds": 3} | peer
    rule = {"name": "all", "model": "main", "send_to": ["pacs"], "outputs": list(outputs)}
    return written(folder, peers={"pacs": peer}, rules=[rule])


def test_a_configuration_without_faults_has_none(tmp_path):
    with dicom_peer(classes=[SecondaryCaptureImageStorage]) as port:
        found = check_node(with_peer(tmp_path, port), models=False)
    assert found.faults == []
    assert {"configuration", "folder", "disk", "key", "rules", "receive", "status", "peer pacs", "clock"} <= {
        one.check for one in found.findings
    }
    assert not (tmp_path / "node").exists()  # it changes nothing


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"recieve": {}}, "Unknown setting 'recieve'. Nearest: receive"),
        ({"receive": {"ae_title": "A" * 17, "allow": "any"}}, "an AE title has 1 to 16 characters"),
        ({"receive": {"ae_title": "A\\B", "allow": "any"}}, "without a backslash"),
        ({"receive": {"port": 11112}}, "receive.allow is missing"),
        (
            {"rules": [{"name": "a", "leave_alone": True}, {"name": "b", "model": "main"}]},
            "the rule 'b' can never match",
        ),
        (
            {"rules": [{"name": "a", "model": "main", "when": {"calling_ae": "MRI*"}}]},
            "The rule 'a' can never match: its calling_ae 'MRI*' fits no AE title",
        ),
        ({"models": {"main": {"path": "nowhere"}}}, "nowhere does not exist. Correct models.main.path"),
        ({"folders": [{"path": "inbox"}]}, "inbox does not exist. Make it, or correct folders.0.path"),
        (
            {"receive": {"allow": [{"address": "10.1.2.3"}], "min_free_gb": 0.001, "port": 11112}},
            "receive.allow names 10.1.2.3/32, but receive.host 127.0.0.1 is reached from this machine only",
        ),
        ({"receive": {"allow": "any", "min_free_gb": 1e9}}, "every image is refused. Make room"),
        ({"retention": {"max_gb": 1e9}}, "the limit is never reached. Set a smaller one"),
    ],
)
def test_each_fault_of_the_configuration_is_one_line_with_its_cure(tmp_path, changes, said):
    found = faults(written(tmp_path, **changes))
    assert len(found) == 1 and said in found[0]


def test_ports_in_use_are_found(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = written(tmp_path, status={"port": taken.getsockname()[1]})
        (found,) = faults(path)
    assert found.startswith("status:") and "another program listens at port" in found


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_folders_keys_and_databases_are_checked(tmp_path):
    node = FilledNode(tmp_path / "node")
    node.study(last_at=time.time() + 7200)
    node.result(1, deliveries=[("gone", "waiting")])
    node.database.close()
    path = written(tmp_path)
    found = faults(path)
    assert any(
        "clock: The clock is wrong: according to it, the last image arrived in the future" in one for one in found
    )
    assert any("Results wait for the peer 'gone'" in one for one in found)
    key = tmp_path / "node" / "pseudonym.key"
    key.write_text(f"{os.urandom(32).hex()}\n")
    assert any("is not the one under which the folder" in one for one in faults(path))
    key.chmod(0o644)
    assert any("Others on this machine may use the key file" in one for one in faults(path))
    key.write_text("short")
    assert any("key: The key file" in one and "is damaged" in one for one in faults(path))
    key.unlink()
    assert any("is missing, and the folder has studies" in one for one in faults(path))
    assert not key.exists()
    (tmp_path / "node").chmod(0o755)
    assert any("folder: Others on this machine may enter the folder" in one for one in faults(path))
    (tmp_path / "node" / "node.sqlite").write_bytes(b"SQLite format 3\0" + b"x" * 5000)
    assert any("node.sqlite cannot be used" in one or "is damaged" in one for one in faults(path))


def test_a_peer_that_does_not_listen_or_resolve(tmp_path):
    (found,) = faults(with_peer(tmp_path, free_port()))
    assert "peer pacs: Nobody listens at 127.0.0.1" in found and "correct peers.pacs.port" in found
    (found,) = faults(with_peer(tmp_path, 104, host="no-such-host.invalid"))
    assert "The name no-such-host.invalid is not known. Correct peers.pacs.host" in found
    assert faults(with_peer(tmp_path, free_port()), peers=False) == []


def test_a_peer_that_does_not_know_a_title_or_take_a_class(tmp_path):
    with dicom_peer(title="OTHER") as port:
        assert (
            "does not recognise its AE title PACS. Correct peers.pacs.ae_title" in faults(with_peer(tmp_path, port))[0]
        )
    with dicom_peer(known="SOMEBODY") as port:
        assert "The peer does not know USVIT. Enter this AE title" in faults(with_peer(tmp_path, port))[0]
    with dicom_peer(classes=[SecondaryCaptureImageStorage]) as port:
        path = with_peer(tmp_path, port, outputs=["sc", "sr", "gsps"], storage_commitment=True)
        gsps, sr, commitment = faults(path)
    assert "does not accept presentation states" in gsps and "remove 'gsps' from the outputs" in gsps
    assert "does not accept structured reports" in sr
    assert "Set peers.pacs.storage_commitment to false" in commitment


@pytest.mark.parametrize(
    ("served", "trusted", "said"),
    [
        ("good", "good", None),
        ("good", "other", "is not signed by the authorities in peers.pacs.tls.ca"),
        ("named", "named", "is not made out for 127.0.0.1. Set peers.pacs.tls.server_name"),
        ("expired", "expired", "The certificate of the peer has expired"),
    ],
)
def test_certificates_of_peers(tmp_path, certificates, served, trusted, said):
    with dicom_peer(classes=[SecondaryCaptureImageStorage], tls=server_context(certificates[served])) as port:
        found = faults(with_peer(tmp_path, port, tls={"ca": str(certificates[trusted][0])}))
    assert (found == []) if said is None else (len(found) == 1 and said in found[0])


def test_a_peer_without_tls(tmp_path, certificates):
    with dicom_peer() as port:
        (found,) = faults(with_peer(tmp_path, port, tls={"ca": str(certificates["good"][0])}))
    assert "does not speak TLS" in found and "Remove peers.pacs.tls" in found


def test_certificates_of_the_receiver(tmp_path, certificates):
    def of(made, key):
        tls = {"certificate": str(made), "private_key": str(key)}
        return written(tmp_path, receive={"port": free_port(), "allow": "any", "min_free_gb": 0.001, "tls": tls})

    assert faults(of(*certificates["good"])) == []
    assert "has expired" in faults(of(*certificates["expired"]))[0]
    (found,) = faults(of(certificates["good"][0], certificates["other"][1]))
    assert "do not belong together" in found
    soon = check_node(of(*certificates["soon"]), models=False)
    assert any(one.level == "note" and "expires in 5 days" in one.text for one in soon.findings)
    key = certificates["other"][1]
    key.chmod(0o640)
    assert "Others may use the key" in faults(of(*certificates["other"]))[0]


@pytest.fixture
def web():
    state = {"status": 200, "ahead": 0.0}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            state["asked"] = (self.path, self.headers.get("Authorization"))
            self.send_response_only(state["status"])
            self.send_header("Date", self.date_time_string(int(time.time() - state["ahead"])))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    state["address"] = f"http://127.0.0.1:{server.server_address[1]}/dicom-web"
    yield state
    server.shutdown()
    server.server_close()


def test_dicomweb_services_and_their_clock(tmp_path, web):
    token = tmp_path / "token"
    token.write_text("secret\n")
    rule = {"name": "all", "model": "main", "send_to": ["archive"]}
    path = written(tmp_path, peers={"archive": {"dicomweb": web["address"], "token_file": "token"}}, rules=[rule])
    assert faults(path) == [] and web["asked"] == ("/dicom-web/studies?limit=1", "Bearer secret")
    for status, said in (
        (401, "Correct peers.archive.token_file"),
        (404, "is not a DICOMweb service (HTTP 404). Correct the path"),
        (302, "The service moved"),
        (500, "HTTP 500"),
    ):
        web["status"] = status
        (found,) = faults(path)
        assert said in found and "secret" not in found
    web |= {"status": 200, "ahead": 300.0}
    (found,) = faults(path)
    assert re.search(r"clock: The clock is 30\d seconds ahead of that of the peer 'archive'", found)
    token.write_text("")
    assert "is empty" in faults(path)[0]


def test_the_command_prints_each_fault_and_exits_with_2(tmp_path):
    path = with_peer(tmp_path, free_port())
    result = CliRunner().invoke(app, ["doctor", str(path), "--no-models"])
    lines = result.stdout.splitlines()
    assert result.exit_code == 2 and sum(line.startswith("fault") for line in lines) == 1
    result = CliRunner().invoke(app, ["doctor", str(path), "--no-models", "--no-peers", "--json"])
    assert result.exit_code == 0 and json.loads(result.stdout)["schema_version"] == "1.0"


@pytest.mark.slow
def test_a_model_that_does_not_load_is_a_fault(tmp_path):
    found = check_node(written(tmp_path)).faults
    assert [one.check for one in found] == ["model main"] and str(tmp_path / "model") in found[0].text


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_ten_faults_at_once_are_ten_lines(tmp_path, certificates):
    FilledNode(tmp_path / "node").database.close()
    (tmp_path / "node").chmod(0o755)
    (tmp_path / "node" / "pseudonym.key").write_text("damaged")
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as two:
        made, key = certificates["expired"]
        path = written(
            tmp_path,
            receive={
                "port": one.getsockname()[1],
                "allow": [{"ae_title": "SCANNER"}],
                "min_free_gb": 1e9,
                "tls": {"certificate": str(made), "private_key": str(key)},
            },
            status={"port": two.getsockname()[1]},
            folders=[{"path": "inbox"}],
            models={"main": {"path": "nowhere"}},
            rules=[{"name": "a", "model": "main", "when": {"calling_ae": "MRI*"}, "send_to": ["pacs", "web"]}],
            peers={
                "pacs": {"ae_title": "PACS", "host": "127.0.0.1", "port": free_port(), "timeout_seconds": 3},
                "web": {"dicomweb": f"http://127.0.0.1:{free_port()}/dicom-web", "timeout_seconds": 3},
            },
        )
        found = faults(path)
    checks = [one.partition(":")[0] for one in found]
    assert {
        "folder",
        "key",
        "disk",
        "rules",
        "receive",
        "status",
        "folders.0",
        "peer pacs",
        "peer web",
        "model main",
    } <= {*checks}
