"""``benchmarks.processes``: the time and the memory of a known process."""

import sys

import pytest

from benchmarks.processes import measure

linux = pytest.mark.skipif(sys.platform != "linux", reason="the memory of processes is read from /proc")


@linux
@pytest.mark.slow
def test_memory_and_time_include_child_processes_and_files_are_told_apart(tmp_path):
    inner = "held = bytearray(b'x' * 200_000_000); import time; time.sleep(1); sum(range(10_000_000))"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}], check=True)"
    found = measure([sys.executable, "-c", outer], {})
    assert 200e6 < found.held < 500e6 and found.cpu > 0.1 and found.wall > 1

    (tmp_path / "file").write_bytes(bytes(200_000_000))
    mapped = (
        "import mmap, time; file = open('file', 'rb'); pages = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ); "
        "pages.find(b'x'); time.sleep(1)"
    )
    found = measure([sys.executable, "-c", f"import os; os.chdir({str(tmp_path)!r}); {mapped}"], {})
    assert found.held < 100e6 and found.resident > 200e6


@linux
def test_a_command_that_fails_ends_the_benchmark_with_its_output():
    with pytest.raises(RuntimeError, match="no such thing"):
        measure([sys.executable, "-c", "raise SystemExit('no such thing')"], {})
