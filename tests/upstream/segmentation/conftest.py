"""A data set and a run that the tests of segmentation share."""

import pytest

from tests.upstream.segmentation.disc_cases import N, run, write


@pytest.fixture(scope="session")
def discs(tmp_path_factory):
    return write(tmp_path_factory.mktemp("discs"), "", range(1, N + 1))


@pytest.fixture(scope="session")
def finished(discs, tmp_path_factory):
    segment = {"head": "linear", "peer": "unet", "augment": "us"}
    train = {"steps": 60, "eval_every": 30}
    return run(discs, tmp_path_factory.mktemp("run") / "run", segment=segment, train=train)
