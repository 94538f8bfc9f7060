"""Choice among candidates by the one-standard-error rule, and the honest figure of this choice.

The best of several candidates on the test images looks better than it is, because it is best partly by chance. In a
nested choice, each fold chooses on its own inner validation images, and the chosen candidate is measured on the test
images of this fold, which took no part. The mean over folds is the figure of choosing and training in this way.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usvit.estimate import Estimate
from usvit.metrics.bootstrap import N_RESAMPLES
from usvit.metrics.cross_validation import fold_mean
from usvit.metrics.fold_figures import FoldFigure
from usvit.metrics.intervals import Z, undefined, with_interval

_GAP_METHOD = f"linear group bootstrap of all choices, normal, {N_RESAMPLES} resamples"

CHUNK = 100
"""Resamples at once: with 10,000 groups, 8 MB."""

Figures = Sequence[FoldFigure | None]
"""One candidate: its figure in each fold of all repeats."""


@dataclass(frozen=True)
class CandidateChoice:
    """The choice among C candidates."""

    values: tuple[float, ...]
    """Figure of each candidate."""
    errors: tuple[float | None, ...]
    """Standard error of each figure, which counts groups; None if there are too few groups to estimate it."""
    best: int
    within: tuple[int, ...]
    """Candidates within one standard error of the best, among them the best."""
    chosen: int
    """The one of ``within`` with the fewest parameters; of several, the one with the best figure."""


@dataclass(frozen=True)
class NestedChoice:
    """The choices of all folds, and what they cost."""

    folds: tuple[CandidateChoice, ...]
    figures: tuple[FoldFigure | None, ...]
    """Figure of the chosen candidate on the test images of each fold."""
    apparent: int
    """The candidate whose mean figure on the test images is best."""
    apparent_minus_nested: Estimate
    """Figure of the apparent best minus that of the nested choice. It is more than the optimism of choosing on the test
    images: it also contains what is lost because each fold chooses on its few inner validation images."""


def one_standard_error(
    figures: Sequence[Figures], parameters: Sequence[int], repeat: Sequence[int], *, lower_is_better: bool = False
) -> CandidateChoice:
    """Choose the candidate with the fewest parameters among those within one standard error of the best.

    Args:
        figures: for each of C candidates, its figure in each of F folds; no figure is None.
        parameters: (C,) number of parameters.
        repeat: (F,) the repeat of each fold.
        lower_is_better: for Brier scores.

    Source: Breiman, Friedman, Olshen & Stone (1984), Classification and Regression Trees, section 3.4.3; Hastie,
    Tibshirani & Friedman (2009), The Elements of Statistical Learning, section 7.10.
    """
    means = [fold_mean(_by_repeat(one, repeat)) for one in figures]
    values = [np.nan if mean is None else mean.value for mean in means]
    variances = [np.nan if mean is None else mean.variance_with(0.0)[0] for mean in means]
    errors = [None if np.isnan(one) else float(np.sqrt(one)) for one in variances]
    return _choose(np.array(values), errors, parameters, lower_is_better)


def nested_choice(
    val: Sequence[Figures],
    test: Sequence[Figures],
    parameters: Sequence[Sequence[int]],
    repeat: Sequence[int],
    *,
    reported: Sequence[Figures] | None = None,
    lower_is_better: bool = False,
    seed: int = 0,
) -> NestedChoice:
    """Choose a candidate in each fold on its inner validation images, and measure it on its test images.

    The interval of ``apparent_minus_nested`` comes from resamples of whole groups in which all choices are made again:
    the candidate of each fold, and the apparent best. The figures of a resample are linear in the numbers of times that
    the groups are drawn (the infinitesimal jackknife's approximation), and the interval is normal, because a maximum
    over candidates is biased upwards in resamples. The trainings are taken as given.

    Args:
        val: for each of C candidates, its figure on the inner validation images of each of F folds; none is None.
        test: the same on the test images; None if undefined.
        parameters: (C, F) number of parameters.
        repeat: (F,) the repeat of each fold.
        reported: the candidates among which the apparent best is found, if they are not those of ``test``.
        lower_is_better: for Brier scores.
        seed: of the resamples.

    Source: Cawley & Talbot (2010), Journal of Machine Learning Research 11:2079 (nested choice); Varma & Simon (2006),
    BMC Bioinformatics 7:91; Efron & Tibshirani (1993), An Introduction to the Bootstrap, section 20.5 (linear
    approximation).
    """
    sizes = range(len(repeat))
    folds = tuple(
        one_standard_error(
            [[one[k]] for one in val], [one[k] for one in parameters], [0], lower_is_better=lower_is_better
        )
        for k in sizes
    )
    figures = tuple(test[choice.chosen][k] for k, choice in enumerate(folds))
    shown = test if reported is None else reported
    known = [k for k in sizes if all(one[k] is not None for one in (*test, *shown))]
    sign = -1.0 if lower_is_better else 1.0
    if not known:
        return NestedChoice(folds, figures, folds[0].chosen, undefined("a class is absent from every fold", 0))
    weight = _weights([repeat[k] for k in known])
    reached = [sign * float(weight @ _values(one, known)) for one in shown]
    apparent = int(np.argmax(reached))
    difference = reached[apparent] - sign * float(weight @ np.array([_known(figures[k]).value for k in known]))
    drawn = _resampled(val, test, shown, parameters, folds, known, weight, sign, seed)
    n_groups = len(_adds(_known(test[0][known[0]])))
    spread = float(drawn.std(ddof=1))
    if not spread > 1e-12:
        why = "all candidates are equal, or there is only one, so that no choice can be made differently"
        return NestedChoice(folds, figures, apparent, _no_interval(difference, why, n_groups))
    half = Z * spread
    ends = (max(difference - half, -1.0), min(difference + half, 1.0))
    mean = fold_mean(_by_repeat(test[apparent], repeat))
    support = None if mean is None else mean.support
    gap = with_interval(difference, ends, method=_GAP_METHOD, n_groups=n_groups, support=support)
    return NestedChoice(folds, figures, apparent, gap)


def _choose(
    values: NDArray[np.float64], errors: Sequence[float | None], parameters: Sequence[int], lower_is_better: bool
) -> CandidateChoice:
    signed = -values if lower_is_better else values
    best = int(np.nanargmax(signed))
    within = [c for c, value in enumerate(signed) if value >= signed[best] - (errors[best] or 0.0)]
    chosen = min(within, key=lambda c: (parameters[c], -signed[c], c))
    return CandidateChoice(tuple(values.tolist()), tuple(errors), best, tuple(within), chosen)


def _resampled(
    val: Sequence[Figures],
    test: Sequence[Figures],
    shown: Sequence[Figures],
    parameters: Sequence[Sequence[int]],
    folds: Sequence[CandidateChoice],
    known: Sequence[int],
    weight: NDArray[np.float64],
    sign: float,
    seed: int,
) -> NDArray[np.float64]:
    """Return (B,) differences of the apparent best and the nested choice in resamples of the groups."""
    n_groups = len(_adds(_known(test[0][known[0]])))
    rng = np.random.default_rng(seed)
    value, adds = _stacked([*val, *test, *shown], known)  # (3 C, F), (3 C, F, G)
    order = np.array(parameters, dtype=np.float64)  # (C, F)
    found = []
    for start in range(0, N_RESAMPLES, CHUNK):
        size = min(CHUNK, N_RESAMPLES - start)
        cell = rng.integers(0, n_groups, (size, n_groups)) + n_groups * np.arange(size)[:, None]
        extra = np.bincount(cell.ravel(), minlength=size * n_groups).reshape(size, n_groups) - 1.0  # beyond once
        drawn = sign * (value[..., None] + np.tensordot(adds, extra, axes=(2, 1)))  # (3 C, F, B)
        chooser, tested, reached = np.split(drawn, [len(val), len(val) + len(test)])
        nested = np.zeros(size)
        for at, (share, k) in enumerate(zip(weight, known, strict=True)):
            errors = np.array([error or 0.0 for error in folds[k].errors])
            best = chooser[:, at].argmax(axis=0)
            within = chooser[:, at] >= np.take_along_axis(chooser[:, at], best[None], 0)[0] - errors[best]
            simplest = np.where(within, order[:, [k]], np.inf)
            chosen = np.where(simplest == simplest.min(axis=0), chooser[:, at], -np.inf).argmax(axis=0)
            nested += share * np.take_along_axis(tested[:, at], chosen[None], 0)[0]
        found.append(np.einsum("f,cfb->cb", weight, reached).max(axis=0) - nested)
    return np.concatenate(found)


def _stacked(figures: Sequence[Figures], known: Sequence[int]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (C, F) values, and (C, F, G) contributions of the groups."""
    own = [[_known(one[k]) for k in known] for one in figures]
    return np.array([[one.value for one in row] for row in own]), np.array([[_adds(one) for one in row] for row in own])


def _adds(figure: FoldFigure) -> NDArray[np.float64]:
    return np.asarray(np.sum([one.adds for one in figure.strata.values()], axis=0))


def _values(figures: Figures, known: Sequence[int]) -> NDArray[np.float64]:
    return np.array([_known(figures[k]).value for k in known])


def _known(figure: FoldFigure | None) -> FoldFigure:
    assert figure is not None
    return figure


def _weights(repeat: Sequence[int]) -> NDArray[np.float64]:
    """Return the weight of each fold in the mean over repeats of the means over folds."""
    numbers = np.array(repeat)
    counts = np.array([(numbers == one).sum() for one in numbers])
    return np.asarray(1 / (counts * len(set(repeat))))


def _by_repeat(figures: Figures, repeat: Sequence[int]) -> list[list[FoldFigure | None]]:
    return [[one for one, own in zip(figures, repeat, strict=True) if own == number] for number in sorted({*repeat})]


def _no_interval(value: float, reason: str, n_groups: int) -> Estimate:
    return with_interval(value, None, method=_GAP_METHOD, n_groups=n_groups, reason=reason)
