"""Grad-CAM and occlusion against closed forms."""

import numpy as np
import pytest
import torch
from torch import nn

from tests.explaining.conftest import SMALL_SHAPE, SMALL_SWIN, TRANSFORMERS, network, pictures, transformer
from usvit.errors import UsvitError
from usvit.explaining import saliency
from usvit.explaining.saliency import grad_cam, occlusion


class ByHand(nn.Module):
    """Features are two channels of the image; the score of class 1 is 2 x the mean of the first - 1 x of the second."""

    num_features = 2

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2, bias=False)
        self.head.weight.data = torch.tensor([[-2.0, 1.0], [2.0, -1.0]])

    def forward_features(self, x):
        return x[:, :2]

    def forward_head(self, x):
        return self.head(x.mean((2, 3)))

    def forward(self, x):
        return self.forward_head(self.forward_features(x))


def test_grad_cam_of_a_network_made_by_hand():
    """Its gradients are w_k / (H W), so the map is ReLU(sum_k w_k A_k) / (H W)."""
    image = pictures(6, 1)
    first, second = image[0, 0], image[0, 1]
    cam, layer = grad_cam(ByHand().eval(), image, 1, "by hand")
    assert layer == "features" and torch.allclose(cam, (2 * first - second).relu() / 36, atol=1e-6)
    other, _ = grad_cam(ByHand().eval(), image, 0, "by hand")
    assert torch.allclose(other, (second - 2 * first).relu() / 36, atol=1e-6)


OTHERS = {
    "resnet50": ("resnet50", {}),
    "attention pooling": ("usvit_resnet50_attn", {"layers": (1, 1, 1, 1)}),
    "patchconvnet": ("usvit_patchconvnet", {"width": 16, "depth": 1}),
    "resmlp": ("resmlp_12_224", {"img_size": 64}),
    "swin": ("swin_tiny_patch4_window7_224", SMALL_SWIN | {"img_size": 64, "window_size": 4}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*TRANSFORMERS, *OTHERS])
def test_grad_cam_lies_on_the_networks_grid_and_leaves_the_network_as_it_was(kind):
    if kind in TRANSFORMERS:
        model, images, _ = transformer(kind)
        grid = tuple(model.patch_embed.grid_size)
    else:
        name, options = OTHERS[kind]
        model, images, grid = network(name, **options), pictures(64), None
    with torch.no_grad():
        before = model(images)
    cams = [grad_cam(model, images[:1], index, kind)[0] for index in range(3)]
    assert grid is None or cams[0].shape == grid
    assert all(cam.min() >= 0 for cam in cams) and max(cam.max() for cam in cams) > 0
    with torch.no_grad():
        assert torch.equal(model(images), before) and not model.training
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("kind", ["vit_ti16", "distilled", "registers", "r_ti16"])
def test_grad_cam_of_a_transformer_is_that_of_its_last_normalised_patches(kind):
    """By PyTorch's own gradients, without MONAI."""
    model, images, n_prefix = transformer(kind)
    kept = []
    handle = model.blocks[-1].norm1.register_forward_hook(lambda module, inputs, output: kept.append(output))
    score = model(images[:1])[0, 2]
    handle.remove()
    (gradient,) = torch.autograd.grad(score, kept[0])
    patches, slope = kept[0][0, n_prefix:], gradient[0, n_prefix:]
    by_hand = (patches @ slope.mean(0)).relu().view(model.patch_embed.grid_size)
    cam, layer = grad_cam(model, images[:1], 2, kind)
    assert layer == "blocks.1.norm1" and torch.allclose(cam, by_hand, rtol=1e-3, atol=1e-7)


def test_grad_cam_of_a_grid_that_is_no_square_keeps_its_rows():
    model = network("usvit_vit", img_size=(32, 64), **SMALL_SHAPE)
    image = torch.randn(1, 3, 32, 64, generator=torch.Generator().manual_seed(0))
    assert grad_cam(model, image, 0, "wide")[0].shape == (2, 4)


def test_grad_cam_of_frozen_weights():
    model = network("resnet10t")
    model.requires_grad_(False)
    assert max(grad_cam(model, pictures(64, 1), index, "frozen")[0].max() for index in range(3)) > 0


def test_a_head_of_zeros_gives_a_map_of_zeros():
    model = network("resnet10t")
    nn.init.zeros_(model.fc.weight)
    assert grad_cam(model, pictures(64, 1), 0, "zero")[0].max() == 0


def test_without_monai_grad_cam_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(saliency, "find_spec", lambda name: None)
    with pytest.raises(UsvitError, match=r"pip install 'usvit\[explain\]'"):
        grad_cam(ByHand(), pictures(6, 1), 0, "by hand")


def test_a_network_without_a_map_of_features_is_sent_to_occlusion():
    with pytest.raises(UsvitError, match="--method occlusion"):
        grad_cam(network("levit_128s"), pictures(224, 1), 0, "levit")


class Spot(nn.Module):
    """The more of the square at (0..4, 8..12) is white, the surer of class 1."""

    def forward(self, x):
        bright = x[:, 0, 0:4, 8:12].mean((1, 2))
        return torch.stack([torch.zeros_like(bright), bright], dim=1)


def test_occlusion_finds_the_only_spot_that_counts():
    image = torch.zeros(1, 3, 28, 28)
    image[:, :, 0:4, 8:12] = 4.0
    lost = occlusion(Spot().eval(), image, 1)
    assert lost.shape == (28, 28) and lost.max() > 0.2
    row, column = np.unravel_index(int(lost.argmax()), (28, 28))
    assert row < 4 and 8 <= column < 12
    assert (lost[8:].abs() < 1e-6).all() and (lost[:, 16:].abs() < 1e-6).all()  # no square covers both
    assert torch.allclose(occlusion(Spot().eval(), image, 0), -lost, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("size", [5, 30, 33])
def test_occlusion_covers_images_of_any_size(size):
    lost = occlusion(network("resnet10t").eval(), pictures(size + 27, 1), 0)
    assert lost.shape == (size + 27, size + 27) and torch.isfinite(lost).all()
