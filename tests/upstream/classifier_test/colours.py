"""A network whose answer is known: its output k is the more probable, the nearer the image's colour is to colour k.

The centres of the colours form a grid of red and green, 8 grey levels apart. With a distance of d grey levels, the
logit is -d^2 / 100 plus a constant of the image. The network is a real ViT of usvit: its patch embedding passes red
and green on, its blocks add nothing, and its head is the linear form of the squared distance.
"""

import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

from usvit.models import Weights, build_with_report, find_model

VIT = {"depth": 1, "width": 6, "heads": 1, "mlp": 4, "patch": 8, "pool": "avg"}
SIZE = 32
OPTIONS = (
    *("--set", f"model.vit={json.dumps(VIT)}", "--set", f"model.image_size={SIZE}", "--set", "views.test_crop=1.0"),
    *("--device", "cpu", "--precision", "fp32"),
)
"""For the command line: the network of ``colour_weights``."""
SOFTNESS = 100.0
_LARGE = 1000.0


def centre(k):
    """(red, green) of output k."""
    return np.array([4 + 8 * (k // 32), 4 + 8 * (k % 32)], dtype=np.float64)


def log_probabilities(red, green, n_classes, among=None):
    """(M,) by brute force: of all outputs, or of those in ``among``, for a plain image."""
    outputs = np.arange(n_classes) if among is None else np.asarray(among)
    logits = np.array([-((centre(k) - (red, green)) ** 2).sum() / SOFTNESS for k in outputs])
    return logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()


def shown(k):
    """(red, green) of an image for which the outputs k, k + 1, k + 32, k + 33, k - 32, k - 31 follow each other."""
    red, green = centre(k)
    return int(red) + 1, int(green) + 3


def put(path: Path, red, green, border=0):
    """Write a plain image of 12 x 12 pixels, inside a red border."""
    pixels = np.zeros((12 + 2 * border, 12 + 2 * border, 3), dtype=np.uint8)
    pixels[..., 0] = 255
    pixels[border : border + 12, border : border + 12] = (red, green, 0)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, "PNG")
    return path


def colour_weights(path: Path, n_classes=1000):
    """Write the weights of the network; its input is normalised with mean and standard deviation 0.5."""
    spec = find_model("vit_ti16", VIT)
    model, _ = build_with_report(spec, Weights("scratch"), n_classes=n_classes, image_size=SIZE)
    state = {key: torch.zeros_like(value) for key, value in model.state_dict().items()}
    mean = torch.full((8, 8), 1 / 64)
    for channel in (0, 1):  # tokens (r, -r, g, -g, c, -c) have mean 0 and, for a large c, a constant deviation
        state["patch_embed.proj.weight"][2 * channel, channel] = mean
        state["patch_embed.proj.weight"][2 * channel + 1, channel] = -mean
    state["patch_embed.proj.bias"][4], state["patch_embed.proj.bias"][5] = _LARGE, -_LARGE
    state["norm.weight"] += _LARGE / 3**0.5
    levels = torch.tensor(np.array([centre(k) for k in range(n_classes)]))
    ours = levels / 127.5 - 1
    scale = 127.5**2 / SOFTNESS
    state["head.weight"][:, 0], state["head.weight"][:, 2] = 2 * scale * ours[:, 0], 2 * scale * ours[:, 1]
    state["head.bias"] = (-scale * (ours**2).sum(dim=1)).float()
    save_file({key: value.float().contiguous() for key, value in state.items()}, path)
    return path
