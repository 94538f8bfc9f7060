import subprocess
import sys

import pytest

from usvit.seeding import derive_seed


def test_equal_purposes_get_equal_seeds_and_any_difference_another():
    purposes = [(seed, name, number) for seed in range(5) for name in ("order", "augment") for number in range(50)]
    seeds = {purpose: derive_seed(*purpose) for purpose in purposes}
    assert all(derive_seed(*purpose) == seed for purpose, seed in seeds.items())
    assert len(set(seeds.values())) == len(purposes)


def test_seeds_fit_every_generator():
    seeds = [derive_seed(0, number) for number in range(2000)]
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert max(seeds) > 2**62  # the range is used


@pytest.mark.parametrize("hash_seed", ["0", "1"])
def test_seed_does_not_depend_on_the_process(hash_seed):
    program = "from usvit.seeding import derive_seed; print(derive_seed(7, 'order', 3))"
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONHASHSEED": hash_seed}, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == derive_seed(7, "order", 3)


def test_seeds_stay_what_they_are_from_version_to_version():
    """A changed derivation would change every result of every run."""
    assert derive_seed(0, "test") == SEED_0_TEST
    assert derive_seed(1, "val", 3) == SEED_1_VAL_3


SEED_0_TEST = 7886241439700792003
SEED_1_VAL_3 = 6721561109233799705
