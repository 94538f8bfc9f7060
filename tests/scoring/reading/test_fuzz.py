"""The suite ``images`` of ``benchmarks.fuzzing`` in small."""

import numpy as np
import pytest

from benchmarks.fuzzing.harness import Options
from benchmarks.fuzzing.images import images
from benchmarks.fuzzing.mutations import mutated
from usvit.scoring.items import FAILURES


@pytest.mark.slow
def test_each_mutated_file_ends_exactly_once_with_its_pixels_or_a_known_code(tmp_path):
    cases = [*images(tmp_path, Options(100, seed=7, seconds=20, memory_gb=2))]
    assert [case for case in cases if case.bad] == [] and len(cases) == 100
    for case in cases:
        assert {code.removeprefix("frame: ") for code in case.text.splitlines()} <= set(FAILURES)
    assert len({case.kind for case in cases}) > 3
    assert sum(case.kind == "scored" for case in cases) > 10


def test_mutations_can_be_repeated_and_change_something():
    whole = bytes(range(256)) * 40
    twice = [[mutated(whole, np.random.default_rng(seed)) for seed in range(100)] for _ in range(2)]
    assert twice[0] == twice[1]
    assert sum(data != whole for data, _ in twice[0]) > 95
    assert len({names for _, names in twice[0]}) > 10
