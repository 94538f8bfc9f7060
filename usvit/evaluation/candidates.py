"""Several models on the same images and folds, and means of them: figures for a nested choice."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.estimate import Estimate
from usvit.evaluation.cross_validation_headline import figures_of_fold, headline_section
from usvit.evaluation.pooled_figures import figures_with_intervals
from usvit.evaluation.prediction_arrays import Rows, rows_of
from usvit.metrics.bootstrap import FigureValues
from usvit.metrics.checks import group_codes
from usvit.metrics.fold_figures import FoldFigure

Float = NDArray[np.float64]
Members = Sequence[tuple[int, ...]]
"""For each fold, the candidates whose probabilities are averaged."""

_ORDER = ["fold", "dataset", "image_id"]


class CandidateScores:
    """Predictions of C candidates for the same inner validation and test images of the same F folds.

    Args:
        tables: their predictions tables, with the same rows of the splits val and test.
        positive: the positive class.
        figure: a figure of ``cross_validation_headline.HEADLINE``.
    """

    def __init__(self, tables: Sequence[pd.DataFrame], positive: str, figure: str):
        self.positive, self.figure = positive, figure
        tables = [table.sort_values(_ORDER, kind="stable", ignore_index=True) for table in tables]
        self._first = tables[0]
        classes = rows_of(tables[0], "test").classes
        self._rows = {part: rows_of(tables[0], part, classes, every_repeat=True) for part in ("val", "test")}
        self._prob = {
            part: np.stack([rows_of(table, part, classes, every_repeat=True).prob for table in tables])
            for part in self._rows
        }
        groups = np.concatenate([rows.group for rows in self._rows.values()])
        code, self._n_groups = group_codes(groups, len(groups))
        n_val = len(self._rows["val"])
        self._code = {"val": code[:n_val], "test": code[n_val:]}
        test = self._rows["test"]
        self.folds: list[int] = np.unique(test.fold).tolist()
        self.repeat: list[int] = [int(test.repeat[test.fold == fold][0]) for fold in self.folds]

    def __len__(self) -> int:
        return len(self._prob["test"])

    def of(self, *candidates: int) -> Members:
        """Return the mean of some candidates, the same in all folds."""
        return [candidates] * len(self.folds)

    def figures(self, part: str, members: Members) -> list[FoldFigure | None]:
        """Compute the figure of a mean of candidates in each fold, with the contributions of all groups.

        Args:
            part: ``val`` or ``test``.
            members: the candidates of each fold.
        """
        rows, code = self._rows[part], self._code[part]
        prob = self._mean(part, members)
        found: list[FoldFigure | None] = []
        for fold in self.folds:
            at = rows.fold == fold
            own = Rows(rows.classes, rows.label[at], prob[at], prob[at], rows.group[at], rows.fold[at], rows.repeat[at])
            if not at.any():
                found.append(None)
                continue
            k = rows.index(self.positive)
            found.append(figures_of_fold(own, code[at], self._n_groups, k, (self.figure,))[self.figure])
        return found

    def value(self, members: Members) -> Estimate:
        """Compute the mean figure on the test images with its interval, as the headline of a run."""
        table = self._first[[name for name in self._first if not str(name).startswith("logit_")]].copy()
        classes = self._rows["test"].classes
        for part in ("val", "test"):
            at = (table["part"] == part).to_numpy()
            prob = self._mean(part, members)
            for k, name in enumerate(classes):
                table.loc[at, f"prob_{name}"] = prob[:, k]
        pooled = FigureValues()
        if len(self.folds) == 1:  # a hold-out has no other headline
            rows = rows_of(table, "test", classes)
            pooled = figures_with_intervals(
                rows.label, rows.prob, rows.group, classes=classes, positive=self.positive, ranked=False
            )
        value: Estimate = getattr(headline_section(table, self.positive, pooled), self.figure)
        return value

    def _mean(self, part: str, members: Members) -> Float:
        rows, prob = self._rows[part], self._prob[part]
        mean = np.empty_like(prob[0])
        for fold, own in zip(self.folds, members, strict=True):
            at = rows.fold == fold
            mean[at] = prob[list(own)][:, at].mean(axis=0)
        return mean
