"""Processes that die, and one that measures."""

import subprocess
import sys

import pytest

from usvit.config import ModelConfig
from usvit.errors import UsvitError
from usvit.upstream.bench.case import BenchmarkCase, Hardware
from usvit.upstream.bench.isolation import look, run_case

CASE = BenchmarkCase(
    ModelConfig(name="timm:test_resnet", image_size=32).model_dump(),
    "train",
    batch=4,
    hardware=Hardware("cpu", "fp32", threads=1),
    n_classes=3,
    repeats=4,
    seconds=120.0,
)

DEATHS = [
    ("kill -SEGV $$", "crashed", "code -11"),
    ("kill -KILL $$", "out_of_memory", "memory ran out"),
    ("kill -ALRM $$", "timeout", "batch of 4 take longer than 240 s"),
    ("echo 'RuntimeError: a bad day' >&2; exit 1", "crashed", "a bad day"),
]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals")
@pytest.mark.parametrize(("death", "status", "said"), DEATHS, ids=[status for _, status, _ in DEATHS])
def test_a_process_that_dies_is_a_row_with_the_reason(death, status, said, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{death}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    (row,) = run_case(CASE)
    assert row.status == status and said in row.reason
    assert row.images_per_second is None and row.model == "timm:test_resnet"


@pytest.mark.skipif(sys.platform == "win32", reason="there are no signals")
def test_a_check_that_is_killed_is_an_error_that_says_why(tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -KILL $$\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    with pytest.raises(UsvitError, match="was ended by the signal SIGKILL, usually because memory ran out"):
        look([CASE])


def test_a_process_that_hangs_is_ended(tmp_path, monkeypatch):
    def hangs(*_, timeout, **__):
        raise subprocess.TimeoutExpired("python", timeout)

    monkeypatch.setattr(subprocess, "run", hangs)
    (row,) = run_case(CASE)
    assert row.status == "timeout" and "540 s" in row.reason


@pytest.mark.slow
def test_a_measurement_is_positive_and_agrees_with_itself(tmp_path, monkeypatch):
    # What lies in the working folder has no part in it.
    (tmp_path / "torch.py").write_text("raise SystemExit('the wrong torch')")
    monkeypatch.chdir(tmp_path)
    (row,) = run_case(BenchmarkCase(**{**vars(CASE), "seconds": 3600.0}))  # none of it is waited for
    assert (row.status, row.reason, row.repeats, row.precision) == ("ok", None, 4, "fp32")
    assert row.images_per_second == pytest.approx(4 / row.seconds_median)
    assert 0 < row.seconds_min <= row.seconds_q1 <= row.seconds_median <= row.seconds_q3
    assert row.warmup >= 2 and row.compile_seconds is None
    assert 0.5 < row.peak_memory_mib < 500  # a network of half a million parameters, not PyTorch's hundreds


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is bounded on Linux alone")
def test_a_batch_too_large_for_the_memory_is_a_row():
    case = BenchmarkCase(
        **{**vars(CASE), "batch": 60_000, "hardware": Hardware("cpu", "fp32", threads=1, memory_gb=0.3)}
    )
    (row,) = run_case(case)
    assert row.status == "out_of_memory" and "60000 does not fit into 0.3 GB" in row.reason
