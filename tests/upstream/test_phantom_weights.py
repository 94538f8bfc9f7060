"""The command that makes the shipped weights, with a tiny set of phantoms."""

import hashlib

import pytest
import torch
from safetensors.torch import load_file

from usvit.data.splits import load_metadata
from usvit.errors import UsvitError
from usvit.upstream.phantom_weights import make_phantom_weights

pytestmark = pytest.mark.slow
TINY = ["source.size=6", "train.batch_size=2", "train.epochs=1", "model.image_size=32", "device=cpu"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_phantom_weights(tmp_path_factory.mktemp("weights") / "one", seed=4, set_=TINY)


def test_a_seed_gives_the_same_bytes_and_another_seed_others(made, tmp_path):
    again = make_phantom_weights(tmp_path / "again", seed=4, set_=TINY)
    for name in ("model.safetensors", "model.json"):
        assert (again / name).read_bytes() == (made / name).read_bytes()
    other = make_phantom_weights(tmp_path / "other", seed=5, set_=TINY)
    assert (other / "model.safetensors").read_bytes() != (made / "model.safetensors").read_bytes()


def test_the_weights_are_in_half_precision_with_their_hash_and_seed(made):
    tensors = load_file(made / "model.safetensors")
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float16, torch.int64}
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    metadata = load_metadata(made / "model.safetensors")
    assert metadata.seed == 4
    assert metadata.weights_sha256 == hashlib.sha256((made / "model.safetensors").read_bytes()).hexdigest()


def test_weights_that_are_there_are_kept(made):
    with pytest.raises(UsvitError, match="already has weights"):
        make_phantom_weights(made, seed=4, set_=TINY)
