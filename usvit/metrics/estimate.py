"""A number with its interval, as the public statistics return it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % confidence interval.

    Attributes:
        value: the number; None if it is undefined, and then ``reason`` says why.
        ci95: (low, high), two-sided; None if there is no interval, and then ``reason`` says why.
        method: how the interval was computed; empty if the value is undefined.
        n_groups: groups (patients) that the number rests on.
        reason: why the value or the interval is missing, or why another method was used.
        warning: why the interval must be read with care, such as too few groups.
        p: two-sided p-value, of a difference only.
    """

    value: float | None
    ci95: tuple[float, float] | None
    method: str
    n_groups: int
    reason: str | None = None
    warning: str | None = None
    p: float | None = None


def estimate(value: Mapping[str, Any]) -> Estimate:
    """Convert a ``Value`` of metrics.json."""
    ci95 = value["ci95"]
    return Estimate(
        value=value["value"],
        ci95=None if ci95 is None else (ci95[0], ci95[1]),
        method=value.get("method", ""),
        n_groups=value["n_groups"],
        reason=value.get("reason"),
        warning=value.get("warning"),
        p=value.get("p"),
    )


def groups_or_images(groups: ArrayLike | None, y_true: ArrayLike) -> ArrayLike:
    """Return (n,) groups; every image is its own if ``groups`` is None."""
    return np.arange(np.size(y_true)) if groups is None else groups
