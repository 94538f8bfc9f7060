"""The readings of each reader: which case in which session, stage and order."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from usvit.reviewing.settings import ReviewSettings, Stage


@dataclass(frozen=True)
class PlannedReading:
    """One case that one reader reads in one stage."""

    case: int
    """Number of the case, from 0; the first ones are the training cases."""
    session: int
    """From 1."""
    stage: Stage
    training: bool = False
    repeat: bool = False
    """Whether the reader has read the case in this stage before."""


def plan_readings(settings: ReviewSettings, reader: int, n_cases: int) -> list[PlannedReading]:
    """Plan the readings of a reader, in their order.

    Readers 2k and 2k + 1 read in opposite orders, so that no case is early or late for all readers. In a crossover,
    they also begin with the model on opposite halves of the cases. Training cases come first; cases that are read twice
    come again at the end of the first session, in a new order.

    Args:
        settings: the study.
        reader: number of the reader, from 0.
        n_cases: number of cases, training cases included.

    Example:
        >>> source = {"run": "runs/x"}
        >>> study = ReviewSettings.model_validate({"design": "sequential", "source": source})
        >>> [(one.case, one.stage) for one in plan_readings(study, 0, 2)]
        [(0, 'unaided'), (0, 'aided'), (1, 'unaided'), (1, 'aided')]
    """
    if n_cases < settings.training:
        raise ValueError(f"{n_cases} cases are fewer than the {settings.training} training cases")
    training = range(settings.training)
    cases = np.arange(settings.training, n_cases)
    of_study = np.random.default_rng([settings.seed, 1])
    half = {int(one) for one in of_study.permutation(cases)[: len(cases) // 2]}
    twice = {int(one) for one in of_study.permutation(cases)[: settings.repeats]}

    def order(session: int) -> list[int]:
        drawn = np.random.default_rng([settings.seed, 2, reader // 2, session]).permutation(cases).tolist()
        return drawn[::-1] if reader % 2 else drawn

    def stages(case: int, session: int) -> Sequence[Stage]:
        if settings.design != "crossover":
            return settings.stages
        aided = (case in half) == ((session + reader) % 2 == 1)
        return ("aided",) if aided else ("unaided",)

    n_sessions = 2 if settings.design == "crossover" else 1
    plan = [
        PlannedReading(case, 1, stage, training=True)
        for case in training
        for stage in (settings.stages if settings.design != "crossover" else ("aided",))
    ]
    for session in range(1, n_sessions + 1):
        plan += [PlannedReading(case, session, stage) for case in order(session) for stage in stages(case, session)]
        if session == 1:
            again = [case for case in order(n_sessions + 1) if case in twice]
            plan += [PlannedReading(case, 1, stage, repeat=True) for case in again for stage in stages(case, 1)]
    return plan
