"""Attention over the scored images of a study or patient: the result of all, and the share of each image in it.

Every image is a view, and so is every frame of a loop. Each network weighs and pools the views as in
``usvit.evaluation.attended``; the results of the networks, and their weights, are averaged as those of images are.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from usvit.evaluation import attended
from usvit.scoring.items import VIEW_WEIGHT, VIEWS, Row


@dataclass(frozen=True)
class ViewPooling:
    """How attention pools the images of a job; plain data."""

    unit_id: str
    """Column that names the unit: ``study_id`` or ``patient_id``."""
    positive: str
    k: int
    """Index of the positive class."""
    abstain: bool
    """Leave unusual images out."""

    def pool(self, rows: Iterable[Row]) -> float | None:
        """Set ``view_weight`` in the rows of one unit; their order does not matter.

        Args:
            rows: rows of the unit, with the outputs of each network in ``VIEWS`` (``Ensemble.combine``).

        Returns:
            The calibrated probability of the positive class, in [0, 1]; of a single image, its own. None if no image
            is left.
        """
        own = f"calibrated_{self.positive}"
        used = [row for row in rows if not (self.abstain and row["unusual"])]
        used.sort(key=lambda row: (-row[own], row["item_id"], row["frame"]))  # so that the sums have one order
        if len(used) < 2:
            for row in used:
                row[VIEW_WEIGHT] = 1.0
            return used[0][own] if used else None
        score = np.array([row[VIEWS]["score"] for row in used]).T  # (M, n)
        prob = np.array([row[VIEWS]["prob"] for row in used]).swapaxes(0, 1)  # (M, n, K)
        weight, pooled = attended(prob.reshape(-1, prob.shape[2]), score.ravel(), np.arange(len(score)) * len(used))
        for row, share in zip(used, weight.reshape(score.shape).mean(axis=0).tolist(), strict=True):
            row[VIEW_WEIGHT] = share
        return float(pooled[:, self.k].mean())

    def pool_all(self, rows: Iterable[Row]) -> None:
        """Set ``view_weight`` in rows of several units; an image that names none keeps an empty cell."""
        units: dict[Any, list[Row]] = {}
        for row in rows:
            units.setdefault(row[self.unit_id], []).append(row)
        for name, own in units.items():
            if name:
                self.pool(own)
