"""Small networks and plans for the tests of masked prediction."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from usvit.models.architectures.vit import ViT
from usvit.models.zoo import find_model
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.pretraining.task import TaskContext

STEMS = ("linear", "hmlp_bn", "hmlp_ln")


def tiny_vit(**options: Any) -> ViT:
    """4 x 4 patches of 8 pixels, width 16, two layers; seeded."""
    shape: dict[str, Any] = {"width": 16, "depth": 2, "mlp": 32, "heads": 2, "patch": 8, "img_size": 32}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        network = ViT(**(shape | {"num_classes": 3} | options))
        for parameter in network.parameters():  # zero biases and unit scales would hide errors
            nn.init.normal_(parameter, std=0.3)
    return network


@dataclass(frozen=True)
class Normalised:
    """Stored pixels to the network's input, and nothing else."""

    mean: tuple[float, float, float] = (0.4, 0.5, 0.6)
    std: tuple[float, float, float] = (0.2, 0.25, 0.3)

    def __call__(self, images: torch.Tensor, seeds: torch.Tensor) -> torch.Tensor:
        mean, std = torch.tensor(self.mean), torch.tensor(self.std)
        return ((images.float() / 255 - mean) / std).permute(0, 3, 1, 2)


def plan(**config: Any) -> TaskContext:
    return TaskContext(
        config=PretrainConfig.model_validate(config),
        spec=find_model("vit_ti16"),
        n_classes=0,
        n_images=100,
        inputs=Normalised(),
        device=torch.device("cpu"),
    )


def batch(size: int = 4, side: int = 32, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {
        "images": torch.randint(0, 256, (size, side, side, 3), generator=generator, dtype=torch.uint8),
        "seeds": torch.randint(0, 2**62, (size,), generator=generator),
    }
