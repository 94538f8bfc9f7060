"""The load of other programs, against programs that are started here."""

import subprocess
import sys
import time

import pytest

from usvit import machine_load
from usvit.machine_load import MachineLoad

COMPUTE = "import time\nwhile time.process_time() < {seconds}: pass"


def times(busy, own, cores=frozenset({0, 1})):
    return (busy, own, cores)


@pytest.fixture
def clock(monkeypatch):
    """Let the test say what the clock and the counters of the system show."""
    shown = {"now": 100.0, "times": times(0, 0)}
    monkeypatch.setattr(machine_load.time, "monotonic", lambda: shown["now"])
    monkeypatch.setattr(machine_load, "_times", lambda: shown["times"])
    return shown


@pytest.mark.parametrize(
    ("busy", "own", "said"),
    [
        (20.0, 1.0, "the machine is busy: others use 1.9 of 2 cores"),
        (20.0, 10.0, "the machine is busy: others use 1.0 of 2 cores"),
        (20.0, 16.0, ""),  # 0.4 cores
        (20.0, 20.0, ""),
        (25.0, 0.0, "the machine is busy: others use 2.0 of 2 cores"),  # counters of the system may run ahead
    ],
)
def test_what_others_compute_is_what_this_process_did_not(clock, busy, own, said):
    load = MachineLoad()
    clock.update(now=110.0, times=times(busy, own))
    assert load.note() == said


def test_it_is_measured_over_some_seconds_and_said_until_then(clock):
    load = MachineLoad()
    clock.update(now=110.0, times=times(20, 0))
    assert load.note()
    clock.update(now=111.0, times=times(20, 0))
    assert load.note(), "too early to measure again"
    clock.update(now=120.0, times=times(20, 0))
    assert load.note() == ""


def test_another_platform_says_nothing(clock):
    clock["times"] = None
    load = MachineLoad()
    clock["now"] = 200.0
    assert load.note() == ""


@pytest.mark.skipif(machine_load._times() is None, reason="the counters are those of Linux")
def test_computing_here_and_in_a_child_is_not_the_load_of_others():
    before = machine_load._times()
    child = subprocess.Popen([sys.executable, "-c", COMPUTE.format(seconds=0.5)])
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    child.wait()
    after = machine_load._times()
    own, busy = after[1] - before[1], after[0] - before[0]
    assert own >= 0.7 and busy >= own - 0.2
