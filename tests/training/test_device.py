import pytest
import torch

from usvit.errors import UsvitError
from usvit.training.device import resolve_device, seed_everything


def test_auto_takes_what_is_there_and_says_what_it_took():
    device = resolve_device("auto", "auto")
    assert device.type == ("cuda" if torch.cuda.is_available() else "cpu")
    assert device.precision in ("fp32", "bf16") and device.record().name


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_cuda_where_there_is_none_is_refused_with_advice():
    with pytest.raises(UsvitError, match="--device cpu"):
        resolve_device("cuda", "auto")


def test_what_is_deterministic_fills_no_memory_for_nothing():
    seed_everything(0)
    assert torch.are_deterministic_algorithms_enabled()
    assert not torch.utils.deterministic.fill_uninitialized_memory


def test_the_seed_depends_on_the_purpose():
    draws = []
    for purpose in (("model", 0), ("model", 0), ("model", 1), ("train", 0)):
        seed_everything(3, *purpose)
        draws.append(torch.rand(1).item())
    assert draws[0] == draws[1] and len(set(draws)) == 3
