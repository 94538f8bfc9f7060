"""The state of a training besides its weights and its optimizer."""

import time
from dataclasses import dataclass, field

import torch

from usvit.training.early_stopping import EarlyStopping
from usvit.training.running_loss import RunningLoss

HistoryRow = dict[str, float | None]
"""A row of ``history.csv``: column -> value."""


@dataclass
class TrainState:
    """Everything that changes from step to step and that a checkpoint stores beside weights and optimizer."""

    best: EarlyStopping
    losses: RunningLoss
    step: int = 0
    """Number of finished steps."""
    training_seconds: float = 0.0
    """Seconds spent on training steps, including the time that they wait for batches."""
    history: list[HistoryRow] = field(default_factory=list)
    """One row per evaluation."""
    best_weights: dict[str, torch.Tensor] = field(default_factory=dict)
    """The weights of the best evaluation, on the CPU; empty before the first evaluation."""
    earlier_seconds: float = 0.0
    """Wall time of the processes that ran this training before; 0 unless it was resumed."""
    started: float = field(default_factory=time.monotonic)
    """Time at which this process started its first step."""

    @property
    def seconds(self) -> float:
        """Wall time of the training loop, including evaluations and the processes before a resumption."""
        return self.earlier_seconds + time.monotonic() - self.started
