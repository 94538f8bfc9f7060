"""Mistakes of a configuration that only the machine can tell: one paragraph, exit code 2, before anything listens."""

import socket
import subprocess

import pytest

from tests.node.images import settings, write_config
from tests.programs import listens, tool
from usvit.errors import UsvitError
from usvit.node.checks import certificate_end, check_before_start
from usvit.node.config.file import load_node_config


def config(tmp_path, **changed):
    (tmp_path / "model").mkdir(exist_ok=True)
    content = settings(tmp_path, **{name: value for name, value in changed.items() if name != "receive"})
    content["receive"] |= changed.get("receive", {})
    return write_config(tmp_path, content)


def expired(folder):
    """A certificate that signs itself, which ended yesterday."""
    folder.mkdir()
    for arguments in (
        "req -newkey rsa:2048 -nodes -subj /CN=x -keyout x.key -out x.csr",
        "x509 -req -in x.csr -signkey x.key -days -1 -out x.pem",
    ):
        subprocess.run([tool("openssl"), *arguments.split()], cwd=folder, check=True, capture_output=True)
    return folder


MISTAKES = {
    "no model": ({"models": {"main": {"path": "absent"}}}, r"model .*absent .*does not exist"),
    "no operating point": ({"models": {"main": {"path": "model", "operating_point": "best"}}}, r"models\.main: .*best"),
    "no frame policy": (
        {"rules": [{"name": "a", "model": "main", "frames": "few"}]},
        r"rule 'a': Unknown frame policy",
    ),
    "sender who may not send": (
        {
            "rules": [{"name": "a", "model": "main", "when": {"calling_ae": "CT*"}}],
            "receive": {"allow": [{"ae_title": "US1"}]},
        },
        r"rule 'a' can never match: its calling_ae 'CT\*'",
    ),
    "no folder": ({"folders": [{"path": "absent"}]}, r"folder .*absent .*does not exist"),
    "folder around the node": ({"folders": [{"path": "."}]}, "would take in its own files"),
    "foreign address": ({"receive": {"host": "192.0.2.1"}}, r"192\.0\.2\.1 is not an address of this machine"),
    "no certificate": ({"receive": {"tls": {"certificate": "a", "private_key": "b"}}}, r"receive\.tls\.certificate"),
    "no authorities": (
        {"peers": {"p": {"ae_title": "A", "host": "h", "port": 1, "tls": {"ca": "absent.pem"}}}},
        r"absent\.pem \(peers\.p\.tls\.ca\)",
    ),
    "no token": ({"peers": {"p": {"dicomweb": "https://h", "token_file": "absent"}}}, r"peers\.p\.token_file"),
    "bad key": ({"key": "key.txt"}, r"key file .*key\.txt is damaged"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_paragraph_and_nothing_listens(tmp_path, usvit, mistake):
    changed, said = MISTAKES[mistake]
    (tmp_path / "key.txt").write_text("secret")
    path = config(tmp_path, **changed)
    with pytest.raises(UsvitError, match=said):
        check_before_start(load_node_config(path))
    answer = usvit("node", "serve", str(path))
    assert answer.code == 2
    assert "Traceback" not in answer.err
    assert not (tmp_path / "node").exists()
    assert not listens(load_node_config(path).receive.port)


def test_a_port_in_use_is_told_with_its_number(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        for section in ("receive", "status"):
            path = config(tmp_path, **{section: {"port": port}})
            with pytest.raises(UsvitError, match=rf"another program listens at port {port}"):
                check_before_start(load_node_config(path))


def test_certificates_are_checked_for_their_key_and_their_time(tmp_path, pem):
    assert certificate_end(pem["server.pem"], pem["server.key"]) is not None
    other = {"certificate": str(pem["server.pem"]), "private_key": str(pem["client.key"])}
    with pytest.raises(UsvitError, match="do not belong together"):
        check_before_start(load_node_config(config(tmp_path, receive={"tls": other})))
    old = expired(tmp_path / "old")
    keys = {"certificate": str(old / "x.pem"), "private_key": str(old / "x.key")}
    with pytest.raises(UsvitError, match="has expired"):
        check_before_start(load_node_config(config(tmp_path, receive={"tls": keys})))
    good = {"certificate": str(pem["server.pem"]), "private_key": str(pem["server.key"]), "ca": str(pem["ca.pem"])}
    check_before_start(load_node_config(config(tmp_path, receive={"tls": good})))


def test_a_folder_that_others_may_enter_is_refused(tmp_path, usvit):
    path = config(tmp_path)
    (tmp_path / "node").mkdir(mode=0o755)
    answer = usvit("node", "serve", str(path))
    assert answer.code == 2
    assert "chmod 700" in answer.err
