"""Two machines for Ray: network namespaces that a virtual cable joins, each with its own address and loopback."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PORT = 6379


@dataclass(frozen=True)
class Machine:
    """A network namespace; files and processes are those of the machine that the tests run on."""

    name: str
    address: str

    def command(self, *arguments: object) -> list[str]:
        return ["ip", "netns", "exec", self.name, *map(str, arguments)]

    def crash(self) -> None:
        """Kill all processes at once, as a power failure does."""
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self, title: str = "") -> list[int]:
        """Return the processes of this machine, or those whose title begins with ``title``."""
        listed = subprocess.run(["ip", "netns", "pids", self.name], capture_output=True, text=True).stdout.split()
        return [int(pid) for pid in listed if _title(int(pid)).startswith(title)]

    def stop_inside(self, title: str) -> int | None:
        """Stop the process that has this title, and return its number; None if no process has it any longer.

        Ray titles a worker ``ray::Actor.method`` while it runs that method. The title is read again once the process
        has stopped, so the process is certainly inside the method, and stays there until it is sent SIGCONT.
        """
        for pid in self.processes(title):
            os.kill(pid, signal.SIGSTOP)
            while _state(pid) not in "Tt":
                time.sleep(0.01)
            if _title(pid).startswith(title):
                return pid
            os.kill(pid, signal.SIGCONT)
        return None


@dataclass(frozen=True)
class RayCluster:
    """A cluster of two machines with one CPU each."""

    head: Machine
    other: Machine
    environment: dict[str, str]

    @property
    def address(self) -> str:
        return f"{self.head.address}:{PORT}"


@contextlib.contextmanager
def two_machines() -> Iterator[tuple[Machine, Machine]]:
    """Yield two joined machines; skip the test where the system does not allow to make them."""
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("network namespaces need Linux, root and the program ip (iproute2)")
    machines = tuple(Machine(f"usvit-{os.getpid()}-{n}", f"10.77.0.{n}") for n in (1, 2))
    with contextlib.ExitStack() as stack:
        for machine in machines:
            _ip("netns", "add", machine.name)
            stack.callback(_ip, "netns", "del", machine.name)
            stack.callback(machine.crash)
        cable = ("type", "veth", "peer", "name", "cable", "netns", machines[1].name)
        _ip("link", "add", "cable", "netns", machines[0].name, *cable)
        for machine in machines:
            _ip("-n", machine.name, "address", "add", f"{machine.address}/24", "dev", "cable")
            for device in ("cable", "lo"):
                _ip("-n", machine.name, "link", "set", device, "up")
        yield machines[0], machines[1]


@contextlib.contextmanager
def ray_cluster() -> Iterator[RayCluster]:
    """Start Ray on two machines."""
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'usvit[ray]')")
    with two_machines() as (head, other), tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        environment = {key: value for key, value in os.environ.items() if key != "RAY_AUTH_TOKEN_PATH"}
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        environment |= {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_health_check_timeout_ms": "5000",  # a dead machine is noticed
            "RAY_worker_niceness": "0",  # at Ray's 15, workers starve beside any other program
        }
        start = (Path(sys.executable).with_name("ray"), "start", "--num-cpus", 1, "--object-store-memory", 100_000_000)
        as_head = ("--head", "--port", PORT, "--include-dashboard", "false", "--temp-dir", folder)
        for machine, role in ((head, as_head), (other, ("--address", f"{head.address}:{PORT}"))):
            command = machine.command(*start, "--node-ip-address", machine.address, *role)
            started = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            assert started.returncode == 0, started.stderr
        yield RayCluster(head, other, environment)


def _title(pid: int) -> str:
    """Return the command line of a process, empty if the process has ended."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    return ""


def _state(pid: int) -> str:
    """Return the letter by which the system states what a process does; ``T`` is a stopped one."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
