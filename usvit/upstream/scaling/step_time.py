"""Time of training steps on this machine, from which the time of a sweep is estimated."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from usvit.models import Weights, build_model, find_model
from usvit.training import torch_threads
from usvit.upstream.scaling.shapes import NetworkShape, ShapeRule

_PROBE_FLOPS = 2e10
"""Largest FLOPs of a measured step: larger batches are cut, and larger networks are not measured."""
_REPEATS = 3


@dataclass(frozen=True)
class StepTime:
    """Seconds of a training step as a fixed part and a part in proportion to its FLOPs."""

    fixed: float
    per_flop: float

    def seconds(self, flops_per_step: float) -> float:
        return self.fixed + self.per_flop * flops_per_step


def measure_step_time(rule: ShapeRule, shapes: Sequence[NetworkShape], batch_size: int) -> StepTime | None:
    """Time forward and backward passes of the cheapest and the dearest network on one thread of the CPU.

    Reading of images, the optimizer and evaluation are not included.

    Returns:
        None if one image of the cheapest network takes more than ``_PROBE_FLOPS`` operations, as for networks that are
        meant for accelerators.
    """
    small = [shape for shape in set(shapes) if rule.flops(shape) <= _PROBE_FLOPS]
    if not small:
        return None
    cheapest, dearest = (pick(small, key=rule.flops) for pick in (min, max))
    with torch_threads(1):
        points = [_seconds(rule, shape, batch_size) for shape in dict.fromkeys((cheapest, dearest))]
    (few, fast), (many, slow) = points[0], points[-1]
    slope = max(0.0, (slow - fast) / (many - few)) if many > few else fast / few
    return StepTime(max(0.0, fast - slope * few), slope)


def _seconds(rule: ShapeRule, shape: NetworkShape, batch_size: int) -> tuple[float, float]:
    """Return the FLOPs of a step and its shortest time, for a batch that is cut to ``_PROBE_FLOPS``."""
    per_image = rule.flops(shape)
    batch = max(1, min(batch_size, int(_PROBE_FLOPS / per_image)))
    spec = find_model(rule.model, rule.settings(shape))
    model = build_model(spec, Weights("scratch"), n_classes=10, image_size=rule.image_size)
    images = torch.zeros(batch, 3, rule.image_size, rule.image_size)
    times = []
    for _ in range(1 + _REPEATS):  # the first step allocates memory
        start = time.perf_counter()
        model(images).sum().backward()
        times.append(time.perf_counter() - start)
    return float(per_image * batch), min(times[1:])
