"""How unlike its training images an image is to a trained network: the limit is 1.

Two views, each fitted on the fold's training images and limited on its inner validation images:

- ``features``: Mahalanobis distance of the network's L2-normalised penultimate features to the nearest class, with
  class means and one covariance, shrunk as Ledoit and Wolf (Lee et al. 2018, NeurIPS; normalised as Mueller and Hein
  2025, ICML, "Mahalanobis++"). It sees what the network has learnt to see, and no more.
- ``picture``: Mahalanobis distance of the picture's plain statistics (``appearance``) to those of the training images.
  It does not depend on how well the network was trained.

Each distance is divided by its scale, the median distance of the *training* images, so that the views weigh alike; the
larger of the two is divided by its conformal 95 % quantile on the inner validation images, which had no part in the
scale. That order is what makes the promise exact: were scale and limit taken from the same few images, more than 5 % of
new images like the training images would lie above. A patient's images share one weight in the quantile, since they are
not independent. With fewer than 19 groups of inner validation images no limit can promise 5 %; the passport then says
what is promised instead. The file keeps means and directions of groups of images, and no image's own features, which
the nearest neighbours of Sun et al. (2022, ICML) would take.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as arrays_bytes
from sklearn.covariance import ledoit_wolf_shrinkage

from usvit.errors import UsvitError
from usvit.files import read_bytes
from usvit.models.appearance import RESOLUTION, STATISTICS

FILE = "novelty.safetensors"
MAX_BYTES = 1_000_000_000
"""Of that file; those that usvit writes have a few MB."""
METHOD = "max of views; distance / limit"
RATE = 0.05
"""Share of images like the training images that may be called unusual."""
FEWEST_GROUPS = math.ceil(1 / RATE) - 1
"""Of inner validation images, for a limit that promises ``RATE``: 19."""
_CLIP = 4.0
"""Standard deviations at which a statistic of a training image ends when their covariance is taken: the few odd ones
that every data set has must not make everything odd usual."""
_VIEWS = {
    "features": "Mahalanobis distance of L2-normalised penultimate features to the nearest class",
    "picture": "Mahalanobis distance of plain picture statistics",
}

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Observed:
    """What is looked at of n images."""

    features: NDArray[np.float32] | None = field(repr=False)
    """(n, D) from ``penultimate.logits_and_features``; None where the network shows none."""
    statistics: NDArray[np.float32] = field(repr=False)
    """(n, 23) from ``appearance.picture_statistics``."""

    def __getitem__(self, rows: NDArray[np.int64]) -> "Observed":
        return Observed(None if self.features is None else self.features[rows], self.statistics[rows])

    def view(self, name: str) -> Float | None:
        """(n, D) float64, of one of the views, as its Gaussian takes it."""
        if name == "picture":
            return self.statistics.astype(np.float64)
        if self.features is None:
            return None
        features = self.features.astype(np.float64)
        norm = np.linalg.norm(features, axis=1, keepdims=True)
        return features / np.maximum(norm, np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Gaussian:
    """Means of classes and one covariance, which is spread along R directions and equal in all others."""

    centre: NDArray[np.float32] = field(repr=False)
    """(D,)"""
    scale: NDArray[np.float32] = field(repr=False)
    """(D,) what differences to the centre are divided by."""
    means: NDArray[np.float32] = field(repr=False)
    """(C, D) of the classes that there are, so scaled."""
    basis: NDArray[np.float32] = field(repr=False)
    """(R, D) orthonormal."""
    variance: NDArray[np.float32] = field(repr=False)
    """(R,) along each of them."""
    rest: NDArray[np.float32] = field(repr=False)
    """(1,) along any other direction, above 0."""

    def distance(self, values: Float) -> Float:
        """(n, D) -> (n,): Mahalanobis distance to the nearest mean."""
        x = (values - self.centre) / self.scale.astype(np.float64)
        basis, variance, rest = (part.astype(np.float64) for part in (self.basis, self.variance, self.rest))
        nearest = np.full(len(x), np.inf)
        for mean in self.means.astype(np.float64):
            away = x - mean
            along = away @ basis.T
            others = np.maximum((away**2).sum(1) - (along**2).sum(1), 0)
            nearest = np.minimum(nearest, (along**2 / variance).sum(1) + others / rest)
        return np.sqrt(nearest)


@dataclass(frozen=True)
class Novelty:
    """What was fitted: views with their limits."""

    views: dict[str, Gaussian]
    """A part of ``features`` and ``picture``, never empty."""
    limits: dict[str, float]
    """The distance at which a view calls an image unusual, above 0."""
    left_out: dict[str, str]
    """View -> why it says nothing."""
    n_train: int
    n_val: int
    n_val_groups: int
    """Groups (patients, duplicate clusters, single images) of the inner validation images."""

    @property
    def rate(self) -> float:
        """The most that is promised of a random image of a new group: above the limit with at most this probability."""
        return max(RATE, 1 / (self.n_val_groups + 1))

    @property
    def note(self) -> str | None:
        """What a reader must know of the promise; None where it is ``RATE``."""
        if self.rate == RATE:
            return None
        return (
            f"{self.n_val_groups} groups of inner validation images: no limit exists that {RATE:.0%} at most of images "
            f"like the training images are promised to exceed, which takes {FEWEST_GROUPS} groups. The limit is the "
            f"largest of their distances, and {self.rate:.1%} is promised."
        )

    def of(self, seen: Observed) -> Float:
        """(n,) the largest of the views' distances, each divided by its limit: above 1 an image is unusual."""
        ratios = [self.views[name].distance(_present(seen, name)) / self.limits[name] for name in self.views]
        return np.max(ratios, axis=0)

    def save(self) -> bytes:
        """The content of ``FILE``: the same arrays give the same bytes."""
        return arrays_bytes(
            {f"{name}.{key}": array for name, view in self.views.items() for key, array in vars(view).items()}
        )

    def describe(self, content: bytes) -> dict[str, Any]:
        """For the passport; ``content`` is what ``save`` gave."""
        return {
            "method": METHOD,
            "file": FILE,
            "sha256": hashlib.sha256(content).hexdigest(),
            "views": {
                name: {"method": _VIEWS[name], "dimensions": len(view.centre), "threshold": self.limits[name]}
                for name, view in self.views.items()
            },
            "left_out": self.left_out,
            "statistics": list(STATISTICS),
            "n_train": self.n_train,
            "n_val": self.n_val,
            "n_val_groups": self.n_val_groups,
            "expected_rate": self.rate,
            "note": self.note,
        }


def fit_novelty(train: Observed, label: NDArray[np.int64], val: Observed, group: ArrayLike) -> Novelty | str:
    """Fit both views.

    Args:
        train: the fold's training images.
        label: (n,) their classes.
        val: its m inner validation images, which had no part in the fit, nor have they in the scales.
        group: (m,) int or str, their groups. Below ``FEWEST_GROUPS`` the largest distance is the limit, and 1 / (G + 1)
            of images like them at most lies above it (``Novelty.rate``).

    Returns:
        In place of a fit the reason why there is none.

    Source: Lee et al. (2018), NeurIPS, section 2.1; Ledoit and Wolf (2004), J. Multivariate Analysis 88:365; Lee,
        Barber & Willett (2023), arXiv 2306.06342, section 2 (the quantile where images come in groups).
    """
    if not len(val.statistics):
        return "no inner validation images to set a limit on"
    views: dict[str, Gaussian] = {}
    left_out: dict[str, str] = {}
    shares: dict[str, Float] = {}
    middles: dict[str, float] = {}
    for name in _VIEWS:
        values = train.view(name)
        if values is None:
            left_out[name] = "the network has no classifier whose input could be looked at"
            continue
        if isinstance(view := fit_gaussian(values, label if name == "features" else np.zeros_like(label), name), str):
            left_out[name] = view
            continue
        middles[name] = float(np.median(view.distance(values)))
        if not 0 < middles[name] < np.inf:
            left_out[name] = "the training images have no distance"
            continue
        views[name], shares[name] = view, view.distance(_present(val, name)) / middles[name]
    if not views:
        return "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
    code = np.unique(np.asarray(group), return_inverse=True)[1]
    joint = conformal_quantile(np.max(list(shares.values()), axis=0), code, RATE)
    if not 0 < joint < np.inf:
        return "the inner validation images have no distance"
    limits = {name: middles[name] * joint for name in views}
    return Novelty(views, limits, left_out, len(train.statistics), len(val.statistics), int(code.max()) + 1)


def conformal_quantile(values: Float, code: NDArray[np.int64], rate: float) -> float:
    """The value that a random image of a new group of the same kind exceeds with probability ``rate`` at most.

    Each of G groups weighs 1 / (G + 1), shared evenly by its images; the new group has the rest. The quantile is the
    smallest value up to which the weights sum to 1 - rate; the largest value where G is too small for that. With one
    image a group it is the order statistic of rank ceil((n + 1) (1 - rate)).

    Args:
        values: (n,), n >= 1.
        code: (n,) the group of each, 0 ... G - 1.
        rate: in (0, 1).
    """
    sizes = np.bincount(code)
    order = np.argsort(values, kind="stable")
    weight = np.cumsum(1 / ((len(sizes) + 1) * sizes[code[order]]))
    rank = int(np.searchsorted(weight, 1 - rate - 1e-9))
    return float(values[order[min(rank, len(values) - 1)]])


def read_novelty(folder: Path, passport: Mapping[str, Any]) -> Novelty | None:
    """What a fold's folder holds of it; None where its passport says that there is none.

    Raises:
        UsvitError: the file is missing, damaged, or not the one that the passport names.
    """
    record = passport.get("novelty")
    if not record:
        return None
    path = folder / FILE
    try:
        content = read_bytes(path, MAX_BYTES)
    except UsvitError as error:
        raise UsvitError(
            f"{folder} has no {FILE} that can be read, which its model.json names. Copy it from the same fold."
        ) from error
    if hashlib.sha256(content).hexdigest() != record.get("sha256"):
        raise UsvitError(f"{path} is not the file that model.json beside it names. Copy both from the same fold.")
    if record.get("statistics") != list(STATISTICS):
        raise UsvitError(f"{path} was made by a usvit that looks at other statistics. Use that version of usvit.")
    try:
        arrays = load_arrays(content)
        names = [name for name in _VIEWS if name in record["views"]]
        views = {name: Gaussian(**{key: arrays[f"{name}.{key}"] for key in Gaussian.__annotations__}) for name in names}
        limits = {name: float(record["views"][name]["threshold"]) for name in names}
        if not views or not all(_fits(view) and limits[name] > 0 for name, view in views.items()):
            raise ValueError("its arrays do not fit together")
        n_val = int(record["n_val"])
        # Metadata before 1.2 counts no groups: it took every image for one.
        n_groups = int(record.get("n_val_groups", n_val))
        return Novelty(views, limits, dict(record["left_out"]), int(record["n_train"]), n_val, n_groups)
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"{path}, or what model.json says of it, is damaged ({reason}). Copy both again.") from error


def fit_gaussian(values: Float, label: NDArray[np.int64], name: str) -> Gaussian | str:
    """Fit means and a shrunk covariance to (n, D) values of a view; or the reason why not."""
    if len(values) < 2 or not np.isfinite(values).all():
        return "fewer than two training images" if len(values) < 2 else "features that are not finite"
    centre, scale = values.mean(0), np.ones(values.shape[1])
    if name == "picture":
        low, first, middle, third, high = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
        centre, scale = middle, np.maximum(np.maximum((third - first) / 1.349, (high - low) / 3.29), RESOLUTION)
    kept_centre, kept_scale = centre.astype(np.float32), scale.astype(np.float32)  # as they will be read back
    x = (values - kept_centre) / kept_scale.astype(np.float64)
    if name == "picture":
        x = np.clip(x, -_CLIP, _CLIP)
    classes, code = np.unique(label, return_inverse=True)
    means = np.stack([x[code == k].mean(0) for k in range(len(classes))])
    away = x - means[code]
    mean_variance = float((away**2).mean())
    if mean_variance < np.finfo(np.float32).tiny:
        if name == "features":
            return "the features of all training images are equal"
        mean_variance = 1.0  # all pictures are one: a difference of the resolution counts 1
    shrinkage = max(float(ledoit_wolf_shrinkage(away, assume_centered=True)), 1e-4)
    if len(away) > away.shape[1]:
        variance, directions = np.linalg.eigh(away.T @ away / len(away))
        basis = directions.T
    else:
        _, singular, basis = np.linalg.svd(away, full_matrices=False)
        variance = singular**2 / len(away)
    rest = shrinkage * mean_variance
    spread = (1 - shrinkage) * variance
    told = spread > 0.01 * rest  # the others are as good as equal to the rest
    return Gaussian(
        kept_centre,
        kept_scale,
        means.astype(np.float32),
        np.ascontiguousarray(basis[told], dtype=np.float32),
        (spread[told] + rest).astype(np.float32),
        np.array([rest], dtype=np.float32),
    )


def _present(seen: Observed, name: str) -> Float:
    values = seen.view(name)
    if values is None:
        raise ValueError(f"the view {name} was fitted, and is not there now")
    return values


def _fits(view: Gaussian) -> bool:
    """Whether arrays from a file belong together."""
    (dimensions,) = view.centre.shape
    finite = all(array.dtype == np.float32 and np.isfinite(array).all() for array in vars(view).values())
    shapes = view.scale.shape == (dimensions,) and view.means.shape[1:] == view.basis.shape[1:] == (dimensions,)
    counts = view.means.ndim == 2 and len(view.means) > 0 and view.variance.shape == (len(view.basis),)
    positive = view.rest.shape == (1,) and view.rest.min() > 0 and view.scale.min() > 0
    return bool(finite and shapes and counts and positive and (not len(view.variance) or view.variance.min() > 0))
