"""How many folds of a run are trained at the same time, and with how many threads each.

Threads of one training wait for each other many times in a step, which costs more the busier the machine is; processes
that train one fold each do not wait. But the folds rarely divide evenly among the cores, and the last ones would leave
cores idle. Therefore the folds of an incomplete last round get more threads each.

The number of threads changes the last digits of a result on a CPU. It depends on the machine and on the configuration
only, not on the load, and ``run.json`` keeps it, so that a resumed run continues with the same numbers.
"""

from collections.abc import Sequence

from usvit.resources import total_memory

PARALLEL_SHARE = 0.8
"""Share of a training that more threads make faster (Amdahl's law). It only decides between schedules."""
LEAST_IMAGES = 1000
"""Training images (steps times batch size) of a fold from which a process of its own is worth its start of seconds."""
PROCESS_BYTES, PARAMETER_BYTES = 4 * 10**9, 16
"""Memory that is reckoned for each process, and for each parameter: float32 weights, gradients, and two moments."""


def most_at_once(n_parameters: int) -> int:
    """Return the number of trainings that the memory of the machine holds, at least 1."""
    memory = total_memory()
    return 1000 if memory is None else max(1, memory // (PROCESS_BYTES + PARAMETER_BYTES * n_parameters))


def best_at_once(n_folds: int, cores: int, most: int) -> int:
    """Return the number of folds at the same time that takes the least time, by Amdahl's law.

    Args:
        n_folds: Number of folds.
        cores: Number of threads that may compute at the same time.
        most: Largest number to return.
    """

    def time_of(threads: int) -> float:
        return 1 - PARALLEL_SHARE + PARALLEL_SHARE / threads

    def time_with(at_once: int) -> float:
        rounds, rest = divmod(n_folds, at_once)
        return rounds * time_of(cores // at_once) + (time_of(cores // rest) if rest else 0)

    return min(range(1, max(1, min(n_folds, cores, most)) + 1), key=time_with)


def threads_of_folds(n_folds: int, cores: int, at_once: int) -> list[int]:
    """Return the number of threads of each fold: those of a round share the cores.

    Example:
        >>> threads_of_folds(5, cores=4, at_once=2)
        [2, 2, 2, 2, 4]
    """
    rest = n_folds % at_once
    return [
        max(1, cores // (rest if rest and fold >= n_folds - rest else min(at_once, n_folds))) for fold in range(n_folds)
    ]


def at_once_by_threads(threads: Sequence[int], cores: int, most: int) -> int:
    """Return how many of the folds that are left may run at the same time without waiting for a core."""
    return max(1, min(len(threads), cores // min(threads), most))
