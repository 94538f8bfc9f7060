"""Operating points: thresholds that are chosen on some images and evaluated on others.

An image is called positive if its score is at least the threshold. A threshold that is chosen and evaluated on the
same images looks better than it is. Here, the threshold of a fold is chosen without its test images ("nested"), and
every fold is shown because a mean hides how the folds differ.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from usvit.errors import LeakageError
from usvit.evaluation.prediction_arrays import Rows, rows_of
from usvit.metrics.proportions import ShareInterval
from usvit.metrics.threshold_choice import RULES, Choice, Rule, choose_threshold, outcome
from usvit.records import OperatingPointRecord, PointOfFold


def operating_points(
    table: pd.DataFrame, *, positive: str, rules: Sequence[Rule] = RULES, interval: ShareInterval | None = None
) -> list[OperatingPointRecord]:
    """Choose the threshold of each rule in each fold, and evaluate it on the test images of that fold.

    The threshold of fold k comes from the inner validation images of fold k, scored by the same
    model. Those have already stopped the training, so their scores are slightly too good. If a fold has none, the
    test images of the other folds are used for every fold: no image of fold k is used, but the scores come from other
    models, each of which was trained on images of fold k.

    Args:
        table: a predictions table; rows of splits test and (if there are any) val are used. The score is
            the probability of ``positive``, against all other classes.
        positive: one of the classes.
        rules: the rules of the operating points.
        interval: computes the ``ci95`` of each proportion, with the threshold taken as given.

    Raises:
        UsvitError: see ``rows_of``; ``positive`` is not a class.
        LeakageError: a group is both among the images that choose a threshold and those it is evaluated on (not for
            fixed rules only).

    Source: Leeflang et al. (2008), Clinical Chemistry 54:729 (effect of an in-sample threshold on both figures).
    """
    test = rows_of(table, "test")
    k = test.index(positive)
    folds = [int(fold) for fold in np.unique(test.fold)]
    source, chooser = choosing_rows(table)
    if any(rule.kind != "fixed" for rule in rules):
        for fold in folds:
            refuse_leak(chooser[fold], test[test.fold == fold], fold)
    return [_operating_point(rule, source, folds, chooser, test, k, interval) for rule in rules]


def choosing_rows(table: pd.DataFrame) -> tuple[str, dict[int, Rows]]:
    """Return a description of the images that choose the thresholds, and these images for each fold.

    Raises:
        UsvitError: see ``rows_of``.
    """
    test, val = rows_of(table, "test"), rows_of(table, "val")
    folds = [int(fold) for fold in np.unique(test.fold)]
    if set(folds) <= set(val.fold.tolist()):
        return "inner validation images of the same fold", {fold: val[val.fold == fold] for fold in folds}
    return "test images of the other folds", {fold: test[test.fold != fold] for fold in folds}


def _operating_point(
    rule: Rule,
    source: str,
    folds: list[int],
    chooser: dict[int, Rows],
    test: Rows,
    k: int,
    interval: ShareInterval | None,
) -> OperatingPointRecord:
    points, called = [], np.zeros(len(test), dtype=bool)
    for fold in folds:
        rows, at = chooser[fold], test.fold == fold
        chosen_on = on_test = reached = None
        if rule.kind == "fixed":
            choice = Choice(rule.target)
        elif not len(rows):
            choice = Choice(None, "there is one fold and it has no inner validation images to choose a threshold on")
        else:
            choice = choose_threshold(rows.label == k, rows.prob[:, k], rule)
        if choice.threshold is not None:
            if rule.kind != "fixed":
                chosen_on = outcome(rows.label == k, rows.prob[:, k] >= choice.threshold, rows.group)
            called[at] = test.prob[at, k] >= choice.threshold
            on_test = outcome(test.label[at] == k, called[at], test.group[at], interval=interval)
            if rule.kind in ("sensitivity", "specificity"):
                figure = on_test.sensitivity if rule.kind == "sensitivity" else on_test.specificity
                reached = None if figure.value is None or rule.target is None else figure.value >= rule.target
        points.append(
            PointOfFold(
                fold=fold,
                threshold=choice.threshold,
                reason=choice.reason,
                chosen_on=chosen_on,
                on_test=on_test,
                target_reached=reached,
            )
        )

    without = [f"fold {point.fold}: {point.reason}" for point in points if point.reason]
    return OperatingPointRecord(
        rule=rule.name,
        source="none: fixed beforehand" if rule.kind == "fixed" else source,
        folds=points,
        pooled=None if without else outcome(test.label == k, called, test.group, interval=interval),
        reason=f"no threshold in {'; '.join(without)}" if without else None,
        n_below_target=sum(point.target_reached is False for point in points)
        if rule.kind in ("sensitivity", "specificity")
        else None,
        procedure=None,
    )


def refuse_leak(rows: Rows, judged: Rows, fold: int) -> None:
    """Raise LeakageError if a group is among the images that choose and among those that are judged."""
    both = sorted(set(rows.group.tolist()) & set(judged.group.tolist()), key=str)
    if both:
        more = f" (and {len(both) - 1} more)" if len(both) > 1 else ""
        raise LeakageError(
            f"Fold {fold}: group '{both[0]}'{more} is among both the images that choose its threshold and its "
            "test images. Split the data by group_id and predict again."
        )
