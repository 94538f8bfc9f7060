"""Connect to a Ray cluster, or start one on this machine for as long as it is needed. Ray is an optional dependency.

Anyone who can reach a Ray cluster can run any code in it. A cluster that usvit starts therefore listens on loopback
only, asks every caller for a token that is made for this cluster, and keeps its files in a folder that no other user
can enter. If this is not possible, it is not started. A cluster that somebody else started (``--address``) is their
responsibility; docs/explanation/security.md lists the requirements.
"""

import importlib
import ipaddress
import os
import secrets
import shutil
import socket
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from usvit.errors import UsvitError
from usvit.resources import usable_cores

_PASSED_ON = ("USVIT_DATA", "USVIT_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT")
"""Environment variables with the places of data and weights. Otherwise workers have those of the Ray process of their
machine."""
_LOOPBACK = "127.0.0.1"
_TOKEN_VERSION = (2, 60)
"""First version of Ray whose token authentication and binding to loopback are tested here (``pyproject.toml``)."""
_OWN_CLUSTER = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER")
"""Environment variables that are set while a cluster of usvit runs, and restored afterwards."""
_LONGEST_FOLDER = 40
"""Characters. Ray adds names of about 65 characters for its sockets, and the path of a socket has at most 103."""


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Yield the module ``ray``, connected while the block runs; an existing connection is used and kept.

    Args:
        address: ``host:port``, ``auto`` for the cluster on this machine, None to start a cluster on loopback.

    Raises:
        UsvitError: Ray is not installed, nothing answers, or others could reach the started cluster.
    """
    ray = import_ray()
    if ray.is_initialized():
        yield ray
    elif address is None:
        with _own_cluster(ray):
            yield ray
    else:
        _join(ray, address)
        try:
            yield ray
        finally:
            ray.shutdown()


def import_ray() -> Any:
    """Import ``ray`` without connecting.

    Raises:
        UsvitError: Ray is not installed.
    """
    # Set before the import: no usage statistics are sent, and log lines of workers are not merged.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # the default; unset, Ray warns of a change
    try:
        import ray
    except ImportError as error:
        raise UsvitError("--engine ray needs Ray: pip install 'usvit[ray]'.") from error
    return ray


@contextmanager
def _own_cluster(ray: Any) -> Iterator[None]:
    """Start a cluster on this machine for this process alone."""
    _refuse_old(ray)
    before = {key: os.environ.get(key) for key in _OWN_CLUSTER}
    folder = Path(tempfile.mkdtemp(prefix="usvit-ray-", dir=_short_folder()))  # mode 700, with a random name
    try:
        token = folder / "token"
        with open(os.open(token, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(32))
        # Ray replaces 127.0.0.1 by the address of the machine and listens on all interfaces, unless clusters of several
        # machines are disabled. The setting is named after the systems on which that is the default.
        os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
        os.environ.pop("RAY_AUTH_TOKEN", None)  # it would take precedence over the file
        _read_environment_again()
        listened = listening()
        try:
            _init(
                ray,
                "the Ray cluster on this machine",
                address="local",
                num_cpus=usable_cores(),
                include_dashboard=False,
                _node_ip_address=_LOOPBACK,
                _temp_dir=str(folder / "r"),  # Ray makes this folder readable by all users; its parent keeps them out
            )
            _refuse_exposed(ray, listened)
            yield
        finally:
            ray.shutdown()
    finally:
        for key, value in before.items():
            os.environ.pop(key, None)
            if value is not None:
                os.environ[key] = value
        _read_environment_again()
        shutil.rmtree(folder, ignore_errors=True)


def _refuse_old(ray: Any) -> None:
    version = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if version < _TOKEN_VERSION:
        wanted = ".".join(map(str, _TOKEN_VERSION))
        raise UsvitError(
            f"A Ray cluster on this machine needs Ray {wanted} or newer, which asks its callers for a token; this is "
            f"{ray.__version__}. Install it with pip install 'usvit[ray]', or use --engine local or sequential."
        )


def _short_folder() -> str | None:
    """Return the parent of the cluster's folder; None for the default of ``tempfile``."""
    return "/tmp" if os.name == "posix" and len(tempfile.gettempdir()) > _LONGEST_FOLDER - 20 else None


def _read_environment_again() -> None:
    """Make Ray read the environment variables again, which it reads only on import."""
    from ray._private import ray_constants

    raylet: Any = importlib.import_module("ray._raylet")  # untyped, and not part of Ray's public interface

    ray_constants.ENABLE_RAY_CLUSTER = os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "1") != "0" and (
        sys.platform == "linux"
    )
    raylet.Config.initialize("")
    raylet.AuthenticationTokenLoader.instance().reset_cache()


def _refuse_exposed(ray: Any, before: Collection[tuple[str, int]]) -> None:
    """Check that the cluster is protected, since the settings used for that are not documented for this purpose.

    Args:
        ray: the module, connected to the cluster.
        before: what ``listening`` returned before the cluster was started: sockets of the caller's other programs.

    Raises:
        UsvitError: A process of the cluster listens on an address other than loopback, or asks for no token.
    """
    raylet: Any = importlib.import_module("ray._raylet")

    exposed = [node["NodeManagerAddress"] for node in ray.nodes() if node["NodeManagerAddress"] != _LOOPBACK]
    exposed += [f"{one[0]}:{one[1]}" for one in listening() if one not in before and not _is_loopback(one[0])]
    if raylet.get_authentication_mode() != raylet.AuthenticationMode.TOKEN:
        problem = "it does not ask for a token"
    elif exposed:
        problem = f"it can be reached from other machines ({', '.join(exposed[:3])})"
    else:
        return
    raise UsvitError(
        f"The Ray cluster was stopped at once: {problem}. This version of Ray ({ray.__version__}) ignores the settings "
        "that protect it. Install the version in constraints.txt, or use --engine local or sequential."
    )


def listening() -> list[tuple[str, int]]:
    """Return (address, port) of the TCP sockets on which this process and its descendants listen; Linux only."""
    if sys.platform != "linux":
        return []
    inodes: set[str] = set()
    for process in _descendants(os.getpid()):
        with suppress(OSError):  # it has ended
            for one in Path(f"/proc/{process}/fd").iterdir():
                with suppress(OSError):  # it has been closed
                    inodes.add(str(one.readlink()).removeprefix("socket:[").removesuffix("]"))
    found = []
    for table in ("tcp", "tcp6"):
        path = Path(f"/proc/net/{table}")
        for line in path.read_text().splitlines()[1:] if path.exists() else []:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:  # 0A: LISTEN
                host, _, port = fields[1].partition(":")
                # The address consists of 32-bit words in the byte order of the machine.
                words = [bytes.fromhex(host[at : at + 8]) for at in range(0, len(host), 8)]
                packed = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
                found.append((str(ipaddress.ip_address(packed)), int(port, 16)))
    return found


def _descendants(process: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                parent = (path / "stat").read_text().rpartition(")")[2].split()[1]
            except OSError:
                continue
            children.setdefault(int(parent), []).append(int(path.name))
    found, new = [process], [process]
    while new:
        new = [child for one in new for child in children.get(one, [])]
        found += new
    return found


def _is_loopback(host: str) -> bool:
    address = ipaddress.ip_address(host)
    mapped = getattr(address, "ipv4_mapped", None)  # ::ffff:127.0.0.1, which older Pythons do not call loopback
    return (mapped or address).is_loopback


def _join(ray: Any, address: str) -> None:
    if ":" in address and "://" not in address:
        _check_reachable(address)
    _init(ray, f"the Ray cluster at {address}", address=address)


def _init(ray: Any, where: str, **settings: Any) -> None:
    passed_on = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
    try:
        ray.init(runtime_env={"env_vars": passed_on}, logging_level="warning", log_to_driver=True, **settings)
    except (ConnectionError, ValueError, RuntimeError, OSError, ray.exceptions.RayError) as error:
        raise UsvitError(
            f"Cannot reach {where}: {' '.join(str(error).split())[:300].rstrip('.')}. "
            "Check that it has the same versions of Ray and Python. If it asks for a token, set RAY_AUTH_MODE=token "
            "and RAY_AUTH_TOKEN. Without --address, a Ray cluster is started on this machine."
        ) from error


def _check_reachable(address: str) -> None:
    """Check that the address answers; Ray itself would try for many minutes."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UsvitError(
            f"Nothing answers at --address {address} ({error}). Start a cluster with 'ray start --head', which prints "
            "its address; without --address, a Ray cluster is started on this machine."
        ) from error


@dataclass(frozen=True)
class TaskShare:
    """The part of a cluster that each task takes."""

    cpus: int
    gpus: float

    @classmethod
    def of(cls, ray: Any, cpus: int, gpus: float | None = None, *, use_gpus: bool) -> Self:
        """Return the share of each task on a connected cluster.

        Args:
            ray: The module.
            cpus: CPUs of each task.
            gpus: GPUs of each task; None for one if the cluster has any and ``use_gpus`` is true.
            use_gpus: See above.

        Raises:
            UsvitError: No machine has enough CPUs and GPUs; Ray would wait forever.
        """
        if gpus is None:
            gpus = 1.0 if use_gpus and ray.cluster_resources().get("GPU", 0) >= 1 else 0.0
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
            largest: dict[str, float] = max(
                nodes, key=lambda node: (node.get("GPU", 0), node.get("CPU", 0)), default={}
            )
            raise UsvitError(
                f"No machine of the Ray cluster has {cpus} CPUs and {gpus:g} GPUs, which each task needs; the largest "
                f"has {largest.get('CPU', 0):g} and {largest.get('GPU', 0):g}. Pass smaller --cpus and --gpus."
            )
        return cls(cpus, gpus)

    def __str__(self) -> str:
        return f"{self.cpus} CPU" + (f" and {self.gpus:g} GPU" if self.gpus else "")

    def remote(self, ray: Any, target: Any, **options: Any) -> Any:
        """Return a function or class whose calls take this share on a machine of the cluster."""
        return ray.remote(target).options(num_cpus=self.cpus, num_gpus=self.gpus, **options)

    def n_at_once(self, ray: Any) -> int:
        """Return how many tasks the cluster holds, at least 1."""
        resources = ray.cluster_resources()
        n = max(1, int(resources.get("CPU", 1) // self.cpus))
        return min(n, int(resources["GPU"])) if self.gpus else n
