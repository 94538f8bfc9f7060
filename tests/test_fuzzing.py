"""Samples of ``benchmarks.fuzzing``: the suites find what they look for, and find nothing in usvit."""

import sys

import numpy as np
import pytest

from benchmarks.fuzzing import lists
from benchmarks.fuzzing.__main__ import SUITES
from benchmarks.fuzzing.harness import Options, run

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are watched in /proc"),
]
SAMPLE = ("yaml_bomb", "yaml_of_merges", "pth_that_holds_itself", "npz_of_complex_numbers", "dicomdir_that_climbs")
PATIENT = Options(1, seconds=120)
"""Enough time for a case on however slow a machine."""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """One folder for several suites, which need the same healthy run."""
    return tmp_path_factory.mktemp("world")


@pytest.mark.parametrize(("suite", "n"), [("runs", 25), ("yaml", 5), ("tables", 5)])
def test_hostile_input_is_refused_or_read_and_nothing_else_happens(root, suite, n):
    cases = [*run(SUITES[suite], root, Options(n, seed=1, seconds=120, memory_gb=4))]
    assert [(case.outcome, case.kind, case.name, case.text[-500:]) for case in cases if case.bad] == []
    assert len(cases) == n and "refused" in {case.outcome for case in cases}


def test_a_case_depends_on_the_seed_and_its_number_alone(tmp_path):
    def names(folder, **chosen):
        return [(case.kind, case.name) for case in run(SUITES["lists"], tmp_path / folder, Options(**chosen))]

    several = names("several", n=3, first=500, seed=1)
    assert names("one", n=1, first=502, seed=1) == several[2:]
    assert names("other", n=3, first=500, seed=2) != several


@pytest.mark.parametrize("name", SAMPLE)
def test_an_attack_ends_with_a_result_or_a_refusal(tmp_path, name):
    folder = tmp_path / "0" / "in"
    folder.mkdir(parents=True)
    kind, write = lists.attacks()[name]
    ended = lists.run_on_file(kind, name, write(folder), PATIENT)
    assert ended.outcome == ("passed" if kind == "dicomdir" else "refused"), ended


def test_mutated_files_end_with_a_result_or_a_refusal(tmp_path):
    rng = np.random.default_rng(7)
    for kind, (file, content) in lists.healthy().items():
        folder = tmp_path / kind / "in"
        folder.mkdir(parents=True)
        path = folder / file
        path.write_bytes(content)
        assert lists.run_on_file(kind, "healthy", path, PATIENT).outcome in (
            ("refused",) if kind in ("pth", "npz", "safetensors") else ("passed",)  # the tensors are of another network
        ), kind
        path.write_bytes(lists.mutated(kind, content, rng)[0])
        ended = lists.run_on_file(kind, "mutated", path, PATIENT)
        assert not ended.bad, ended


def _bug(kind, path):
    if kind == "raises":
        raise KeyError("x")
    if kind == "writes":
        (path.parents[1] / "elsewhere").write_text("x")
    while kind == "hangs":
        pass
    return ""


@pytest.mark.parametrize(("kind", "end"), [("raises", "TRACEBACK"), ("writes", "WROTE OUTSIDE"), ("hangs", "HANG")])
def test_the_harness_sees_a_bug(tmp_path, monkeypatch, kind, end):
    monkeypatch.setattr(lists, "read", _bug)
    (tmp_path / "0" / "in").mkdir(parents=True)
    path = tmp_path / "0" / "in" / "x"
    path.write_text("x")
    limit = Options(1, seconds=1) if kind == "hangs" else PATIENT
    assert lists.run_on_file(kind, kind, path, limit).outcome == end
