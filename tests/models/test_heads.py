"""The head of a checkpoint, of one layer and of two, in a network that keeps it."""

import pytest
import timm
import torch
from safetensors.torch import save_file

from usvit.errors import UsvitError
from usvit.models.heads import load_head
from usvit.models.mlp_head import give_mlp_head
from usvit.models.weights import Weights


@pytest.mark.parametrize("layers", [1, 2])
def test_it_answers_as_in_the_network_that_it_came_from(layers, tmp_path):
    torch.manual_seed(0)
    trained, other = (timm.create_model("resnet10t", num_classes=3) for _ in range(2))
    if layers == 2:
        give_mlp_head(trained)
        trained.fc[1].running_mean += 0.5
    save_file(trained.state_dict(), tmp_path / "w.safetensors")
    load_head(other, Weights("file", tmp_path / "w.safetensors"), 3, "The network", "Choose another.")
    features = torch.randn(4, 512)
    assert torch.equal(other.eval().fc(features), trained.eval().fc(features))


def test_another_number_of_classes_is_told_and_so_is_no_head(tmp_path):
    trained = timm.create_model("resnet10t", num_classes=5)
    give_mlp_head(trained)
    state = trained.state_dict()
    save_file(state, tmp_path / "five.safetensors")
    save_file({key: value for key, value in state.items() if not key.startswith("fc.")}, tmp_path / "none.safetensors")
    model = timm.create_model("resnet10t", num_classes=3)
    with pytest.raises(UsvitError, match="has 5 classes, but the images have 3"):
        load_head(model, Weights("file", tmp_path / "five.safetensors"), 3, "The network", "Choose another.")
    with pytest.raises(UsvitError, match="has no head"):
        load_head(
            timm.create_model("resnet10t", num_classes=3),
            Weights("file", tmp_path / "none.safetensors"),
            *(3, "The network", "Choose another."),
        )
