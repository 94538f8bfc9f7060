"""The levels of a taxonomy that a transfer tests."""

import pytest

from tests.data.datasets.upstream import layouts
from usvit.config import TransferConfig, build
from usvit.experiments.transfer_learning.splits import open_splits
from usvit.progress import NO_PROGRESS


def opened(root, year, fine=None, **source):
    settings = {"how": "retrieval", "test": "val", "fine": fine, "source": {"name": f"inat{year}", **source}}
    return open_splits(build(TransferConfig, settings), {f"inat{year}": root}, NO_PROGRESS)


@pytest.mark.parametrize("year", [18, 19])
@pytest.mark.parametrize("trained", [None, "all", "kingdom", "order", "genus"])
@pytest.mark.parametrize("tested", [None, "kingdom", "order", "genus"])
def test_every_level_of_inaturalist_is_tested_whatever_was_trained(tmp_path, year, trained, tested):
    """Tables 2.5, 2.6 and 2.14: training levels by test levels, of both years."""
    layouts.write_inat(tmp_path, 2000 + year)
    species = opened(tmp_path, year)
    splits = opened(tmp_path, year, coarse=trained, fine=tested)
    levels = species.train.source.levels
    for split, own in ((splits.train, species.train), (splits.test, species.test)):
        label = [own.source.classes[target] for target in own.targets]
        if tested is not None:
            label = [levels[tested][target] for target in own.targets]
        assert [split.source.classes[target] for target in split.targets] == label
        coarse = {None: None, "all": [0] * len(own)}.get(trained, "named")
        if coarse == "named":
            names = sorted(set(levels[trained]))
            coarse = [names.index(levels[trained][target]) for target in own.targets]
        assert (None if split.coarse_targets is None else split.coarse_targets.tolist()) == coarse


def test_a_share_of_the_training_images_can_be_tested_at_a_level_too(tmp_path):
    layouts.write_inat(tmp_path, 2018)
    source = {"name": "inat18", "coarse": "order", "val_share": 0.25}
    config = build(TransferConfig, {"how": "retrieval", "test": None, "fine": "kingdom", "source": source})
    splits = open_splits(config, {"inat18": tmp_path}, NO_PROGRESS)
    assert (len(splits.train), len(splits.test)) == (3, 1)
    assert splits.classes == ("Animalia", "Plantae")
