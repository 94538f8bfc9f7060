"""AxialResNet: a ResNet-50 with axial attention (Dosovitskiy et al. 2021, appendix D.6, Fig. 13; Wang et al. 2020).

"All the convolutions with kernel size 3 x 3 in a ResNet50 are replaced by axial self-attention, i.e. a row and column
attention, augmented by relative positional encoding." The paper does not define the rest: no width, no equation of the
positions, no place of the strides. It says that its implementation is based on the public PyTorch code of Wang et al.
2020 (Axial-DeepLab), whose definitions are used here:

    s_ij = BN(q_i . k_j) + BN(q_i . r^q_(i-j)) + BN(k_j . r^k_(j-i))
    y_i  = BN(sum_j softmax_j(s_ij) v_j) + BN(sum_j softmax_j(s_ij) r^v_(i-j))

for the positions i, j of one line. There are 8 heads, each with half as many channels for q and k as for v. A block is
1 x 1 convolution, attention along the columns, attention along the rows, 1 x 1 convolution, which doubles the channels.
A stride is an average pooling after the rows. The convolutional stem stays.
"""

from collections import OrderedDict
from typing import Any, Literal

import torch
from timm.layers import DropPath, SelectAdaptivePool2d, to_2tuple
from timm.models import build_model_with_cfg, checkpoint_seq, generate_default_cfgs, register_model
from torch import Tensor, nn

from usvit.models.architectures.cfg import untrained

HEADS = 8
_EXPANSION = 2


class LineAttention(nn.Module):
    """Position-sensitive attention along one axis: (B, D, H, W) -> (B, D, H, W).

    Args:
        width: Number of channels D, a multiple of 16.
        length: Number of positions L of a line, H or W.
        axis: ``column``: along H; ``row``: along W.

    Raises:
        ValueError: If the width is not a multiple of 16.
    """

    def __init__(self, width: int, length: int, axis: Literal["column", "row"]):
        super().__init__()
        if width % (2 * HEADS):
            raise ValueError(f"axial attention with {HEADS} heads needs a width that is a multiple of 16, not {width}")
        self.length, self.axis = length, axis
        by_head = width // HEADS
        self.split = (by_head // 2, by_head // 2, by_head)
        self.qkv = nn.Conv1d(width, 2 * width, 1, bias=False)
        self.norm_qkv = nn.BatchNorm1d(2 * width)
        self.norm_scores = nn.BatchNorm2d(3 * HEADS)
        self.norm_out = nn.BatchNorm1d(2 * width)
        self.relative = nn.Parameter(torch.empty(2 * by_head, 2 * length - 1))
        nn.init.normal_(self.qkv.weight, std=width**-0.5)
        nn.init.normal_(self.relative, std=by_head**-0.5)

    def forward(self, x: Tensor) -> Tensor:
        lines = x.permute(0, 3, 1, 2) if self.axis == "column" else x.permute(0, 2, 1, 3)  # (B, lines, D, L)
        n_images, n_lines = lines.shape[:2]
        qkv = self.norm_qkv(self.qkv(lines.flatten(0, 1))).unflatten(1, (HEADS, -1))
        query, key, value = qkv.split(self.split, dim=2)  # (B * lines, heads, channels, L)
        place = torch.arange(self.length, device=x.device)
        tables = self.relative[:, place[:, None] - place + self.length - 1]  # (channels, L, L)
        of_query, of_key, of_value = tables.split(self.split, dim=0)
        scores = torch.cat(
            [
                torch.einsum("bhci,bhcj->bhij", query, key),
                torch.einsum("bhci,cij->bhij", query, of_query),
                torch.einsum("bhcj,cji->bhij", key, of_key),
            ],
            dim=1,
        )
        shares = self.norm_scores(scores).unflatten(1, (3, HEADS)).sum(1).softmax(dim=-1)
        read = torch.einsum("bhij,bhcj->bhci", shares, value)
        places = torch.einsum("bhij,cij->bhci", shares, of_value)
        out = self.norm_out(torch.stack([read, places], dim=3).flatten(1, 3)).unflatten(1, (-1, 2)).sum(2)
        out = out.unflatten(0, (n_images, n_lines))  # (B, lines, D, L)
        return out.permute(0, 2, 3, 1) if self.axis == "column" else out.permute(0, 2, 1, 3)


class _AxialBottleneck(nn.Module):
    """Residual block, (B, C, H, W) -> (B, 2 D, H / stride, W / stride).

    Args:
        channels: Number of input channels C.
        width: Number of channels D of the attention.
        grid: H, W.
        stride: 1 or 2.
        drop_path: Rate of stochastic depth, in [0, 1).
    """

    def __init__(self, channels: int, width: int, grid: tuple[int, int], stride: int, drop_path: float):
        super().__init__()
        out = _EXPANSION * width
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.attn = nn.Sequential(
            OrderedDict(column=LineAttention(width, grid[0], "column"), row=LineAttention(width, grid[1], "row"))
        )
        self.pool = nn.AvgPool2d(stride) if stride > 1 else nn.Identity()
        self.conv2 = nn.Conv2d(width, out, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.act = nn.ReLU(inplace=True)
        self.drop_path = DropPath(drop_path) if drop_path else nn.Identity()
        self.downsample: nn.Module = nn.Identity()
        if stride > 1 or channels != out:
            self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.act(self.pool(self.attn(self.act(self.bn1(self.conv1(x))))))
        return self.act(self.drop_path(self.bn2(self.conv2(inner))) + self.downsample(x))


class AxialResNet(nn.Module):
    """Network from images (B, C, S, S) to logits (B, K); its features are (B, 2048 factor, S/32, S/32).

    Args:
        factor: Factor of all widths: 0.5 (S), 0.75 (M) or 1 (L) in the public code. With 1 the last stage has the
            2,048 channels of a ResNet-50.
        layers: Number of blocks in each of the four stages.
        img_size: Side S, or (height, width), in pixels; a multiple of 32. The tables of relative positions have its
            size, so weights of another size do not fit.
        in_chans: Number of channels C.
        num_classes: Number of classes K. With 0 there is no classifier, and the output is (B, D).
        global_pool: Pooling of the features, as in timm.
        drop_path_rate: Rate of stochastic depth of the last block, in [0, 1); it grows linearly from 0.
        drop_rate: Rate of dropout before the classifier.

    Raises:
        ValueError: If the image side is not a multiple of 32, or a width not one of 16.
    """

    def __init__(
        self,
        *,
        factor: float = 0.5,
        layers: tuple[int, ...] = (3, 4, 6, 3),
        img_size: int | tuple[int, int] = 224,
        in_chans: int = 3,
        num_classes: int = 1000,
        global_pool: str = "avg",
        drop_path_rate: float = 0.0,
        drop_rate: float = 0.0,
    ):
        super().__init__()
        height, width = to_2tuple(img_size)
        for side in (height, width):
            if side % 32 or side < 32:
                raise ValueError(f"the image side of {side} pixels is not a multiple of 32")
        channels = int(64 * factor)
        self.num_classes, self.grad_checkpointing = num_classes, False
        self.conv1 = nn.Conv2d(in_chans, channels, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.act1 = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        rates = torch.linspace(0, drop_path_rate, sum(layers), device="cpu").tolist()
        self.feature_info: list[dict[str, object]] = []
        grid = (height // 4, width // 4)
        for stage, depth in enumerate(layers):
            blocks = []
            for index in range(depth):
                stride = 2 if stage and not index else 1
                blocks.append(_AxialBottleneck(channels, int(128 * 2**stage * factor), grid, stride, rates.pop(0)))
                channels, grid = _EXPANSION * int(128 * 2**stage * factor), (grid[0] // stride, grid[1] // stride)
            self.add_module(f"layer{stage + 1}", nn.Sequential(*blocks))
            self.feature_info.append({"module": f"layer{stage + 1}", "num_chs": channels, "reduction": 4 * 2**stage})
        self.num_features = self.head_hidden_size = channels
        self.global_pool = SelectAdaptivePool2d(pool_type=global_pool, flatten=True)
        self.head_drop = nn.Dropout(drop_rate)
        self.fc = nn.Linear(channels, num_classes) if num_classes else nn.Identity()
        self._start_weights()

    def _start_weights(self) -> None:
        """Initialise convolutions as ResNets do; every block begins as its shortcut (Goyal et al. 2017)."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(module, _AxialBottleneck):
                nn.init.zeros_(module.bn2.weight)

    def forward_features(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        for info in self.feature_info:
            stage: Any = self.get_submodule(str(info["module"]))
            x = checkpoint_seq(stage, x) if self.grad_checkpointing else stage(x)
        return x

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Map (B, D, H, W) to logits (B, K); with ``pre_logits``, to the classifier's input (B, D)."""
        x = self.head_drop(self.global_pool(x))
        return x if pre_logits else self.fc(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def get_classifier(self) -> nn.Module:
        return self.fc

    def reset_classifier(self, num_classes: int, global_pool: str | None = None) -> None:
        """Replace the classifier."""
        if global_pool not in (None, "", "avg"):
            raise ValueError(f"an AxialResNet pools by the mean, and cannot use '{global_pool}' pooling")
        self.num_classes = num_classes
        self.fc = nn.Linear(self.num_features, num_classes).to(self.bn1.weight) if num_classes else nn.Identity()

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        self.grad_checkpointing = enable

    def no_weight_decay(self) -> set[str]:
        return {name for name, _ in self.named_parameters() if name.endswith(".relative")}

    def group_matcher(self, coarse: bool = False) -> dict[str, object]:
        """Return timm's groups for layer-wise rates: the stem, then each block."""
        return {"stem": r"^conv1|^bn1", "blocks": r"^layer(\d+)" if coarse else r"^layer(\d+)\.(\d+)"}


default_cfgs = generate_default_cfgs({"usvit_axial_resnet.untrained": untrained("conv1", "fc")})


@register_model
def usvit_axial_resnet(pretrained: bool = False, **options: Any) -> AxialResNet:
    """Build an AxialResNet-50, by default S; ``options`` are those of ``AxialResNet``."""
    return build_model_with_cfg(
        AxialResNet,
        "usvit_axial_resnet",
        pretrained,
        feature_cfg={"out_indices": (0, 1, 2, 3), "feature_cls": "hook"},
        **options,
    )
