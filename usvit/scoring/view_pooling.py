"""Pooling of the scored images of a file, study or patient by another rule than their mean or highest.

Every image is a view, and so is every frame of a loop. Each network pools the views as in ``usvit.evaluation``, on
whose units the threshold was chosen; the results of the networks, and the weights of attention, are averaged as those
of images are. With a calibration, whose thresholds were chosen on the mean of the networks, this mean is pooled, by
attention with the mean weights.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from usvit.evaluation import attended, pooled_prob
from usvit.models import ViewAttention
from usvit.scoring.items import VIEW_WEIGHT, VIEWS, Row
from usvit.scoring.outputs import Float


@dataclass(frozen=True)
class ViewPooling:
    """How the images of a job are pooled."""

    unit_id: str
    """Column that names the unit: ``item_id``, ``study_id`` or ``patient_id``."""
    positive: str
    k: int
    """Index of the positive class."""
    abstain: bool
    """Leave unusual images out."""
    pooling: str = "attention"
    """``attention``, ``max``, ``top-K`` or ``noisy-or``."""
    attentions: tuple[ViewAttention, ...] = ()
    """That of each network, for ``attention``; on the CPU."""

    def pool(self, rows: Iterable[Row]) -> float | None:
        """Pool the rows of one unit, and set their ``view_weight`` for attention; their order does not matter.

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
            if self.attentions:
                for row in used:
                    row[VIEW_WEIGHT] = 1.0
            return used[0][own] if used else None
        prob = np.array([row[VIEWS]["prob"] for row in used]).swapaxes(0, 1)  # (P, n, K); P is M, or 1 if calibrated
        start = np.arange(len(prob)) * len(used)
        if self.attentions:
            score = self._scores(used)
            weight, _ = attended(np.zeros((score.size, 1)), score.ravel(), np.arange(len(score)) * len(used))
            mean = weight.reshape(score.shape).mean(axis=0)
            for row, share in zip(used, mean.tolist(), strict=True):
                row[VIEW_WEIGHT] = share
            score = score if len(prob) == len(score) else np.log(mean)[None]
            pooled = attended(prob.reshape(-1, prob.shape[2]), score.ravel(), start)[1]
        else:
            order = np.argsort(-prob[..., self.k], axis=1, kind="stable")[..., None]
            prob = np.take_along_axis(prob, order, axis=1)
            pooled = pooled_prob(prob.reshape(-1, prob.shape[2]), start, self.pooling, self.k)
        return float(pooled[:, self.k].mean())

    def pool_all(self, rows: Iterable[Row]) -> None:
        """Pool rows of several units; an image that names none keeps an empty weight."""
        units: dict[Any, list[Row]] = {}
        for row in rows:
            units.setdefault(row[self.unit_id], []).append(row)
        for name, own in units.items():
            if name:
                self.pool(own)

    @torch.inference_mode()
    def _scores(self, rows: list[Row]) -> Float:
        """Return the (M, n) score of each of the n views of a unit by each network."""
        described = torch.tensor([row[VIEWS]["described"] for row in rows])  # (n, M, E) float32
        unit = torch.zeros(len(rows), dtype=torch.int64)
        scores = [one.scores(described[:, m], unit) for m, one in enumerate(self.attentions)]
        return np.asarray(torch.stack(scores).double().numpy())
