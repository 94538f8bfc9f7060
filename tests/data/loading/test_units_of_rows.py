"""Order of an epoch whose units stay together, and what batches say about them."""

import numpy as np
import pytest

from usvit.data.loading.pixel_store import ShuffledRows, TrainBatches, UnitsOfRows
from usvit.training.head_training import FeatureStore


def _order(numbers, views, seed=0):
    rows = ShuffledRows(np.arange(len(numbers)), np.zeros(len(numbers), int), None, UnitsOfRows(numbers, views))
    order = rows.order(np.random.default_rng(seed))
    assert len(order) == len(rows)
    return order


def test_the_views_of_a_unit_follow_each_other():
    numbers = np.random.default_rng(1).integers(0, 9, 40)
    order = _order(numbers, None)
    assert sorted(order) == list(range(40))
    assert (np.diff(numbers[order]) != 0).sum() == len(np.unique(numbers)) - 1


@pytest.mark.parametrize("views", [1, 3, 100])
def test_a_unit_has_at_most_so_many_views_which_are_drawn_anew(views):
    numbers = np.repeat([5, 2, 8], [1, 7, 4])
    order = _order(numbers, views)
    counts = {unit: int((numbers[order] == unit).sum()) for unit in (5, 2, 8)}
    assert counts == {5: 1, 2: min(7, views), 8: min(4, views)}
    assert len(set(order)) == len(order)
    if views == 3:
        assert len({tuple(sorted(_order(numbers, views, seed))) for seed in range(20)}) > 5


def test_batches_carry_units_and_votes_beside_their_rows():
    store = FeatureStore(np.arange(6, dtype=np.float32)[:, None])
    units = UnitsOfRows(np.array([1, 1, 3]), None, np.array([0.5, 0.5, 2], np.float32))
    batches = TrainBatches(
        store, np.array([5, 2, 0]), np.array([1, 1, 0]), batch_size=3, augment=None, seed=0, units=units
    )
    (batch,) = batches.iterate(0, 1)
    found = {
        int(x): (int(u), float(v)) for x, u, v in zip(batch["images"], batch["units"], batch["votes"], strict=True)
    }
    assert found == {5: (1, 0.5), 2: (1, 0.5), 0: (3, 2.0)}


def test_without_units_the_order_is_a_plain_permutation():
    rows = ShuffledRows(np.arange(9), np.zeros(9, int), None)
    assert rows.order(np.random.default_rng(3)).tolist() == np.random.default_rng(3).permutation(9).tolist()
