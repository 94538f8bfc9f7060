import pytest
import torch

from tests.upstream.pretraining.toy import plan, tiny_vit
from usvit.seeding import derive_seed
from usvit.upstream.pretraining.counter_rng import new_weights, permutation, random_bits, uniform
from usvit.upstream.pretraining.task import make_task

WORD = (1 << 64) - 1


def splitmix(state: int) -> int:
    """One output, in whole numbers without end; the state has been moved on already."""
    z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
    return z ^ (z >> 31)


def outputs(state: int, count: int) -> list[int]:
    return [splitmix((state + number * 0x9E3779B97F4A7C15) & WORD) for number in range(1, count + 1)]


def test_the_reference_gives_the_published_numbers():
    assert outputs(1234567, 3) == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_numbers_are_those_of_splitmix_on_a_hashed_seed():
    seeds = [0, 1, 2**62 + 12345, 2**63 - 1]
    got = random_bits(torch.tensor(seeds), 7, "purpose")
    wanted = [[z >> 1 for z in outputs(splitmix(seed ^ derive_seed(0, "purpose")), 7)] for seed in seeds]
    assert got.tolist() == wanted


def test_an_example_has_the_same_numbers_in_any_batch():
    seeds = torch.arange(10) * 977
    whole = permutation(seeds, 20, "x")
    assert torch.equal(torch.cat([permutation(seeds[:3], 20, "x"), permutation(seeds[3:], 20, "x")]), whole)
    assert torch.equal(permutation(seeds.flip(0), 20, "x").flip(0), whole)


def test_every_row_is_a_permutation_and_purposes_differ():
    seeds = torch.arange(50)
    one, other = permutation(seeds, 30, "one"), permutation(seeds, 30, "other")
    assert torch.equal(one.sort(dim=1).values, torch.arange(30).expand(50, -1))
    assert (one != other).float().mean() > 0.9


def test_uniform_numbers_are_uniform_and_neighbours_know_nothing_of_each_other():
    got = uniform(torch.arange(4000), 50, "u")  # neighbouring seeds
    assert got.dtype == torch.float32 and got.min() >= 0 and got.max() < 1
    shares = torch.histc(got, bins=10, min=0, max=1) / got.numel()
    assert torch.allclose(shares, torch.full((10,), 0.1), atol=0.003)
    centred = got - got.mean()
    assert abs((centred[1:] * centred[:-1]).mean() / centred.var()) < 0.01
    assert abs((centred[:, 1:] * centred[:, :-1]).mean() / centred.var()) < 0.01


def test_new_weights_start_from_the_seed_and_leave_the_global_generator():
    before = torch.get_rng_state()
    with new_weights(3, "decoder"):
        first = torch.rand(4)
    with new_weights(3, "head"):
        other = torch.rand(4)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(5)
    with new_weights(3, "decoder"):
        assert torch.equal(torch.rand(4), first)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("task", ["mae", "masked_patch", "grafit", "tokenizer"])
def test_making_a_task_does_not_seed_the_generators_of_gpus(task, monkeypatch):
    small = {"mae": {"decoder_width": 16, "decoder_heads": 2, "decoder_depth": 1}, "views": {"count": 2}}
    given, network = plan(objective=task, **small), tiny_vit()
    before = torch.get_rng_state()
    monkeypatch.setattr(torch, "manual_seed", lambda seed: pytest.fail("it seeds every device"))
    make_task(given.config)(given, network)
    assert torch.equal(torch.get_rng_state(), before)
