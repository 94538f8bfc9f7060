import pytest
import torch

from usvit.models.zoo import find_model

from .networks import images, scramble, small


def test_a_block_is_its_equation():
    block = scramble(small("patchconvnet")).blocks[0]
    x = torch.randn(2, 32, 4, 6)
    y = torch.nn.functional.layer_norm(x.permute(0, 2, 3, 1), (32,), block.norm.weight, block.norm.bias, 1e-6)
    gelu = torch.nn.functional.gelu
    y = gelu(y @ block.conv1.weight[:, :, 0, 0].T + block.conv1.bias).permute(0, 3, 1, 2)
    padded, by_hand = torch.nn.functional.pad(y, (1, 1, 1, 1)), torch.zeros_like(y)
    for row in range(3):
        for column in range(3):  # each channel alone: depthwise
            weight = block.conv2.weight[:, 0, row, column].view(1, -1, 1, 1)
            by_hand += weight * padded[:, :, row : row + 4, column : column + 6]
    y = gelu(by_hand + block.conv2.bias.view(1, -1, 1, 1))
    squeezed = torch.relu(y.mean((2, 3)) @ block.se.fc1.weight[:, :, 0, 0].T + block.se.fc1.bias)
    y = y * torch.sigmoid(squeezed @ block.se.fc2.weight[:, :, 0, 0].T + block.se.fc2.bias)[:, :, None, None]
    y = torch.einsum("nchw,dc->ndhw", y, block.conv3.weight[:, :, 0, 0]) + block.conv3.bias.view(1, -1, 1, 1)
    torch.testing.assert_close(block(x), x + block.ls.gamma.view(1, -1, 1, 1) * y, rtol=1e-4, atol=1e-5)


def test_squeeze_and_excitation_is_a_quarter_wide_at_any_width():
    assert small("patchconvnet", width=24).blocks[0].se.fc1.out_channels == 6


def test_stochastic_depth_is_the_same_in_all_blocks():
    model = small("patchconvnet", drop_path_rate=0.3)
    assert [block.drop_path.drop_prob for block in model.blocks] == [0.3] * 3
    assert not hasattr(model.attn_pool, "drop_path")


@pytest.mark.parametrize(
    ("name", "start"), [("s60", 1e-4), ("s60_multi", 1e-4), ("s120", 1e-6), ("b60", 1e-6), ("l120_multi", 1e-6)]
)
def test_layer_scale_starts_as_in_the_public_code(name, start):
    assert find_model(f"patchconvnet_{name}").options["layer_scale"] == start


@pytest.mark.parametrize("size", [(64, 64), (96, 160), (224, 224)])
def test_any_image_size_goes_in(size):
    model = small("patchconvnet")
    assert model.forward_features(images(1, *size)).shape == (1, 32, size[0] // 16, size[1] // 16)
    assert model(images(1, *size)).shape == (1, 5)


def test_maps_of_blocks_are_read_as_those_of_timm_s_networks():
    network = small("patchconvnet", depth=3).eval()
    images = torch.rand(2, 3, 40, 40)
    features, maps = network.forward_intermediates(images)
    assert torch.equal(features, network.forward_features(images)) and torch.equal(maps[-1], features)
    one = network.forward_intermediates(images, [-2], norm=True, stop_early=True, intermediates_only=True)
    expected = network.norm(maps[1].movedim(1, -1)).movedim(-1, 1)
    assert len(one) == 1 and torch.equal(one[0], expected) and one[0].shape == (2, 32, 3, 3)
    assert len(network.forward_intermediates(images, 2, intermediates_only=True)) == 2
    network.set_grad_checkpointing()
    assert torch.allclose(network.train().forward_intermediates(images)[0], features, atol=1e-5)


def test_patches_have_no_positions():
    # Far from the borders a shift by a patch shifts the features: nothing else tells where they lie.
    model = scramble(small("patchconvnet", depth=1))
    for parameter in model.blocks[0].se.parameters():
        torch.nn.init.zeros_(parameter)  # which looks at the whole image
    picture = images(1, 160, 160)
    shifted = torch.roll(picture, 16, dims=3)
    here, there = model.forward_features(picture), model.forward_features(shifted)
    torch.testing.assert_close(there[..., 3:-3], here[..., 2:-4], rtol=1e-4, atol=1e-5)
