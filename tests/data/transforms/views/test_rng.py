"""Numbers of an image: SplitMix64's, the same on the host and on a device, and close to uniform and independent."""

import random

import numpy as np
import pytest
import torch

from usvit.data.transforms.views import rng
from usvit.seeding import derive_seed

SEEDS = [0, 1, 2**63 - 1, *(derive_seed(0, "test", index) for index in range(2000))]


def splitmix64(state):
    """As published, in Python's whole numbers."""
    while True:
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        word = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
        yield word ^ (word >> 31)


def test_the_oracle_gives_the_published_sequence():
    sequence = splitmix64(1234567)
    assert [next(sequence) for _ in range(3)] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_numbers_are_splitmix64_s_first(seed):
    sequence = splitmix64(seed)
    assert rng.numbers(seed).tolist() == [(next(sequence) >> 40) / 2**24 for _ in range(rng.COUNT)]


def test_a_batch_gets_the_numbers_of_its_images():
    table = rng.number_table(torch.tensor(SEEDS))
    assert table.dtype == torch.float32
    assert np.array_equal(table.numpy(), np.stack([rng.numbers(seed) for seed in SEEDS]))


def test_numbers_of_derived_seeds_look_uniform_and_independent():
    table = np.stack([rng.numbers(seed) for seed in SEEDS[3:]])
    n = len(table)
    assert table.min() >= 0
    assert table.max() < 1
    # z-scores of means and correlations; 4.5 is exceeded by one of 600 normal numbers in 1 of 250 tables
    assert np.abs((table.mean(0) - 0.5) * np.sqrt(12 * n)).max() < 4.5
    assert np.abs(np.corrcoef(table.T) - np.eye(rng.COUNT)).max() * np.sqrt(n) < 4.5


def test_seeded_gives_one_state_and_puts_the_old_one_back():
    with rng.seeded(5):
        first = random.random(), np.random.rand()  # noqa: NPY002
    state, numpy_state = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    with rng.seeded(5):
        assert (random.random(), np.random.rand()) == first  # noqa: NPY002
    with pytest.raises(KeyError), rng.seeded(2**62 + 5):
        assert random.random() != first[0]
        assert np.random.rand() != first[1]  # noqa: NPY002
        raise KeyError
    assert random.getstate() == state
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
