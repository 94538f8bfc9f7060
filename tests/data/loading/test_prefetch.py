"""Copies of batches to the device, one step ahead."""

import pytest
import torch

from usvit.data.loading.prefetch import KEPT, copied_ahead

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


def batch(step):
    return {
        "images": torch.full((4, 64, 64, 3), step, dtype=torch.uint8),
        **{name: torch.arange(4) + step for name in ("targets", "seeds", "index")},
    }


class Host:
    """Batches that record how many were fetched, and whether their generator was closed."""

    def __init__(self, count):
        self.fetched, self.closed, self.batches = 0, False, self._made(count)

    def _made(self, count):
        try:
            for step in range(count):
                self.fetched += 1
                made = batch(step)
                yield {name: value.pin_memory() if torch.cuda.is_available() else value for name, value in made.items()}
        finally:
            self.closed = True


def test_on_a_cpu_the_batches_are_the_same_objects_one_at_a_time():
    made = [batch(step) for step in range(3)]
    assert all(one is other for one, other in zip(copied_ahead(iter_of(made), torch.device("cpu")), made, strict=True))
    host = Host(5)
    batches = copied_ahead(host.batches, torch.device("cpu"))
    next(batches)
    assert host.fetched == 1
    batches.close()
    assert host.closed


def iter_of(batches):
    yield from batches


@GPU
@pytest.mark.parametrize("count", [0, 1, 2, 7])
def test_on_a_gpu_order_and_values_are_those_of_the_host(count):
    host, device = Host(count), torch.device("cuda")
    made = list(copied_ahead(host.batches, device))
    assert len(made) == count
    assert host.closed
    for step, one in enumerate(made):
        assert all(value.is_cuda is (name not in KEPT) for name, value in one.items())
        assert all(torch.equal(value.cpu(), batch(step)[name]) for name, value in one.items())


@GPU
def test_on_a_gpu_a_copy_is_one_step_ahead_and_its_memory_is_not_used_again_too_early():
    host, device = Host(40), torch.device("cuda")
    batches = copied_ahead(host.batches, device)
    busy, sums = torch.randn(2048, 2048, device=device), []
    for step, one in enumerate(batches):
        assert host.fetched == min(step + 2, 40)
        for _ in range(10):
            busy = (busy @ busy).tanh()
        sums.append(one["images"].sum() + (busy.sum() * 0).long())
        del one
    assert [int(total) for total in sums] == [4 * 64 * 64 * 3 * step for step in range(40)]
