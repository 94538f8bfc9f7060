"""Reference networks of the foundation models' published layouts, in plain torch, from the published descriptions.

Each takes the tensors of a file under the authors' names and an image, and returns the vector that the authors' own
network hands to its head. Nothing of usvit or timm is used.
"""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

State = dict[str, Tensor]


def _norm(x: Tensor, state: State, name: str, eps: float) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], state[f"{name}.weight"], state[f"{name}.bias"], eps)


def _linear(x: Tensor, state: State, name: str) -> Tensor:
    return x @ state[f"{name}.weight"].T + state[f"{name}.bias"]


def _heads(x: Tensor, heads: int) -> Tensor:
    """(B, N, D) -> (B, heads, N, D / heads)."""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | float = 0.0) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]) + bias
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def _patches(image: Tensor, kernel: Tensor, bias: Tensor | None) -> Tensor:
    """Cut the image into patches, row by row, and project each."""
    side = kernel.shape[-1]
    cut = image.unfold(2, side, side).unfold(3, side, side)  # (B, 3, h, w, side, side)
    flat = cut.permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)
    return flat @ kernel.flatten(1).T + (0 if bias is None else bias)


def _with_class_token(tokens: Tensor, *first: Tensor) -> Tensor:
    return torch.cat([one.expand(len(tokens), -1, -1) for one in first] + [tokens], dim=1)


def _mlp(x: Tensor, state: State, first: str, second: str, approximate: str = "none") -> Tensor:
    return _linear(F.gelu(_linear(x, state, first), approximate=approximate), state, second)


def plain_vit(state: State, image: Tensor, heads: int, final: str) -> Tensor:
    """A ViT with learned or fixed positions whose patches are averaged, then normalised: TinyUSFM and MAE's encoder."""
    x = _patches(image, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"])
    x = _with_class_token(x, state["cls_token"]) + state["pos_embed"]
    depth = len({key.split(".")[1] for key in state if key.startswith("blocks.")})
    for layer in range(depth):
        name = f"blocks.{layer}"
        qkv = _linear(_norm(x, state, f"{name}.norm1", 1e-6), state, f"{name}.attn.qkv")
        q, k, v = (_heads(part, heads) for part in qkv.chunk(3, dim=-1))
        x = x + _linear(_attend(q, k, v), state, f"{name}.attn.proj")
        x = x + _mlp(_norm(x, state, f"{name}.norm2", 1e-6), state, f"{name}.mlp.fc1", f"{name}.mlp.fc2")
    return _norm(x[:, 1:].mean(1), state, final, 1e-6)


def usfm(state: State, image: Tensor, heads: int) -> Tensor:
    """BEiT's network with one table of relative positions for all layers, as in the released file of USFM."""
    x = _patches(image, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"])
    side = math.isqrt(x.shape[1])
    bias = _relative(state["rel_pos_bias.relative_position_bias_table"], side)
    x = _with_class_token(x, state["cls_token"])
    for layer in range(sum(key.endswith("gamma_1") for key in state)):
        name = f"blocks.{layer}"
        y = _norm(x, state, f"{name}.norm1", 1e-6) @ state[f"{name}.attn.qkv.weight"].T
        q, k, v = y.chunk(3, dim=-1)
        q, v = q + state[f"{name}.attn.q_bias"], v + state[f"{name}.attn.v_bias"]
        attended = _attend(_heads(q, heads), _heads(k, heads), _heads(v, heads), bias)
        x = x + state[f"{name}.gamma_1"] * _linear(attended, state, f"{name}.attn.proj")
        y = _mlp(_norm(x, state, f"{name}.norm2", 1e-6), state, f"{name}.mlp.fc1", f"{name}.mlp.fc2")
        x = x + state[f"{name}.gamma_2"] * y
    return _norm(x[:, 1:].mean(1), state, "fc_norm", 1e-6)


def _relative(table: Tensor, side: int) -> Tensor:
    """Bias (heads, N, N) of each pair of tokens: its rows are the offsets, then class->patch, patch->class, class."""
    n = side * side
    index = torch.empty(n + 1, n + 1, dtype=torch.long)
    for a in range(n):
        for b in range(n):
            down, right = a // side - b // side, a % side - b % side
            index[a + 1, b + 1] = (down + side - 1) * (2 * side - 1) + right + side - 1
    index[0, :], index[:, 0], index[0, 0] = len(table) - 3, len(table) - 2, len(table) - 1
    return table[index].permute(2, 0, 1)


def dinov3(state: State, image: Tensor, heads: int) -> Tensor:
    """DINOv3 of its authors: register tokens, axial rotary positions of the patches, no bias of keys, class token."""
    kernel = state["patch_embed.proj.weight"]
    rows, columns = (side // kernel.shape[-1] for side in image.shape[2:])
    x = _patches(image, kernel, state["patch_embed.proj.bias"])
    x = _with_class_token(x, state["cls_token"], state["storage_tokens"])
    before = x.shape[1] - rows * columns
    y, z = ((torch.arange(n) + 0.5) / n * 2 - 1 for n in (rows, columns))
    at = torch.stack(torch.meshgrid(y, z, indexing="ij"), -1).flatten(0, 1)  # (N, 2)
    angles = (2 * math.pi * at[:, :, None] / state["rope_embed.periods"]).flatten(1).tile(2)

    def turned(t: Tensor) -> Tensor:
        own, rest = t[:, :, :before], t[:, :, before:]
        half = torch.cat([-rest.chunk(2, -1)[1], rest.chunk(2, -1)[0]], -1)
        return torch.cat([own, rest * angles.cos() + half * angles.sin()], 2)

    for layer in range(sum(key.endswith("ls1.gamma") for key in state)):
        name = f"blocks.{layer}"
        bias = state[f"{name}.attn.qkv.bias"] * state[f"{name}.attn.qkv.bias_mask"]
        qkv = _norm(x, state, f"{name}.norm1", 1e-5) @ state[f"{name}.attn.qkv.weight"].T + bias
        q, k, v = (_heads(part, heads) for part in qkv.chunk(3, dim=-1))
        y = _linear(_attend(turned(q), turned(k), v), state, f"{name}.attn.proj")
        x = x + state[f"{name}.ls1.gamma"] * y
        y = _mlp(_norm(x, state, f"{name}.norm2", 1e-5), state, f"{name}.mlp.fc1", f"{name}.mlp.fc2")
        x = x + state[f"{name}.ls2.gamma"] * y
    return _norm(x, state, "norm", 1e-5)[:, 0]


def perception_encoder(state: State, image: Tensor, heads: int) -> Tensor:
    """PE core: class token, absolute and rotary positions, a norm before the blocks, pooling by a query (8 heads)."""
    state = {key.removeprefix("visual."): value for key, value in state.items() if key.startswith("visual.")}
    kernel = state["conv1.weight"]
    x = _patches(image, kernel, None)
    side = math.isqrt(x.shape[1])
    x = _with_class_token(x, state["class_embedding"][None, None]) + state["positional_embedding"]
    x = _norm(x, state, "ln_pre", 1e-5)
    width = x.shape[-1] // heads // 2  # of each axis
    speed = 10000 ** -(torch.arange(0, width, 2).double() / width)
    line = (torch.arange(side).double() + 1)[:, None] * speed  # the class token is at (0, 0)
    line = line.repeat_interleave(2, -1)
    across, down = line.expand(side, side, width), line[:, None].expand(side, side, width)
    angles = torch.cat([across, down], -1).flatten(0, 1)
    angles = torch.cat([torch.zeros(1, 2 * width), angles]).to(x.dtype)

    def turned(t: Tensor) -> Tensor:
        a, b = t[..., ::2], t[..., 1::2]
        return t * angles.cos() + torch.stack([-b, a], -1).flatten(-2) * angles.sin()

    for layer in range(sum(key.endswith("ln_1.weight") for key in state)):
        name = f"transformer.resblocks.{layer}"
        y = _norm(x, state, f"{name}.ln_1", 1e-5)
        qkv = y @ state[f"{name}.attn.in_proj_weight"].T + state[f"{name}.attn.in_proj_bias"]
        q, k, v = (_heads(part, heads) for part in qkv.chunk(3, dim=-1))
        x = x + _linear(_attend(turned(q), turned(k), v), state, f"{name}.attn.out_proj")
        x = x + _mlp(_norm(x, state, f"{name}.ln_2", 1e-5), state, f"{name}.mlp.c_fc", f"{name}.mlp.c_proj")
    x = _norm(x, state, "ln_post", 1e-5)
    weights, biases = (state[f"attn_pool.attn.in_proj_{kind}"].chunk(3) for kind in ("weight", "bias"))
    given = (state["attn_pool.probe"].expand(len(x), -1, -1), x, x)
    q, k, v = (_heads(t @ w.T + b, 8) for t, w, b in zip(given, weights, biases, strict=True))
    x = _linear(_attend(q, k, v), state, "attn_pool.attn.out_proj")
    x = x + _mlp(_norm(x, state, "attn_pool.layernorm", 1e-5), state, "attn_pool.mlp.c_fc", "attn_pool.mlp.c_proj")
    return x[:, 0]


def siglip2(arrays: State, image: Tensor, heads: int) -> Tensor:
    """big_vision's image network of SigLIP 2, with flax's axes: pre-norm blocks, tanh GELU, MAP pooling."""
    state = {key.removeprefix("params/img/"): value for key, value in arrays.items() if key.startswith("params/img/")}

    def dense(x: Tensor, name: str) -> Tensor:
        return x @ state[f"{name}/kernel"] + state[f"{name}/bias"]

    def norm(x: Tensor, name: str) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], state[f"{name}/scale"], state[f"{name}/bias"], 1e-6)

    def attention(q: Tensor, x: Tensor, name: str) -> Tensor:
        q, k, v = (
            torch.einsum("bnd,dhe->bhne", t, state[f"{name}/{part}/kernel"]) + state[f"{name}/{part}/bias"][:, None]
            for t, part in ((q, "query"), (x, "key"), (x, "value"))
        )
        mixed = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).softmax(-1) @ v
        return torch.einsum("bhne,hed->bnd", mixed, state[f"{name}/out/kernel"]) + state[f"{name}/out/bias"]

    def mlp(x: Tensor, name: str) -> Tensor:
        return dense(F.gelu(dense(x, f"{name}/Dense_0"), approximate="tanh"), f"{name}/Dense_1")

    x = _patches(image, state["embedding/kernel"].permute(3, 2, 0, 1), state["embedding/bias"]) + state["pos_embedding"]
    assert state["Transformer/encoderblock_0/MultiHeadDotProductAttention_0/query/bias"].shape[0] == heads
    for layer in range(sum(key.endswith("LayerNorm_1/scale") for key in state)):
        name = f"Transformer/encoderblock_{layer}"
        y = norm(x, f"{name}/LayerNorm_0")
        x = x + attention(y, y, f"{name}/MultiHeadDotProductAttention_0")
        x = x + mlp(norm(x, f"{name}/LayerNorm_1"), f"{name}/MlpBlock_0")
    x = norm(x, "Transformer/encoder_norm")
    probe = state["MAPHead_0/probe"].expand(len(x), -1, -1)
    x = attention(probe, x, "MAPHead_0/MultiHeadDotProductAttention_0")
    return (x + mlp(norm(x, "MAPHead_0/LayerNorm_0"), "MAPHead_0/MlpBlock_0"))[:, 0]
