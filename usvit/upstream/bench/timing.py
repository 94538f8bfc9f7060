"""Timing of steps with warm-up and device synchronization; the result is a median with its spread."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import torch

Step = Callable[[], object]

_MIN_WARMUP = 2
"""Minimum number of warm-up steps: the first one allocates memory, chooses kernels and compiles."""
_WARMUP_SECONDS = {"cpu": 0.5, "cuda": 1.0}
"""Minimum duration of the warm-up, because clocks rise under load."""
_WARMUP_SHARE = 0.25
"""Largest share of the time limit for the warm-up after one step, so that slow networks get a result, too."""


@dataclass
class Timing:
    """Times of the steps in seconds."""

    times: Mapping[str, list[float]]
    warmup: int = 0
    first: Mapping[str, float] = field(default_factory=dict)
    """Seconds of each step's first run."""

    @property
    def repeats(self) -> int:
        return min(len(times) for times in self.times.values())

    def summary(self, name: str) -> dict[str, float]:
        """Return median, minimum, quartiles and mean in seconds; the papers print the mean."""
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
    """Time steps in turns.

    The order alternates, so that a machine that becomes slower or faster affects all steps equally.

    Args:
        steps: name -> step; all on ``device``.
        device: ``cpu`` or ``cuda``. A GPU is synchronized before each reading of the clock.
        repeats: number of runs of each step, unless the time limit is reached.
        seconds: time limit after which no further round starts; one round always runs. If the first runs compile, they
            do not count.
        compiled: whether the first runs compile.
        compiled_now: called after the first runs.
        warm_now: called after the warm-up.
    """
    begun = time.perf_counter()
    first = {name: _seconds(step, device) for name, step in steps.items()}
    compiled_now()
    if compiled:
        begun = time.perf_counter()

    def since() -> float:
        return time.perf_counter() - begun

    rounds = 1
    while rounds < _MIN_WARMUP or since() < min(_WARMUP_SECONDS[device], seconds):
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
    """Return the wall time of one step, including the work of the device."""
    _wait(device)
    begun = time.perf_counter()
    step()
    _wait(device)
    return time.perf_counter() - begun


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
