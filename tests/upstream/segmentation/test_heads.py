"""Heads against the public implementations, written down again here with plain functions and the same weights."""

import pytest
import torch
from monai.losses import DiceCELoss
from torch.nn import functional as F

from usvit.errors import UsvitError
from usvit.models import Weights, build_model, find_model
from usvit.upstream.config.segment import SegmentConfig
from usvit.upstream.segmentation.heads import LinearMasks, MaskTransformer, Pyramid, UPerNet
from usvit.upstream.segmentation.network import IGNORED, dense_loss, make_segmenter


@pytest.fixture(autouse=True)
def _seed():
    torch.manual_seed(0)


def maps_of(channels, side=24):
    return [torch.randn(2, width, side // 2**level, side // 2**level) for level, width in enumerate(channels)]


def shaken(module):
    """Weights and running statistics that no default hides."""
    with torch.no_grad():
        for one in [*module.parameters(), *module.buffers()]:
            if one.is_floating_point():
                one.copy_(one + 0.1 * torch.rand_like(one))
    return module.eval()


def upernet(state, maps):
    """UPerHead of mmsegmentation 1.2 (psp_forward, _forward_feature, cls_seg), align_corners=False, in evaluation."""

    def conv_module(x, name, padding):
        x = F.conv2d(x, state[f"{name}.0.weight"], padding=padding)
        norm = (state[f"{name}.1.{one}"] for one in ("running_mean", "running_var", "weight", "bias"))
        return F.relu(F.batch_norm(x, *norm))

    def resize(x, size):
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)

    last = maps[-1]
    psp = [last]
    for i, scale in enumerate((1, 2, 3, 6)):
        pooled = F.adaptive_avg_pool2d(last, scale)
        psp.append(resize(conv_module(pooled, f"pools.{i}.1", 0), last.shape[2:]))
    laterals = [conv_module(x, f"lateral.{i}", 0) for i, x in enumerate(maps[:-1])]
    laterals.append(conv_module(torch.cat(psp, dim=1), "bottleneck", 1))
    levels = len(laterals)
    for i in range(levels - 1, 0, -1):
        laterals[i - 1] = laterals[i - 1] + resize(laterals[i], laterals[i - 1].shape[2:])
    outs = [conv_module(laterals[i], f"smooth.{i}", 1) for i in range(levels - 1)] + [laterals[-1]]
    for i in range(levels - 1, 0, -1):
        outs[i] = resize(outs[i], outs[0].shape[2:])
    feats = conv_module(torch.cat(outs, dim=1), "fuse", 1)
    return F.conv2d(feats, state["classify.1.weight"], state["classify.1.bias"])


def mask_transformer(state, x, grid, n_classes, heads):
    """MaskTransformer of github.com/rstrudel/segmenter, in evaluation; x has the shape (B, N, C)."""

    def linear(x, name):
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    def layer_norm(x, name):
        return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], 1e-5)

    x = linear(x, "project")
    x = torch.cat((x, state["tokens"].expand(x.size(0), -1, -1)), 1)
    depth = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("blocks."))
    for i in range(depth):
        b, n, c = x.shape
        qkv = linear(layer_norm(x, f"blocks.{i}.norm1"), f"blocks.{i}.attn.qkv")
        q, k, v = qkv.reshape(b, n, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        attn = (q @ k.transpose(-2, -1) * (c // heads) ** -0.5).softmax(dim=-1)
        x = x + linear((attn @ v).transpose(1, 2).reshape(b, n, c), f"blocks.{i}.attn.proj")
        y = F.gelu(linear(layer_norm(x, f"blocks.{i}.norm2"), f"blocks.{i}.mlp.fc1"))
        x = x + linear(y, f"blocks.{i}.mlp.fc2")
    x = layer_norm(x, "norm")
    patches, cls_seg_feat = x[:, :-n_classes], x[:, -n_classes:]
    patches = patches @ state["of_cells"]
    cls_seg_feat = cls_seg_feat @ state["of_classes"]
    patches = patches / patches.norm(dim=-1, keepdim=True)
    cls_seg_feat = cls_seg_feat / cls_seg_feat.norm(dim=-1, keepdim=True)
    masks = layer_norm(patches @ cls_seg_feat.transpose(1, 2), "mask_norm")
    return masks.permute(0, 2, 1).unflatten(2, grid)


def test_upernet_is_that_of_mmsegmentation():
    channels = (8, 16, 24, 32)
    head, maps = shaken(UPerNet(channels, 5, width=12)), maps_of(channels)
    assert torch.allclose(head(maps), upernet(head.state_dict(), maps), atol=1e-5)


def test_the_mask_transformer_is_that_of_segmenter():
    head = shaken(MaskTransformer((128,), 4, depth=3)).double()  # the last norm enlarges small differences
    x = torch.randn(2, 128, 5, 7, dtype=torch.float64)
    expected = mask_transformer(head.state_dict(), x.flatten(2).transpose(1, 2), (5, 7), 4, heads=2)
    assert torch.allclose(head([x]), expected, atol=1e-5)


def test_a_linear_head_is_a_linear_map_of_the_channels_of_a_cell():
    head, (x,) = LinearMasks((6,), 3), maps_of((6,))
    expected = torch.einsum("kc,bchw->bkhw", head.classify.weight[:, :, 0, 0], x) + head.classify.bias[:, None, None]
    assert torch.allclose(head([x]), expected, atol=1e-5)


def test_the_pyramid_of_a_plain_vit_has_four_strides():
    assert [one.shape[-1] for one in Pyramid(8)([torch.randn(1, 8, 7, 7)] * 4)] == [28, 14, 7, 4]


NETWORKS = ["usvit_small", "timm:test_vit", "timm:test_convnext", "timm:test_resnet", "patchconvnet_s60"]


@pytest.mark.parametrize("head", ["linear", "segmenter", "upernet", "unet"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_head_gives_logits_of_the_size_of_the_image(head, name):
    network = build_model(find_model(name), Weights("scratch"), n_classes=3, image_size=160)
    settings = SegmentConfig(width=8, channels=(4, 8))
    module = make_segmenter(network, head, 3, 160, settings, name)
    module(torch.randn(2, 3, 160, 160)).mean().backward()
    trained = [one.grad for one in module.decoder.parameters()]
    assert trained and all(one is not None for one in trained)
    with torch.no_grad():
        assert module.eval()(torch.randn(1, 3, 160, 160)).shape == (1, 3, 160, 160)


def test_the_loss_is_that_of_monai_for_each_image():
    logits, labels = torch.randn(3, 4, 8, 8), torch.randint(0, 4, (3, 8, 8))
    monai = DiceCELoss(softmax=True, to_onehot_y=True)
    assert dense_loss(logits, labels, "dice_ce") == pytest.approx(3 * float(monai(logits, labels[:, None])), rel=1e-5)
    assert dense_loss(logits, labels, "ce") == pytest.approx(3 * float(F.cross_entropy(logits, labels)), rel=1e-5)


def test_pixels_that_do_not_count_have_no_gradient():
    logits, labels = torch.randn(2, 3, 8, 8, requires_grad=True), torch.randint(0, 3, (2, 8, 8))
    labels[:, :4] = IGNORED
    dense_loss(logits, labels, "dice_ce").backward()
    assert not logits.grad[:, :, :4].any() and logits.grad[:, :, 4:].any()
    assert dense_loss(logits, torch.full_like(labels, IGNORED), "ce") == 0


def test_what_cannot_be_built_is_told():
    settings = SegmentConfig()
    with pytest.raises(UsvitError, match="the model plain does not expose any"):
        make_segmenter(torch.nn.Linear(1, 1), "linear", 2, 64, settings, "plain")
    with pytest.raises(UsvitError, match=r"model\.image_size=72 is no multiple of 16"):
        make_segmenter(None, "unet", 2, 72, settings, "")
