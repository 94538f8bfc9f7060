"""Paired comparison of two models on the same images.

The headline asks whether the training procedure is better: the mean difference of AUCs within folds, with a variance
that counts groups and accounts for the training images that folds share (``cross_validation_headline``). The second
test takes the predictions of these models as given: the difference of AUCs on the pooled rows
(``clustered.clustered_difference``). The others compare decisions (McNemar, of one fold only), or use only the folds as
the sample (Nadeau and Bengio). With several pairs, each test needs Holm's correction.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from usvit.errors import UsvitError, unknown
from usvit.estimate import Difference
from usvit.evaluation.cross_validation_headline import corrected_difference
from usvit.evaluation.predictions import check_predictions, classes_of, first_repeat, repeats_of
from usvit.metrics.basic import auc, decide
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.intervals import undefined
from usvit.metrics.multiclass import multiclass_difference
from usvit.metrics.paired_tests import McNemarMethod, corrected_t, mcnemar
from usvit.records import PairedTests

_NO_MCNEMAR = (
    "McNemar's test takes the models as given and rejects equal ways of training too often; see the difference of "
    "accuracies"
)


def fold_ratio(fold: np.ndarray, n_images: int) -> float:
    """Return test images over training images, mean over folds, if all images that are not tested are trained on.

    Args:
        fold: (n,) int, the fold of each test image of all repeats; of one fold alone nothing uses the ratio.
        n_images: images of one repeat.
    """
    sizes = np.unique(fold, return_counts=True)[1]
    return float((sizes / np.maximum(n_images - sizes, 1)).mean())


def paired_tables(a: pd.DataFrame, b: pd.DataFrame, names: tuple[str, str] = ("A", "B")) -> tuple[pd.DataFrame, ...]:
    """Return the test rows of two predictions tables in the same order.

    Returns:
        Two tables of n rows, sorted by (dataset, image_id, repeat), the same image of the same repeat in the same row.

    Raises:
        UsvitError: a table fails ``check_predictions`` or has no row of split test; the classes, the images, a label,
            a group or a fold differ: models that were tested on different images or trained on different folds cannot
            be compared in pairs. The first image is named.
    """
    key = ["dataset", "image_id"]
    if ("repeat" in a) != ("repeat" in b):
        raise UsvitError(
            f"{names[0]} and {names[1]} cannot be compared: one is a repeated cross-validation, the other is not. "
            "Run both with the same --repeats and the same folds file."
        )
    tests = []
    for table, name in ((a, names[0]), (b, names[1])):
        check_predictions(table, f"The predictions of {name}")
        test = table[table["part"] == "test"]
        test = test.sort_values([*key, *(["repeat"] if "repeat" in test else [])], kind="stable").reset_index(drop=True)
        if test.empty:
            raise UsvitError(f"The predictions of {name} have no row of part test: there is nothing to compare.")
        tests.append(test)
    one, other = tests
    pair = f"{names[0]} and {names[1]}"
    if sorted(classes_of(one)) != sorted(classes_of(other)):
        raise UsvitError(
            f"{pair} cannot be compared: their classes are {', '.join(classes_of(one))} and "
            f"{', '.join(classes_of(other))}."
        )
    images = [set(map(tuple, test[key].to_numpy().tolist())) for test in tests]
    lonely = sorted(images[0] ^ images[1])
    if lonely:
        raise UsvitError(
            f"{pair} cannot be compared in pairs: {len(lonely)} images were tested in one of them only, such as "
            f"{'/'.join(lonely[0])}. Run both on the same images."
        )
    if not np.array_equal(repeats_of(one), repeats_of(other)):
        raise UsvitError(f"{pair} cannot be compared in pairs: they have different repeats. Run both with the same.")
    for column, what in (("label", "labels"), ("group_id", "groups"), ("fold", "folds")):
        differs = one[column].to_numpy() != other[column].to_numpy()
        if differs.any():
            row = int(differs.argmax())
            raise UsvitError(
                f"{pair} cannot be compared in pairs: their {what} differ in {int(differs.sum())} images, such as "
                f"{one['dataset'][row]}/{one['image_id'][row]} ('{one[column][row]}' and '{other[column][row]}'). "
                "Run both with the same folds file."
            )
    return one, other


def compare_tables(
    a: pd.DataFrame,
    b: pd.DataFrame,
    *,
    positive: str,
    names: tuple[str, str] = ("A", "B"),
    ratio: float | None = None,
) -> PairedTests:
    """Compare model A with model B (A minus B) from their predictions of the same images in the same folds.

    Args:
        a, b: predictions tables; only rows of part test count.
        positive: the class that the AUC is about.
        names: names of the two models.
        ratio: n_test / n_train, for Nadeau and Bengio's t; None takes ``fold_ratio``.

    Returns:
        Five answers, the first of which is the headline:
        "headline": as ``corrected_difference``, positive against the rest, within the folds of all repeats;
        "auc" and "auc_macro_ovr": Estimate of the pooled rows of the first repeat, clustered;
        "mcnemar": as ``mcnemar``, on the first repeat, clustered if a group has several images, otherwise mid-p. With
        several folds it has no p, but a reason: the accuracy is tested fold by fold (``decision_comparison``);
        "auc_over_folds": as ``corrected_t``, over the folds of all repeats in which both AUCs are defined, with
        "n_skipped"; null with a reason if there is no such fold or only one fold.

    Raises:
        UsvitError: as ``paired_tables``; or ``positive`` is not a class.
    """
    folds_a, folds_b = paired_tables(a, b, names)
    one, other = first_repeat(folds_a), first_repeat(folds_b)
    classes = classes_of(one)
    if positive not in classes:
        raise unknown("positive class", positive, classes)
    columns = [f"prob_{name}" for name in classes]
    label = one["label"].map({name: k for k, name in enumerate(classes)}).to_numpy(np.int64)
    group = one["group_id"].to_numpy(object)
    prob_a, prob_b = one[columns].to_numpy(np.float64), other[columns].to_numpy(np.float64)
    k, n_groups = classes.index(positive), len(set(group.tolist()))
    method: McNemarMethod = "clustered" if n_groups < len(group) else "mid-p"
    macro = multiclass_difference(label, prob_a, prob_b, group, positive=k)
    counts = mcnemar(decide(prob_a) == label, decide(prob_b) == label, group, method=method)
    if len(np.unique(folds_a["fold"])) > 1:
        counts = counts.model_copy(update={"p": None, "reason": _NO_MCNEMAR})
    return PairedTests(
        a=names[0],
        b=names[1],
        headline=corrected_difference(_with_inner(folds_a, a), _with_inner(folds_b, b), positive),
        auc=Difference.of(clustered_difference(label == k, prob_a[:, k], prob_b[:, k], group)),
        auc_macro_ovr=Difference.of(macro),
        mcnemar=counts,
        auc_over_folds=_over_folds(
            (folds_a["label"] == positive).to_numpy(),
            folds_a[columns[k]].to_numpy(np.float64),
            folds_b[columns[k]].to_numpy(np.float64),
            folds_a["fold"].to_numpy(np.int64),
            n_groups,
            ratio if ratio is not None else fold_ratio(folds_a["fold"].to_numpy(np.int64), len(one)),
        ),
    )


def _with_inner(tested: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """Add the rows of split val, from which the agreement of the models of different folds is estimated."""
    return pd.concat([tested, table[table["part"] == "val"]], ignore_index=True)


def _over_folds(
    positive: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    fold: np.ndarray,
    n_groups: int,
    ratio: float,
) -> Difference:
    numbers: Sequence[int] = np.unique(fold).tolist()
    if len(numbers) < 2:
        return Difference.of(undefined("there is only one fold", n_groups))
    differences = []
    for number in numbers:
        rows = fold == number
        areas = auc(positive[rows], a[rows]), auc(positive[rows], b[rows])
        if areas[0] is not None and areas[1] is not None:
            differences.append(areas[0] - areas[1])
    if not differences:
        return Difference.of(undefined("a class is absent from every fold", n_groups))
    value = corrected_t(differences, ratio)
    return value.replace(n_groups=n_groups, n_skipped=len(numbers) - len(differences))
