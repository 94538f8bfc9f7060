"""The Ray cluster that usvit starts: nobody else reaches it, and nothing of it is left."""

import ipaddress
import os
import socket
import subprocess
import sys
import types
from pathlib import Path

import pytest

from usvit import cluster
from usvit.errors import UsvitError


def test_an_old_ray_without_tokens_is_refused():
    with pytest.raises(UsvitError, match=r"needs Ray 2\.60 or newer.*this is 2\.51\.1"):
        cluster._refuse_old(types.SimpleNamespace(__version__="2.51.1"))


@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell")
def test_own_sockets_are_listed_with_their_addresses():
    program = (
        "import socket; from usvit.cluster import listening\n"
        "open_ = [socket.create_server((host, 0), family=family) for host, family in\n"
        "         (('127.0.0.1', socket.AF_INET), ('0.0.0.0', socket.AF_INET))]\n"
        "assert sorted(listening()) == sorted(one.getsockname() for one in open_), listening()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[1])


@pytest.mark.parametrize(
    ("host", "ours"),
    [("127.0.0.1", True), ("::1", True), ("::ffff:127.0.0.1", True), ("0.0.0.0", False), ("::", False)],
)
def test_only_loopback_is_loopback(host, ours):
    assert cluster._is_loopback(host) is ours


CALLER = """
import sys, ray
ray.init(address=sys.argv[1], logging_level="critical", log_to_driver=False)
print("reached", len(ray.nodes()))
"""


def callers(address, *modes):
    """What processes print that call a cluster, each with other settings; the first is one that gets in."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    plain["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # else they look for their machine under its other address
    command = [sys.executable, "-c", CALLER, address]
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    running = [subprocess.Popen(command, env=plain | mode, **options) for mode in modes]
    said = [running[0].communicate(timeout=120)[0]]
    for one in running[1:]:  # who is refused tries again and again
        try:
            said.append(one.communicate(timeout=5)[0])
        except subprocess.TimeoutExpired:
            one.kill()
            said.append(one.communicate()[0])
    return said


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell on what others listen")
def test_a_ray_of_our_own_listens_on_loopback_only_and_asks_for_a_token(monkeypatch):
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'usvit[ray]')")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")  # whatever the user's own clusters do
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of another cluster, at least thirty-two letters")
    old = os.umask(0)
    another = socket.create_server(("0.0.0.0", 0))  # another server of the caller, which is no part of the cluster
    before = cluster.listening()
    assert another.getsockname() in before
    try:
        with cluster.connected(None) as ray:

            @ray.remote
            def told():
                return os.environ["RAY_AUTH_MODE"]

            assert ray.get([told.remote() for _ in range(4)]) == ["token"] * 4  # workers run, and listen, too
            listening = [one for one in cluster.listening() if one not in before]
            assert len(listening) >= 4  # GCS, raylet, this process, a worker
            said = subprocess.run(["ss", "-ltnH"], capture_output=True, text=True, check=True).stdout if _ss() else ""
            for host, port in listening:
                plain = ipaddress.ip_address(host)
                assert (getattr(plain, "ipv4_mapped", None) or plain).is_loopback, (host, port)
                for line in said.splitlines():  # the system's own tool as a second witness
                    local = line.split()[3]
                    assert not local.endswith(f":{port}") or "127.0.0.1" in local, line
            token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
            assert token.stat().st_mode & 0o777 == 0o600 and token.parent.stat().st_mode & 0o777 == 0o700
            session = Path(ray._private.worker._global_node.get_session_dir_path())
            assert session.is_relative_to(token.parent)  # Ray opens its own folder to all, this one keeps them out
            address = ray.get_runtime_context().gcs_address
            ours = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
            wrong = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
            said = callers(address, ours, wrong, {"RAY_AUTH_MODE": "disabled"})
            assert said == ["reached 1\n", "", ""]
    finally:
        os.umask(old)
        another.close()
    assert not token.parent.exists()
    assert os.environ["RAY_AUTH_MODE"] == "disabled" and "RAY_AUTH_TOKEN_PATH" not in os.environ
    assert os.environ["RAY_AUTH_TOKEN"].startswith("of another")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system does not tell on what others listen")
def test_a_ray_that_others_could_reach_is_ended(monkeypatch):
    ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'usvit[ray]')")
    open_ = iter(
        [[("0.0.0.0", 3)], [("127.0.0.1", 1), ("0.0.0.0", 2), ("0.0.0.0", 3)]]
    )  # before, and with, the cluster
    monkeypatch.setattr(cluster, "listening", lambda: next(open_))
    with pytest.raises(UsvitError, match=r"reached from other machines \(0\.0\.0\.0:2\)"), cluster.connected(None):
        pytest.fail("it was handed out")
    assert not ray.is_initialized()


def _ss():
    return any(Path(folder, "ss").is_file() for folder in ("/usr/bin", "/bin", "/usr/sbin", "/sbin"))
