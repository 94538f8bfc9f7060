"""How many folds of a run are trained at the same time on a CPU, and with how many threads each.

Threads of one training wait for each other many times in a step, and the longer the busier the machine is; processes
that train one fold each do not wait. So the folds share the cores, unless too many of them would be idle in the last
round.

The number of threads changes the last digits of a result on a CPU. It depends on the machine and on the configuration
only, not on the load, and ``run.json`` keeps it, so that a resumed run continues with the same number.
"""

import sys

from usvit.resources import total_memory

PARALLEL_SHARE = 0.8
"""Share of a training that more threads make faster (Amdahl's law). It only decides between schedules."""
LEAST_IMAGES = 1000
"""Fewest training images (steps times batch size) of a fold that is trained in a separate process. With fewer, the
seconds that a process takes to start are longer than what it saves."""
PROCESS_BYTES, PARAMETER_BYTES = 4 * 10**9, 16
"""Memory that is estimated for each process, and for each parameter: float32 weights, gradients, and two moments."""


def most_at_once(n_parameters: int) -> int:
    """Return the number of trainings that the memory of the machine holds, at least 1."""
    memory = total_memory()
    return sys.maxsize if memory is None else max(1, memory // (PROCESS_BYTES + PARAMETER_BYTES * n_parameters))


def best_at_once(n_folds: int, cores: int, most: int) -> int:
    """Return the number of folds at the same time that takes the least time by Amdahl's law; of equal ones the largest.

    Args:
        n_folds: Number of folds.
        cores: Number of threads that may compute at the same time.
        most: Largest number to return.

    Example:
        >>> best_at_once(5, cores=16, most=100)
        5
    """

    def time_with(at_once: int) -> float:
        rounds = -(-n_folds // at_once)
        return rounds * (1 - PARALLEL_SHARE + PARALLEL_SHARE / (cores // at_once))

    largest = max(1, min(n_folds, cores, most))
    return min(range(largest, 0, -1), key=lambda at_once: round(time_with(at_once), 9))
