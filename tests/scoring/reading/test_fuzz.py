"""The fuzz of reading in small; ``python -m benchmarks.score_fuzz`` is the whole of it."""

import argparse

import numpy as np
import pytest

from benchmarks import score_fuzz
from usvit.scoring.items import FAILURES


@pytest.mark.slow
def test_each_mutated_file_ends_exactly_once_with_its_pixels_or_a_known_code(tmp_path):
    options = argparse.Namespace(n=100, seed=7, timeout=20.0, memory=2.0, workers=2)
    cases = score_fuzz.run(options, tmp_path)
    assert [case.ends for case in cases] == [1] * 100
    for case in cases:
        assert case.frames or case.codes
        assert {code.removeprefix("frame: ") for code in case.codes} <= set(FAILURES)
    assert len({case.outcome for case in cases}) > 3
    assert sum(case.outcome == "scored" for case in cases) > 10


def test_a_fuzz_can_be_repeated_and_its_mutations_change_something():
    whole = bytes(range(256)) * 40
    twice = [[score_fuzz.mutated(whole, np.random.default_rng(seed)) for seed in range(100)] for _ in range(2)]
    assert twice[0] == twice[1]
    assert sum(data != whole for data, _ in twice[0]) > 95
    assert len({names for _, names in twice[0]}) > 10
