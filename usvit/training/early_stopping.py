"""Early stopping, and the best evaluation of a training."""

import math
from dataclasses import dataclass

from usvit.config import EarlyStoppingConfig


@dataclass
class EarlyStopping:
    """Follows one figure of the inner validation split over a training."""

    config: EarlyStoppingConfig
    best_step: int = 0
    """Step of the best evaluation; 0 before the first."""
    best_value: float | None = None
    without_better: int = 0
    """Number of evaluations since the best one."""

    def update(self, step: int, value: float | None) -> bool:
        """Record an evaluation; return whether it is the best so far. None, NaN and ties are never the best."""
        lower_is_better = self.config.monitor == "val_loss"
        better = (
            value is not None
            and not math.isnan(value)
            and (self.best_value is None or (value < self.best_value if lower_is_better else value > self.best_value))
        )
        if better:
            self.best_step, self.best_value, self.without_better = step, value, 0
        else:
            self.without_better += 1
        return better

    @property
    def should_stop(self) -> bool:
        return self.config.patience is not None and self.without_better >= self.config.patience

    def state(self) -> dict[str, float | int | None]:
        return {
            "best_step": self.best_step,
            "best_value": self.best_value,
            "without_better": self.without_better,
        }

    def load(self, state: dict[str, float | int | None]) -> None:
        for key, value in state.items():
            setattr(self, key, value)
