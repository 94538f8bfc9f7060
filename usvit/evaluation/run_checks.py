"""Checks of a run: its kind, and whether its recorded figures agree with its predictions.

Hashes on record (``usvit.records.integrity``) detect a file that was changed alone. Whoever
changes a file can change its hash as well. The main figures are therefore computed again, which takes milliseconds.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from usvit.errors import UsvitError
from usvit.evaluation.cross_validation_headline import fold_figures
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.predictions import classes_of, first_repeat, read_predictions
from usvit.metrics.basic import auc, decide
from usvit.metrics.cross_validation import fold_mean
from usvit.records import MainFigures, MetricsRecord, OneFigure, RunRecord, run_kinds

TOLERANCE = 1e-6
"""Tolerance for a figure in [0, 1]: far above rounding, far below one image in a million."""


def refuse_other_figures(metrics: MetricsRecord, test: pd.DataFrame, where: Path) -> None:
    """Refuse a ``metrics.json`` whose main figures differ from those of the test predictions.

    The check computes, pooled, the confusion matrix, accuracy, and the AUC, sensitivity and specificity of each class;
    accuracy and AUC of each fold with their means; and all figures of the headline. For repeated cross-validation, the
    pooled figures are those of repeat 0.

    Args:
        metrics: the content of metrics.json.
        test: the predictions of split test.
        where: path of metrics.json for the error text.

    Raises:
        UsvitError: a figure differs; the first one is named.
    """
    classes = metrics.classes
    code, decided, prob = _arrays(first_repeat(test), classes)
    counts = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(counts, (code, decided), 1)
    order = [classes.index(name) for name in metrics.confusion.labels]
    if metrics.confusion.counts != counts[np.ix_(order, order)].tolist():
        raise _differs(where, "confusion.counts")
    found: dict[str, float | None] = {"accuracy": float((code == decided).mean())}
    for k, name in enumerate(classes):
        right = counts[k, k]
        found[f"auc.{name}_vs_rest"] = auc(code == k, prob[:, k])
        found[f"sensitivity.{name}"] = _share(right, counts[k].sum())
        found[f"specificity.{name}"] = _share(
            len(code) - counts[k].sum() - counts[:, k].sum() + right, len(code) - counts[k].sum()
        )
    for key, value in found.items():
        _compare(_figure(metrics.pooled, key).value, value, where, f"pooled.{key}")
    told = {one.fold: one for one in metrics.folds}
    if set(told) != set(test["fold"].tolist()):
        raise _differs(where, "folds")
    for fold, own in told.items():
        code, decided, prob = _arrays(test[test["fold"] == fold], classes)
        _compare(own.accuracy.value, float((code == decided).mean()), where, f"folds.{fold}.accuracy")
        for k, name in enumerate(classes):
            key = f"auc.{name}_vs_rest"
            _compare(_figure(own, key).value, auc(code == k, prob[:, k]), where, f"folds.{fold}.{key}")
    for key in ("accuracy", *(f"auc.{name}_vs_rest" for name in classes)):
        each = [value for one in metrics.folds if (value := _figure(one, key).value) is not None]
        _compare(_figure(metrics.mean_sd, key).mean, float(np.mean(each)) if each else None, where, f"mean_sd.{key}")
    _refuse_other_headline(metrics, test, where)


def _refuse_other_headline(metrics: MetricsRecord, test: pd.DataFrame, where: Path) -> None:
    rows = rows_of(test, "test", every_repeat=True)
    for name, repeats in fold_figures(rows, rows.index(metrics.positive_class)).items():
        mean = fold_mean(repeats)
        _compare(getattr(metrics.headline, name).value, None if mean is None else mean.value, where, f"headline.{name}")


def refuse_other_pool(run: Path, test: pd.DataFrame) -> None:
    """Refuse a run whose pooled predictions differ from those of its folds.

    Args:
        run: the folder of the run; folds without their own table are skipped.
        test: the rows of split test of ``predictions.csv``.

    Raises:
        UsvitError: the predictions of a fold differ; its table is named.
    """
    numbers = [f"prob_{name}" for name in classes_of(test)]
    key = ["dataset", "image_id"]
    for fold, pooled in test.groupby("fold"):
        path = run / f"fold-{fold}" / "predictions.csv"
        if not path.exists():
            continue
        own = read_predictions(path)
        own = own[own["part"] == "test"]
        if not {*numbers, "label"} <= {*own.columns} or not _sorted(own, key, numbers).equals(
            _sorted(pooled, key, numbers)
        ):
            raise UsvitError(
                f"{run / 'predictions.csv'} does not hold the predictions of {path}: one of the two was changed. "
                "Restore both from the original run."
            )


def refuse_upstream(run: Path, record: RunRecord, what: str, *, but: tuple[str, ...] = ()) -> None:
    """Refuse a run such as those of ``usvit pretrain``, ``transfer`` and ``test`` if predictions in folds are needed.

    Args:
        run: folder of the run, as the user named it.
        record: content of run.json.
        what: what the run cannot be used for, such as "A report".
        but: kinds that are accepted.

    Raises:
        UsvitError: the run is of another kind; the text says where its figures are.
    """
    kind = run_kinds()[record.kind]
    if record.kind in but or kind.of_folds:
        return
    start = f": start one from it with --weights {run}" if kind.gives_weights else ""
    evaluated = " 'usvit evaluate' and 'usvit compare' read its predictions." if kind.has_predictions else ""
    raise UsvitError(
        f"{run} is a run of usvit {record.kind}. {what} needs a run of usvit cv or train{start}. Its own page is "
        f"report.html, its figures are in {kind.figures}.{evaluated}"
    )


def _sorted(table: pd.DataFrame, key: list[str], numbers: list[str]) -> pd.DataFrame:
    return table[[*key, "label", *numbers]].astype({"label": str}).sort_values(key).reset_index(drop=True)


def _arrays(rows: pd.DataFrame, classes: list[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return reference class and decision as (n,) int, and (n, K) probabilities."""
    prob = rows[[f"prob_{name}" for name in classes]].to_numpy(np.float64)
    return rows["label"].map({name: k for k, name in enumerate(classes)}).to_numpy(np.int64), decide(prob), prob


def _share(part: int, whole: int) -> float | None:
    return float(part / whole) if whole else None


def _figure(figures: MainFigures[OneFigure], key: str) -> OneFigure:
    """Return the figure that a key such as ``accuracy`` or ``auc.malignant_vs_rest`` names."""
    first, _, of = key.partition(".")
    return figures.figure(first, of.removesuffix("_vs_rest"))


def _compare(told: float | None, found: float | None, where: Path, key: str) -> None:
    if (told is None) != (found is None) or (told is not None and found is not None and abs(told - found) > TOLERANCE):
        raise _differs(where, key, told, found)


def _differs(where: Path, key: str, told: float | None = None, found: float | None = None) -> UsvitError:
    values = "" if told is None or found is None else f" ({told:.4g} there, {found:.4g} from the predictions)"
    return UsvitError(
        f"{where} was not made from predictions.csv: {key} differs{values}. One of the two was changed after the run. "
        f"Restore both, or measure the predictions again: usvit evaluate {where.parent} --out FOLDER."
    )
