"""AxialResNet: its attention computed position by position, and the counts of the public definition."""

import itertools

import pytest
import torch

from usvit.errors import UsvitError
from usvit.explaining.token_layout import anatomy_of
from usvit.models.architectures.axial_resnet import LineAttention
from usvit.models.trainable import set_trainable
from usvit.models.zoo.listing import counted

from .networks import SIZE, images, scramble, small


def batch_norm(layer, index, value):
    scale = layer.weight[index] / (layer.running_var[index] + layer.eps).sqrt()
    return (value - layer.running_mean[index]) * scale + layer.bias[index]


@pytest.mark.parametrize("axis", ["column", "row"])
def test_a_line_is_the_formula_in_loops(axis):
    """8 heads of 2 channels: one channel of the query and the key, two of the value."""
    layer, length = scramble(LineAttention(16, 3, axis)).eval(), 3
    x = torch.randn(1, 16, 3, 3)
    line = x[0, :, :, 1] if axis == "column" else x[0, :, 1, :]  # (16, 3)
    qkv = torch.stack(
        [batch_norm(layer.norm_qkv, slice(None), layer.qkv.weight[:, :, 0] @ line[:, i]) for i in range(length)]
    )  # (3, 32)
    expected = torch.zeros(16, length)
    for head, i in itertools.product(range(8), range(length)):
        parts = qkv[:, 4 * head : 4 * head + 4]
        query, key, value = parts[:, 0], parts[:, 1], parts[:, 2:]
        scores = []
        for j in range(length):
            table = layer.relative[:, i - j + length - 1]
            back = layer.relative[:, j - i + length - 1]
            three = query[i] * key[j], query[i] * table[0], key[j] * back[1]
            scores.append(sum(batch_norm(layer.norm_scores, 8 * k + head, score) for k, score in enumerate(three)))
        shares = torch.stack(scores).softmax(0)
        for channel in range(2):
            read = sum(shares[j] * value[j, channel] for j in range(length))
            place = sum(shares[j] * layer.relative[2 + channel, i - j + length - 1] for j in range(length))
            at = 2 * (2 * head + channel)
            expected[2 * head + channel, i] = batch_norm(layer.norm_out, at, read) + batch_norm(
                layer.norm_out, at + 1, place
            )
    with torch.no_grad():
        out = layer(x)
    got = out[0, :, :, 1] if axis == "column" else out[0, :, 1, :]
    torch.testing.assert_close(got, expected.detach(), rtol=1e-4, atol=1e-4)


def test_a_line_sees_itself_alone():
    layer = scramble(LineAttention(16, 4, "row")).eval()
    x = torch.randn(1, 16, 4, 4)
    other = x.clone()
    other[0, :, 2, 1] += 1
    changed = (layer(x) - layer(other)).abs().amax(dim=(0, 1)) > 1e-6
    assert changed.any(dim=1).tolist() == [False, False, True, False]
    assert changed[2].all()


def axial_resnet_params(factor, size=224, classes=1000):
    """Written down from the definition: stem, four stages of 3, 4, 6 and 3 blocks, classifier."""
    channels = int(64 * factor)
    params, length = 3 * 49 * channels + 2 * channels, size // 4
    for stage, depth in enumerate((3, 4, 6, 3)):
        width = int(128 * 2**stage * factor)
        for index in range(depth):
            line = 2 * width**2 + 4 * width + 2 * 24 + 4 * width + 2 * (width // 8) * (2 * length - 1)
            params += channels * width + 2 * width + 2 * line + 2 * width**2 + 4 * width
            if not index:
                params += 2 * channels * width + 4 * width
                length = length // 2 if stage else length
            channels = 2 * width
    return params + channels * classes + classes


@pytest.mark.parametrize(("size", "factor"), [("s", 0.5), ("m", 0.75), ("l", 1.0)])
def test_the_zoo_s_have_the_parameters_of_the_definition(size, factor):
    assert counted(f"axial_resnet50_{size}", 224)[0] == axial_resnet_params(factor)


def test_another_size_must_be_a_multiple_of_32():
    with pytest.raises(ValueError, match="48 pixels is not a multiple of 32"):
        small("axial_resnet", img_size=48)
    assert small("axial_resnet", img_size=(SIZE, 2 * SIZE))(images(width=2 * SIZE)).shape == (2, 5)


def test_its_attention_is_trained_alone_and_not_drawn():
    model = small("axial_resnet")
    set_trainable(model, "attn")
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert "layer1.0.attn.row.relative" in trained
    assert "layer1.0.conv1.weight" not in trained
    with pytest.raises(UsvitError, match="no attention layers that usvit can draw"):
        anatomy_of(model, "axial_resnet50_s")
