"""Figures of one fold with the contribution of each group, from which ``cross_validation`` makes means over folds."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from usvit.metrics.clustered import area_parts
from usvit.metrics.figures import FigureFunction

_STEP = 1e-4
"""Change of a group's weight by which the contribution of the group is computed."""
_GROUPS_AT_ONCE = 32


@dataclass(frozen=True)
class Stratum:
    """Contribution of the images of one stratum (such as the positives) to the figure of a fold.

    Attributes:
        adds: (G,) float, the contribution of each group relative to the mean; it sums to 0.
        images: (G,) int, the images of the stratum in the fold of each group.
    """

    adds: np.ndarray
    images: np.ndarray

    @property
    def present(self) -> np.ndarray:
        """(G,) bool, whether the group has an image of the stratum in the fold."""
        return self.images > 0


@dataclass(frozen=True)
class FoldFigure:
    """A figure of one fold and the contribution of each group, by stratum.

    Attributes:
        value: the figure of the fold's test images.
        strata: stratum by name; a figure of the positives alone has one, an AUC has two.
        independent: number of cases that are surely independent of each other, for the bound of a perfect score.
        images: of a share of images, the (G,) number of images of each group; None for another figure.
        parts: the figures of which this one is the mean, if it is one.
    """

    value: float
    strata: dict[str, Stratum]
    independent: int
    images: np.ndarray | None = None
    parts: "tuple[FoldFigure, ...]" = ()

    def __sub__(self, other: "FoldFigure") -> "FoldFigure":
        """Subtract the figure of another model on the same images, including the contributions of the groups."""
        strata = {name: Stratum(one.adds - other.strata[name].adds, one.images) for name, one in self.strata.items()}
        return FoldFigure(self.value - other.value, strata, self.independent)

    @classmethod
    def mean(cls, figures: Sequence["FoldFigure"]) -> "FoldFigure":
        """Average several figures of one fold, such as the AUCs of the classes."""
        strata = {
            f"{k} {name}": Stratum(one.adds / len(figures), one.images)
            for k, figure in enumerate(figures)
            for name, one in figure.strata.items()
        }
        values = np.array([figure.value for figure in figures])
        value = 1.0 if (values == 1).all() else float(values.mean())
        return cls(value, strata, min(figure.independent for figure in figures), parts=tuple(figures))


def area_figure(positive: np.ndarray, score: np.ndarray, code: np.ndarray, n_groups: int) -> FoldFigure | None:
    """Compute the AUC of a fold; None if a class is absent. Arguments as ``clustered.area_parts``."""
    parts = area_parts(positive, score, code, n_groups)
    if parts is None:
        return None
    strata = {
        "positives": Stratum(parts.positives, np.bincount(code[positive], minlength=n_groups)),
        "negatives": Stratum(parts.negatives, np.bincount(code[~positive], minlength=n_groups)),
    }
    return FoldFigure(parts.value, strata, parts.disjoint_pairs)


def mean_figure(
    per_image: np.ndarray, looked_at: np.ndarray, code: np.ndarray, n_groups: int, name: str = "images"
) -> FoldFigure | None:
    """Compute the mean over a fold of a number per image, such as whether its decision is correct.

    Args:
        per_image: (n,) float.
        looked_at: (n,) bool, the images to average; without any, the result is None.
        code: (n,) int in 0 ... n_groups - 1.
        n_groups: G.
        name: name of the stratum.
    """
    n = int(looked_at.sum())
    if not n:
        return None
    value = float(per_image[looked_at].mean())
    adds = np.bincount(code[looked_at], per_image[looked_at] - value, n_groups) / n
    images = np.bincount(code[looked_at], minlength=n_groups)
    is_share = bool(np.isin(per_image[looked_at], (0, 1)).all())
    return FoldFigure(value, {name: Stratum(adds, images)}, int((images > 0).sum()), images if is_share else None)


def function_figure(
    function: FigureFunction,
    images: tuple[np.ndarray, np.ndarray],
    code: np.ndarray,
    n_groups: int,
    of_class: int | None = None,
) -> FoldFigure | None:
    """Compute a figure of a fold that is a function of the weights of the images; None if it is undefined.

    The contribution of a group is the derivative of the figure by the weight of the group's images (the infinitesimal
    jackknife), computed as a central difference. For a mean over images it equals that of ``mean_figure``.

    Args:
        function: the figure.
        images: (n,) labels and (n, K) probabilities.
        code: (n,) int in 0 ... n_groups - 1.
        n_groups: G.
        of_class: index of the class of a figure that each class has.

    Source: Efron (1982), The Jackknife, the Bootstrap and Other Resampling Plans, section 6.3.
    """
    if not len(code):
        return None

    def at(weight: np.ndarray) -> np.ndarray:
        values = function(*images, weight)
        return values if of_class is None else values[:, of_class]

    value = float(at(np.ones((1, len(code))))[0])
    if np.isnan(value):
        return None
    counts = np.bincount(code, minlength=n_groups)
    here, adds = np.flatnonzero(counts), np.zeros(n_groups)
    for start in range(0, len(here), _GROUPS_AT_ONCE):
        some = here[start : start + _GROUPS_AT_ONCE]
        change = _STEP * (code == some[:, None])
        adds[some] = (at(1 + change) - at(1 - change)) / (2 * _STEP)
    return FoldFigure(value, {"images": Stratum(adds, counts)}, len(here))
