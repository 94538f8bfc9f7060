"""A small sample of ``benchmarks.input_fuzz``."""

import sys

import pytest

from benchmarks import input_fuzz

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the script watches processes in /proc"),
]


def test_hostile_values_and_tables_are_refused_or_read(tmp_path, monkeypatch):
    for name in ("HOME", "USVIT_CACHE", "OMP_NUM_THREADS", "USVIT_DATA", "HF_HUB_OFFLINE"):
        monkeypatch.setenv(name, "")  # restored after the script has set them
    cases = [*input_fuzz.run(tmp_path, ("yaml", "tables"), 5, 1, input_fuzz.Limits(120, 4))]
    assert [(case.name, case.text[-500:]) for case in cases if case.bad] == []
    assert len(cases) == 10 and "refused" in {case.outcome for case in cases}
