"""Timing steps so that the number can be trusted: warm-up, the device waited for, a median with its spread."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

Step = Callable[[], object]

MIN_WARMUP = 2
"""Steps at least: the first allocates, chooses kernels, and, compiled, compiles."""
WARMUP_SECONDS = {"cpu": 0.5, "cuda": 1.0}
"""And at least this long: clocks rise under load."""
_WARMUP_SHARE = 0.25
"""Of the time limit, at most (after one step): a slow network on a slow machine still gets a number."""


@dataclass
class Timing:
    """Seconds of each step that counts."""

    times: Mapping[str, list[float]]
    warmup: int = 0
    first: Mapping[str, float] = field(default_factory=dict)
    """Of each step's very first run."""

    @property
    def repeats(self) -> int:
        return min(len(times) for times in self.times.values())

    def summary(self, name: str) -> dict[str, float]:
        """Median, extremes and quartiles in seconds; the mean too, which is what the papers print."""
        times = self.times[name]
        q1, median, q3 = np.percentile(times, [25, 50, 75]).tolist()
        return {
            "seconds_median": median,
            "seconds_min": min(times),
            "seconds_q1": q1,
            "seconds_q3": q3,
            "seconds_mean": float(np.mean(times)),
        }


def time_steps(
    steps: Mapping[str, Step],
    *,
    device: str,
    repeats: int,
    seconds: float,
    compiled: bool = False,
    compiled_now: Callable[[], None] = lambda: None,
    warm_now: Callable[[], None] = lambda: None,
) -> Timing:
    """Run steps in turns and time each.

    They take turns, in an order that alternates, so that a machine that grows slower or faster meets all.

    Args:
        steps: name -> one step; all on ``device``.
        device: ``cpu`` or ``cuda``; a GPU is waited for before each look at the clock.
        repeats: of each step, unless time runs out.
        seconds: after which no other round is begun (one is run in any case); the very first run of each step
            is not counted where it compiles.
        compiled: whether the very first runs compile.
        compiled_now: called when they are over.
        warm_now: called when the warm-up is over.
    """
    begun = time.perf_counter()
    first = {name: _seconds(step, device) for name, step in steps.items()}
    compiled_now()
    if compiled:
        begun = time.perf_counter()

    def since() -> float:
        return time.perf_counter() - begun

    rounds = 1
    while rounds < MIN_WARMUP or since() < min(WARMUP_SECONDS[device], seconds):
        if since() > _WARMUP_SHARE * seconds:
            break
        for step in steps.values():
            _seconds(step, device)
        rounds += 1
    warm_now()

    times: dict[str, list[float]] = {name: [] for name in steps}
    names = list(steps)
    longest = 0.0
    for number in range(repeats):
        if number and since() + longest > seconds:
            break
        turn = time.perf_counter()
        for name in names if number % 2 else reversed(names):
            times[name].append(_seconds(steps[name], device))
        longest = max(longest, time.perf_counter() - turn)
    return Timing(times, rounds, first)


def _seconds(step: Step, device: str) -> float:
    """Wall time of one step, the device's own work included."""
    _wait(device)
    begun = time.perf_counter()
    step()
    _wait(device)
    return time.perf_counter() - begun


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
