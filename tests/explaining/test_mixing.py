"""The linear map over patches of a ResMLP: known matrices."""

import numpy as np
import pytest
import torch

from tests.explaining.conftest import network
from usvit.errors import UsvitError
from usvit.explaining.layer_charts import write_rows, write_sparsity
from usvit.explaining.mixing import central_patches, mixing_layers, sparsity

SMALL = {"width": 16, "depth": 2, "patch": 8, "img_size": 32}


def resmlp(**options):
    return network("usvit_resmlp", **(SMALL | options))


def test_the_share_of_small_weights_is_counted_against_the_largest_absolute_value():
    weight = torch.tensor([[-2.0, 0.0, 0.11], [0.09, -0.09, 0.1]])  # the limit is 0.1, and 0.1 is not below it
    assert sparsity(weight.double()) == pytest.approx(3 / 6)
    assert sparsity(torch.eye(16)) == 15 / 16 and sparsity(torch.ones(3, 3)) == 0 and sparsity(torch.zeros(2, 2)) == 0


def test_a_known_matrix_is_returned_with_its_sparsity():
    model = resmlp()
    shift = torch.eye(16).roll(1, dims=1)  # patch i reads patch i + 1
    with torch.no_grad():
        model.blocks[0].linear_tokens.weight.copy_(shift)
        model.blocks[0].mlp_channels.fc1.weight.fill_(1.0)
        model.blocks[0].mlp_channels.fc1.weight[:16] = 0.01  # 16 of 64 rows
        model.blocks[0].mlp_channels.fc2.weight.fill_(-1.0)
    grid, (first, second) = mixing_layers(model, "ResMLP")
    assert grid == (4, 4) and [first.layer, second.layer] == ["blocks.0", "blocks.1"]
    assert np.array_equal(first.rows, shift.numpy())
    assert first.sparsity == 15 / 16 and first.mlp_sparsity == (0.25, 0.0)
    largest = np.abs(second.rows).max()
    small = sum(abs(value) < 0.05 * largest for value in second.rows.flat)
    assert second.sparsity == pytest.approx(small / 256)


def test_row_i_is_what_patch_i_reads():
    model = resmlp(depth=1)
    with torch.no_grad():
        model.blocks[0].linear_tokens.weight.zero_()
        model.blocks[0].linear_tokens.weight[3, 5] = 1.0
        x = torch.randn(1, 16, 16, generator=torch.Generator().manual_seed(0))
        other = x.clone()
        other[0, 5] += 1
        changed = (model.blocks[0](x) != model.blocks[0](other)).any(dim=2)[0]
    assert changed.nonzero().flatten().tolist() == [3, 5]  # 5 by its residual connection
    (layer,) = mixing_layers(model, "ResMLP")[1]
    assert np.argwhere(layer.rows).tolist() == [[3, 5]]


def test_the_central_patches_are_those_of_figure_4_2():
    patches = central_patches((14, 14))
    assert np.shape(patches) == (6, 6) and patches[0][0] == 4 * 14 + 4 and patches[5][5] == 9 * 14 + 9
    assert np.array_equal(central_patches((2, 3)), [[0, 1, 2], [3, 4, 5]])


def test_class_mlp_is_no_map_over_patches():
    assert len(mixing_layers(resmlp(pool="class_mlp"), "ResMLP")[1]) == 2


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("usvit_resmlp", SMALL | {"mixing": "mlp"}),
        ("usvit_resmlp", SMALL | {"mixing": "none"}),
        ("resnet10t", {}),
        ("usvit_vit", {"img_size": 32, "width": 24, "depth": 1, "heads": 2, "mlp": 48, "patch": 8}),
    ],
)
def test_a_network_without_such_a_map_is_refused(name, options):
    with pytest.raises(UsvitError, match="has no linear map over its patches"):
        mixing_layers(network(name, **options), name)


@pytest.mark.slow
def test_the_pictures_are_the_same_each_time(tmp_path):
    grid, layers = mixing_layers(resmlp(), "ResMLP")
    for name in "ab":
        write_rows(tmp_path / f"rows-{name}.png", layers[0].rows, grid, "rows")
        write_sparsity(tmp_path / f"sparsity-{name}.png", layers, "sparsity")
    for kind in ("rows", "sparsity"):
        assert (tmp_path / f"{kind}-a.png").read_bytes() == (tmp_path / f"{kind}-b.png").read_bytes()
