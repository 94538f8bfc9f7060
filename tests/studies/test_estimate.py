"""The estimated operations of a run, from the numbers of its views."""

import pytest

from usvit.config import PretrainConfig
from usvit.studies.estimate import _operations


@pytest.mark.parametrize(("size", "local"), [(96, 8 * (96 / 224) ** 2), (None, 8.0)])
def test_dino_trains_on_all_crops_and_asks_the_teacher_for_the_global_ones(size, local):
    settings = {
        "objective": "dino",
        "views": {"count": 2, "local_count": 8, "local_size": size},
        "train": {"steps": 5, "epochs": None, "batch_size": 10},
    }
    macs = 1e9
    expected = 50 * (3 * 2 * macs * (2 + local) + 2 * 2 * macs)
    assert _operations(PretrainConfig.model_validate(settings), macs) == pytest.approx(expected)
