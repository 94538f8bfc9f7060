"""A sample of ``benchmarks.list_fuzz``: it finds what it looks for, and finds nothing in usvit."""

import sys

import numpy as np
import pytest

from benchmarks import list_fuzz

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="the script watches processes in /proc"),
]
SAMPLE = ("yaml_bomb", "yaml_of_merges", "pth_that_holds_itself", "npz_of_complex_numbers", "dicomdir_that_climbs")
PATIENT = 120.0
"""Seconds for a case, on however slow a machine."""


@pytest.mark.parametrize("name", SAMPLE)
def test_an_attack_ends_with_a_result_or_a_refusal(tmp_path, name):
    folder = tmp_path / "0" / "in"
    folder.mkdir(parents=True)
    kind, write = list_fuzz.attacks()[name]
    outcome = list_fuzz.run_case(kind, name, write(folder), PATIENT, 3)
    assert outcome.outcome == ("passed" if kind == "dicomdir" else "refused"), outcome


def test_mutated_files_end_with_a_result_or_a_refusal(tmp_path):
    rng = np.random.default_rng(7)
    for kind, (file, content) in list_fuzz.healthy(tmp_path).items():
        folder = tmp_path / kind / "in"
        folder.mkdir(parents=True)
        path = folder / file
        path.write_bytes(content)
        assert list_fuzz.run_case(kind, "healthy", path, PATIENT, 3).outcome in (
            ("refused",) if kind in ("pth", "npz", "safetensors") else ("passed",)  # the tensors are of another network
        ), kind
        path.write_bytes(list_fuzz.mutated(kind, content, rng)[0])
        outcome = list_fuzz.run_case(kind, "mutated", path, PATIENT, 3)
        assert not outcome.bad, outcome


def _bug(kind, path):
    if kind == "raises":
        raise KeyError("x")
    if kind == "writes":
        (path.parents[1] / "elsewhere").write_text("x")
    while kind == "hangs":
        pass
    return ""


@pytest.mark.parametrize(("kind", "end"), [("raises", "TRACEBACK"), ("writes", "WROTE OUTSIDE"), ("hangs", "HANG")])
def test_the_script_sees_a_bug(tmp_path, monkeypatch, kind, end):
    monkeypatch.setattr(list_fuzz, "read", _bug)
    (tmp_path / "0" / "in").mkdir(parents=True)
    path = tmp_path / "0" / "in" / "x"
    path.write_text("x")
    assert list_fuzz.run_case(kind, kind, path, 1 if kind == "hangs" else PATIENT, 3).outcome == end
