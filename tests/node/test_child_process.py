"""The processes of a node end with their service."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.programs import until

WORKS_ON = """
import multiprocessing, sys, threading, time
from pathlib import Path
from usvit.node import child_process

child_process.ORPHAN_SECONDS = 0.2

def work(pid):
    parent = multiprocessing.parent_process()
    threading.Thread(target=child_process._stop_with, args=(parent, threading.Event()), daemon=True).start()
    Path(pid).write_text(str(__import__("os").getpid()))
    time.sleep(100)  # a batch, which does not look at the event

if __name__ == "__main__":
    child = multiprocessing.get_context("spawn").Process(target=work, args=(sys.argv[1],))
    child.start()
    time.sleep(100)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
def test_a_process_that_is_at_work_does_not_outlive_a_service_that_was_killed(tmp_path):
    script, pid = tmp_path / "service.py", tmp_path / "pid"
    script.write_text(WORKS_ON)
    service = subprocess.Popen([sys.executable, str(script), str(pid)])
    try:
        child = int(until(lambda: pid.exists() and pid.read_text(), 60))
        service.kill()
        service.wait()
        start = time.monotonic()
        until(lambda: not _runs(child), 20)
        assert time.monotonic() - start < 15
    finally:
        service.kill()
        if _runs(child):
            os.kill(child, signal.SIGKILL)


def _runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
