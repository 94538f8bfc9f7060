"""A Ray cluster: reached, or started on this machine for as long as it is needed. Ray is an optional extra."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from usvit.errors import UsvitError
from usvit.resources import usable_cores

_PASSED_ON = ("USVIT_DATA", "USVIT_CACHE", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HF_ENDPOINT")
"""Environment variables that say where data and weights lie: a worker has those of the machine's own Ray else."""


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """The module ``ray``, connected while the block runs; a connection that is there already is used and kept.

    Args:
        address: ``host:port``, ``auto`` for the cluster on this machine, None for one of our own, on loopback.

    Raises:
        UsvitError: Ray is not installed, or nothing answers.
    """
    ray = import_ray()
    own = not ray.is_initialized()
    if own:
        _connect(ray, address)
    try:
        yield ray
    finally:
        if own:
            ray.shutdown()


def import_ray() -> Any:
    """The module ``ray``; nothing is connected yet.

    Raises:
        UsvitError: it is not installed.
    """
    # Before it is imported: nothing about the user's work is sent anywhere, and the workers' lines are not merged.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_DEDUP_LOGS", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "1")  # as it is; unset, Ray warns of a change to come
    try:
        import ray
    except ImportError as error:
        raise UsvitError("--engine ray needs Ray: pip install 'usvit[ray]'.") from error
    return ray


def _connect(ray: Any, address: str | None) -> None:
    if address is not None and ":" in address and "://" not in address:
        _knock(address)
    settings: dict[str, Any] = {
        "runtime_env": {"env_vars": {key: os.environ[key] for key in _PASSED_ON if key in os.environ}},
        "logging_level": "warning",
        "log_to_driver": True,
    }
    if address is None:
        settings |= {"address": "local", "num_cpus": usable_cores(), "include_dashboard": False}
        settings |= {"_node_ip_address": "127.0.0.1"}
    else:
        settings["address"] = address
    try:
        ray.init(**settings)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        where = "a Ray of our own" if address is None else f"the Ray cluster at {address}"
        raise UsvitError(
            f"Cannot reach {where}: {' '.join(str(error).split())[:300].rstrip('.')}. "
            "Is it of the same version of Ray and Python? Where it asks for a token: RAY_AUTH_MODE=token, and the "
            "token in RAY_AUTH_TOKEN. Without --address, a Ray of our own is started on this machine."
        ) from error


def _knock(address: str) -> None:
    """Ray itself tries for many minutes where nobody answers."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except (OSError, ValueError, OverflowError) as error:
        raise UsvitError(
            f"Nothing answers at --address {address} ({error}). Start a cluster with 'ray start --head', which prints "
            "its address; without --address, a Ray of our own is started on this machine."
        ) from error


def refuse_what_never_fits(ray: Any, cpus: int, gpus: float) -> None:
    """Ray would wait for ever for a machine that is large enough.

    Raises:
        UsvitError: none of the cluster has so many CPUs and GPUs.
    """
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(node.get("CPU", 0) >= cpus and node.get("GPU", 0) >= gpus for node in nodes):
        return
    largest: dict[str, float] = max(nodes, key=lambda node: (node.get("GPU", 0), node.get("CPU", 0)), default={})
    raise UsvitError(
        f"No machine of the Ray cluster has {cpus} CPUs and {gpus:g} GPUs, which each task is to get; the largest has "
        f"{largest.get('CPU', 0):g} and {largest.get('GPU', 0):g}. Pass smaller --cpus and --gpus."
    )
