"""Is one model better than another on the same images? Paired tests, and what each of them counts.

The headline asks whether the training procedure is better: the mean difference of AUCs within folds, with a
variance that counts groups and allows for the training images that folds share (``cv_headline``). The second takes
these models' predictions as given: the difference of AUCs on the pooled rows (``clustered.clustered_difference``). The
others speak of decisions (McNemar) or take folds alone for the sample (Nadeau and Bengio). Holm's correction belongs
beside any of them when several pairs are looked at.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.stats import binom, chi2, t

from usvit.errors import UsvitError, unknown
from usvit.metrics.checks import check_positive, group_codes
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.cv_headline import corrected_difference
from usvit.metrics.intervals import ALPHA, few_groups_warning, undefined
from usvit.metrics.multiclass import multiclass_difference
from usvit.metrics.points import Value, auc, decide
from usvit.metrics.predictions import check_predictions, classes_of, first_repeat, repeats_of

McNemar = Literal["mid-p", "exact", "chi2", "clustered"]
Name = TypeVar("Name")

CLUSTERED_ROWS = (
    "some groups have several images: the {} McNemar test takes them for independent, so that its p is not to be "
    "relied on; 'clustered' counts groups"
)


def mcnemar(right_a: ArrayLike, right_b: ArrayLike, group: ArrayLike, *, method: McNemar = "mid-p") -> dict[str, Any]:
    """Do two models decide rightly equally often on the same images? Only images that one gets right count.

    - ``mid-p``: exact conditional p less half the probability of what was seen; recommended by Fagerland et al.
    - ``exact``: two-sided binomial of the discordant images; conservative.
    - ``chi2``: (b - c)^2 / (b + c), without continuity correction.
    - ``clustered``: (sum d)^2 / sum d^2 * (I - 1) / I, d being b - c within each of I groups; the only one
      that is right when patients have several images.

    Args:
        right_a, right_b: (n,) bool, whether each model's decision of each image is right.
        group: (n,) int or str, the patient (or duplicate cluster) of each image.

    Returns:
        {"p", "only_a", "only_b", "method", "n_groups"}: the images that model A alone, and B alone, gets right.
        p is 1 where there are none, with a "reason". "warning" where the test ignores clusters that the rows
        have, or where ``clustered`` has fewer than 50 groups; p is None, with a "reason", where ``clustered`` has one.

    Raises:
        ValueError: shapes that do not fit, a missing group (the index is named), an unknown method.

    Source: McNemar (1947), Psychometrika 12:153; Fagerland, Lydersen & Laake (2013), BMC Medical Research
    Methodology 13:91; Obuchowski (1998), Statistics in Medicine 17:1495, in the form of Yang, Sun & Hardin
    (2010), Biometrical Journal 52:638.
    """
    if method not in get_args(McNemar):
        raise ValueError(f"method '{method}' is none of {', '.join(get_args(McNemar))}")
    a, b = check_positive(right_a), check_positive(right_b)
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} decisions of one model and {len(b)} of the other")
    code, n_groups = group_codes(group, len(a))
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    answer: dict[str, Any] = {
        "p": 1.0,
        "only_a": only_a,
        "only_b": only_b,
        "method": f"McNemar, {method}",
        "n_groups": n_groups,
    }
    if not only_a + only_b:
        answer["reason"] = "the models are right on the same images"
        return answer
    if method == "clustered":
        d = np.bincount(code, a.astype(np.float64) - b, n_groups)
        squares = float(d @ d)
        if n_groups < 2:
            return {**answer, "p": None, "reason": "there is but one group"}
        if squares:  # else each group's wins of A and of B cancel: no difference at all
            answer["p"] = float(chi2.sf(d.sum() ** 2 / squares * (n_groups - 1) / n_groups, 1))
        warning = few_groups_warning(n_groups)  # the test is the interval's twin, and as rough
    else:
        answer["p"] = _mcnemar_p(min(only_a, only_b), only_a + only_b, method)
        warning = CLUSTERED_ROWS.format(method) if n_groups < len(a) else None
    if warning:
        answer["warning"] = warning
    return answer


def corrected_t(differences: ArrayLike, test_over_train: float) -> Value:
    """Nadeau and Bengio's t-test of the mean difference over folds (or repeated splits).

    The folds share most of their training images, so that the variance of their mean is not S^2 / J:
    1/J becomes 1/J + n_test/n_train. It asks whether the *training procedure* is better, at this
    size of training set; the clustered difference asks about these predictions on new patients.

    Args:
        differences: (J,) of any figure, model A less model B, one for each fold, J >= 1.
        test_over_train: n_test / n_train > 0; 1 / (J - 1) in J-fold cross-validation without a
            validation part.

    Returns:
        A Value of the mean with "p" (two-sided, J - 1 degrees of freedom) and "n_folds"; n_groups is
        absent from it, since folds are what it counts. Without interval and p where J is 1 or all folds
        differ alike (p is 1 where that is by nothing).

    Raises:
        ValueError: a difference is not finite (the index is named), there is none, or the ratio is not positive.

    Source: Nadeau & Bengio (2003), Machine Learning 52:239, section 3, the corrected resampled t-test.
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or not len(d):
        raise ValueError(f"expected one difference for each of at least one fold, got shape {d.shape}")
    if not np.isfinite(d).all():
        raise ValueError(f"the difference at index {int((~np.isfinite(d)).argmax())} is not finite")
    if not test_over_train > 0:
        raise ValueError(f"n_test / n_train is {test_over_train}, expected a positive number")
    mean, n = float(d.mean()), len(d)
    value: Value = {"value": mean, "ci95": None, "method": "Nadeau-Bengio corrected t", "n_folds": n}
    if n == 1:
        return {**value, "reason": "a spread needs at least two folds"}
    error = float(np.sqrt((1 / n + test_over_train) * d.var(ddof=1)))
    if error <= 1e-15:
        value["reason"] = "all folds differ alike, so that the variance is 0"
        return {**value, "p": 1.0} if mean == 0 else value
    half = float(t.ppf(1 - ALPHA / 2, n - 1)) * error
    return {**value, "ci95": [mean - half, mean + half], "p": 2 * float(t.sf(abs(mean) / error, n - 1))}


def holm(p: Mapping[Name, float | None]) -> dict[Name, float | None]:
    """Holm's step-down correction: p-values that may be read beside each other at one level.

    Args:
        p: a p-value in [0, 1] for each comparison; None (not computable) stays None and is not counted.

    Returns:
        The adjusted p-values, in the same order, at most 1.

    Raises:
        ValueError: a p-value is NaN or outside [0, 1] (the comparison is named).

    Source: Holm (1979), Scandinavian Journal of Statistics 6:65.
    """
    for name, one in p.items():
        if one is not None and not 0 <= one <= 1:
            raise ValueError(f"the p-value of '{name}' is {one}")
    order = sorted(((one, name) for name, one in p.items() if one is not None), key=lambda pair: pair[0])
    adjusted: dict[Name, float | None] = dict.fromkeys(p)
    so_far = 0.0
    for step, (one, name) in enumerate(order):
        so_far = max(so_far, min(1.0, (len(order) - step) * one))
        adjusted[name] = so_far
    return adjusted


def paired_tables(a: pd.DataFrame, b: pd.DataFrame, names: tuple[str, str] = ("A", "B")) -> tuple[pd.DataFrame, ...]:
    """The rows of part test of two predictions tables, side by side in one order.

    Returns:
        Two tables of n rows, sorted by (dataset, image_id, repeat), the same image of the same repeat in the same row.

    Raises:
        UsvitError: a table fails ``check_predictions`` or has no row of part test; the classes, the images,
            a label, a group or a fold differ: models tested on other images, or trained on other folds,
            cannot be compared in pairs. The first image is named.
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
    repeats = [repeats_of(test) for test in tests]
    if not np.array_equal(*repeats):
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
    test_over_train: float | None = None,
) -> dict[str, Any]:
    """Model A less model B, from their predictions of the same images in the same folds.

    Args:
        a, b: predictions tables; only rows of part test count.
        positive: the class that the AUC is about.
        names: how errors call the two.
        test_over_train: for Nadeau and Bengio's t; by default that of the folds' test images, mean of
            n_k / (n - n_k), which takes no validation part into account.

    Returns:
        {"positive_class", "n_images", "n_groups"} and five answers, the first of which is the headline:
        "headline": as ``cv_headline.corrected_difference``, positive against the rest, within the folds of all repeats;
        "auc" and "auc_macro_ovr": Value of the pooled rows of the first repeat, clustered;
        "mcnemar": as ``mcnemar``, on the first repeat, clustered where a group has several images, else mid-p;
        "auc_over_folds": as ``corrected_t``, over the folds of all repeats where the AUC is defined in both, with
        "n_skipped"; null with a reason where there are none or one fold.

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
    method: McNemar = "clustered" if n_groups < len(group) else "mid-p"
    macro = multiclass_difference(label, prob_a, prob_b, group, positive=k)
    return {
        "positive_class": positive,
        "n_images": len(one),
        "n_groups": n_groups,
        "headline": corrected_difference(_with_inner(folds_a, a), _with_inner(folds_b, b), positive),
        "auc": clustered_difference(label == k, prob_a[:, k], prob_b[:, k], group),
        "auc_macro_ovr": macro,
        "mcnemar": mcnemar(decide(prob_a) == label, decide(prob_b) == label, group, method=method),
        "auc_over_folds": _over_folds(
            (folds_a["label"] == positive).to_numpy(),
            folds_a[columns[k]].to_numpy(np.float64),
            folds_b[columns[k]].to_numpy(np.float64),
            folds_a["fold"].to_numpy(np.int64),
            n_groups,
            test_over_train,
            n_images=len(one),
        ),
    }


def _with_inner(tested: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The tested rows and those of part val, which tell how far models of different folds agree."""
    return pd.concat([tested, table[table["part"] == "val"]], ignore_index=True)


def _over_folds(
    positive: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    fold: np.ndarray,
    n_groups: int,
    ratio: float | None,
    *,
    n_images: int,
) -> Value:
    numbers: Sequence[int] = np.unique(fold).tolist()
    if len(numbers) < 2:
        return undefined("there is but one fold", n_groups)
    differences = []
    for number in numbers:
        rows = fold == number
        areas = auc(positive[rows], a[rows]), auc(positive[rows], b[rows])
        if areas[0] is not None and areas[1] is not None:
            differences.append(areas[0] - areas[1])
    if not differences:
        return undefined("a class is absent from every fold", n_groups)
    if ratio is None:
        sizes = np.array([(fold == number).sum() for number in numbers])
        ratio = float((sizes / (n_images - sizes)).mean())
    value = corrected_t(differences, ratio)
    return {**value, "n_groups": n_groups, "n_skipped": len(numbers) - len(differences)}


def _mcnemar_p(fewer: int, n: int, method: McNemar) -> float:
    """Two-sided p of ``fewer`` of n discordant images on one side."""
    if method == "chi2":
        return float(chi2.sf((n - 2 * fewer) ** 2 / n, 1))
    exact = min(1.0, 2 * float(binom.cdf(fewer, n, 0.5)))
    if method == "exact":
        return exact
    seen = float(binom.pmf(fewer, n, 0.5))
    return 1 - seen / 2 if 2 * fewer == n else exact - seen
