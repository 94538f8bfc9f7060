"""Compare the optimizers' step with that of PyTorch's other implementations: one update of all parameters.

    python -m benchmarks.optimizer_step --model vit_b32 resnet50

``fused`` is what usvit uses, ``default`` what PyTorch chooses on a CPU by itself. The implementations take turns.
"""

import argparse
import statistics
import time

import torch

from usvit.config import OptimConfig
from usvit.models import create_model
from usvit.training.optimizers import make_optimizer

IMPLEMENTATIONS = {"fused": True, "default": False}


def measure(model: str, name: str, rounds: int) -> dict[str, float]:
    """Return the median seconds of a step of each implementation."""
    network = create_model(model, n_classes=3)
    for parameter in network.parameters():
        parameter.grad = 1e-3 * torch.randn_like(parameter)
    optimizers = {}
    for implementation, fused in IMPLEMENTATIONS.items():
        config = OptimConfig.model_validate({"name": name, "lr": 1e-4})
        optimizers[implementation] = make_optimizer(network, config)
        for group in optimizers[implementation].param_groups:
            group["fused"] = fused
        optimizers[implementation].step()  # makes the moments
    seconds: dict[str, list[float]] = {implementation: [] for implementation in optimizers}
    for _ in range(rounds):
        for implementation, optimizer in optimizers.items():
            begun = time.perf_counter()
            optimizer.step()
            seconds[implementation].append(time.perf_counter() - begun)
    return {implementation: statistics.median(times) for implementation, times in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", nargs="+", default=["vit_b32", "resnet50"])
    parser.add_argument("--optimizer", nargs="+", choices=("sgd", "adam", "adamw"), default=["sgd", "adamw"])
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    for model in options.model:
        for name in options.optimizer:
            found = measure(model, name, options.rounds)
            told = ", ".join(f"{implementation} {1000 * one:.0f} ms" for implementation, one in found.items())
            print(f"{model} {name}: {told}, ratio {found['default'] / found['fused']:.2f}", flush=True)


if __name__ == "__main__":
    main()
