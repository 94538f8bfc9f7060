"""Out-of-distribution (OOD) score: how different an image is from the training images. The limit is 1.

There are two views. Each is fitted on training images of the fold (``_MAX_TRAIN`` of them at most); the limit is set on
the inner validation images:

- ``features``: Mahalanobis distance of the network's L2-normalised penultimate features to the nearest class, with
  class means and one covariance, shrunk as Ledoit and Wolf (Lee et al. 2018, NeurIPS; normalised as Mueller and Hein
  2025, ICML, "Mahalanobis++"). It only reflects what the network has learnt.
- ``picture``: Mahalanobis distance of the statistics of ``usvit.models.image_statistics`` to those of the training
  images. It does not depend on how well the network was trained.

Each distance is divided by its scale, the median distance of the *training* images, so that both views have equal
weight. The larger of the two is divided by its conformal 95 % quantile on the inner validation images, which are not
used for the scale. The guarantee depends on this separation: if scale and limit came from the same few images, more
than 5 % of new images like the training images would be above the limit. The images of a patient share one weight in
the quantile, since they are not independent. With fewer than 19 groups of inner validation images no limit can
guarantee 5 %; the metadata then states the guaranteed rate. The file contains means and directions of groups of
images, but no features of single images, which the nearest-neighbour method of Sun et al. (2022, ICML) would need.
"""

import hashlib
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError
from safetensors.numpy import load as load_arrays
from safetensors.numpy import save as arrays_bytes

from usvit.errors import UsvitError
from usvit.models.image_statistics import RESOLUTION, STATISTICS
from usvit.models.weights import read_beside
from usvit.records import ModelMetadata
from usvit.records.model import InDistribution, OodRecord, OodView

NOVELTY_FILE = "novelty.safetensors"
MAX_BYTES = 1_000_000_000
"""Largest accepted size of that file; usvit writes a few MB."""
METHOD = "max of views; distance / limit"
RATE = 0.05
"""Share of images like the training images that may be flagged as unusual."""
_FEWEST_GROUPS = math.ceil(1 / RATE) - 1
"""Groups of inner validation images that a limit with guaranteed rate ``RATE`` needs: 19."""
_MAX_TRAIN = 400
"""Largest number of training images that the views are fitted on: each costs a pass through the trained network."""
_CLIP = 4.0
"""Statistics of training images are clipped at this many standard deviations before the covariance is computed, so that
the few outliers of a data set do not inflate it."""
_VIEWS = {
    "features": "Mahalanobis distance of L2-normalised penultimate features to the nearest class",
    "picture": "Mahalanobis distance of plain picture statistics",
}

Float = NDArray[np.float64]


_WIDE = 4096
"""Number of features above which the shrinkage is computed without the D x D covariance."""


@dataclass(frozen=True)
class Observed:
    """Features and statistics of n images."""

    features: NDArray[np.float32] | None = field(repr=False)
    """(n, D) from ``features.logits_and_features``; None if the network has none."""
    statistics: NDArray[np.float32] = field(repr=False)
    """(n, 23) from ``image_statistics.picture_statistics``."""

    def __len__(self) -> int:
        return len(self.statistics)

    def __getitem__(self, rows: NDArray[np.int64]) -> "Observed":
        return Observed(None if self.features is None else self.features[rows], self.statistics[rows])

    def view(self, name: str) -> Float | None:
        """Return the input (n, D) float64 of one view's Gaussian; None if the network has no features."""
        if name == "picture":
            return self.statistics.astype(np.float64)
        if self.features is None:
            return None
        features = self.features.astype(np.float64)
        norm = np.linalg.norm(features, axis=1, keepdims=True)
        return features / np.maximum(norm, np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class Gaussian:
    """Class means and one covariance, with its own variance along R directions and one variance along all others."""

    centre: NDArray[np.float32] = field(repr=False)
    """(D,)"""
    scale: NDArray[np.float32] = field(repr=False)
    """(D,) divisor of the differences from the centre."""
    means: NDArray[np.float32] = field(repr=False)
    """(C, D) scaled means of the classes that occur."""
    basis: NDArray[np.float32] = field(repr=False)
    """(R, D) orthonormal."""
    variance: NDArray[np.float32] = field(repr=False)
    """(R,) along each of them."""
    rest: NDArray[np.float32] = field(repr=False)
    """(1,) along any other direction, above 0."""

    def distance(self, values: Float) -> Float:
        """Compute the Mahalanobis distance (n,) of values (n, D) to the nearest mean."""
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
class OodDetector:
    """Fitted views with their limits."""

    views: dict[str, Gaussian]
    """``features``, ``picture`` or both."""
    limits: dict[str, float]
    """View -> distance above which it flags an image, above 0."""
    left_out: dict[str, str]
    """View -> why it is not used."""
    n_train: int
    n_val: int
    n_val_groups: int
    """Groups (patients, clusters of near-duplicates, single images) of the inner validation images."""

    @property
    def rate(self) -> float:
        """Guaranteed upper bound of the probability that a random image of a new group is above the limit."""
        return max(RATE, 1 / (self.n_val_groups + 1))

    @property
    def note(self) -> str | None:
        """Explanation of a guaranteed rate other than ``RATE``; None if it is ``RATE``."""
        if self.rate == RATE:
            return None
        return (
            f"There are only {self.n_val_groups} groups of inner validation images. A limit that at most {RATE:.0%} of "
            f"images like the training images exceed requires {_FEWEST_GROUPS} groups. The limit used is the largest "
            f"of their distances; the guaranteed rate is {self.rate:.1%}."
        )

    def of(self, seen: Observed) -> Float:
        """Compute the score (n,): the largest ratio of a view's distance to its limit; an image above 1 is unusual."""
        ratios = [self.views[name].distance(_present(seen, name)) / self.limits[name] for name in self.views]
        return np.max(ratios, axis=0)

    def save(self) -> bytes:
        """Return the content of ``NOVELTY_FILE``; equal arrays give equal bytes."""
        return arrays_bytes(
            {f"{name}.{key}": array for name, view in self.views.items() for key, array in vars(view).items()}
        )

    def record(self, content: bytes, rate: InDistribution) -> OodRecord:
        """Return the entry ``novelty`` of the metadata.

        Args:
            content: The result of ``save``.
            rate: How often the detector flags test images.
        """
        return OodRecord(
            method=METHOD,
            file=NOVELTY_FILE,
            sha256=hashlib.sha256(content).hexdigest(),
            views={
                name: OodView(method=_VIEWS[name], dimensions=len(view.centre), threshold=self.limits[name])
                for name, view in self.views.items()
            },
            left_out=self.left_out,
            statistics=list(STATISTICS),
            n_train=self.n_train,
            n_val=self.n_val,
            n_val_groups=self.n_val_groups,
            expected_rate=self.rate,
            note=self.note,
            in_distribution=rate,
        )


def training_sample(rows: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Choose the training images that the views are fitted on: all, or ``_MAX_TRAIN`` at random.

    Args:
        rows: (n,) rows of the training images.
        seed: Seed of the choice.

    Returns:
        (min(n, MAX_TRAIN),) rows in ascending order.
    """
    if len(rows) <= _MAX_TRAIN:
        return np.sort(rows)
    return np.sort(np.random.default_rng(seed).choice(rows, _MAX_TRAIN, replace=False))


def fit_ood_detector(train: Observed, label: NDArray[np.int64], val: Observed, group: ArrayLike) -> OodDetector | str:
    """Fit both views.

    Args:
        train: n training images of the fold.
        label: (n,) classes of the training images.
        val: The fold's m inner validation images; they set the limit only.
        group: (m,) int or str, groups of the inner validation images. With G < ``_FEWEST_GROUPS`` groups the limit is
            the largest distance, which at most 1 / (G + 1) of such images exceed (``OodDetector.rate``).

    Returns:
        The detector, or the reason why none can be fitted.

    Source: Lee et al. (2018), NeurIPS, section 2.1; Ledoit and Wolf (2004), J. Multivariate Analysis 88:365; Lee,
        Barber & Willett (2023), arXiv 2306.06342, section 2 (the quantile where images come in groups).
    """
    if not len(val.statistics):
        return "there are no inner validation images to set a limit"
    views: dict[str, Gaussian] = {}
    left_out: dict[str, str] = {}
    shares: dict[str, Float] = {}
    middles: dict[str, float] = {}
    for name in _VIEWS:
        values = train.view(name)
        if values is None:
            left_out[name] = "the network has no classifier whose input could be recorded"
            continue
        if isinstance(view := fit_gaussian(values, label if name == "features" else np.zeros_like(label), name), str):
            left_out[name] = view
            continue
        middles[name] = float(np.median(view.distance(values)))
        if not 0 < middles[name] < np.inf:
            left_out[name] = "the median distance of the training images is zero or not finite"
            continue
        views[name], shares[name] = view, view.distance(_present(val, name)) / middles[name]
    if not views:
        return "; ".join(f"{name}: {reason}" for name, reason in left_out.items())
    code = np.unique(np.asarray(group), return_inverse=True)[1]
    joint = conformal_quantile(np.max(list(shares.values()), axis=0), code, RATE)
    if not 0 < joint < np.inf:
        return "the limit from the inner validation images is zero or not finite"
    limits = {name: middles[name] * joint for name in views}
    return OodDetector(views, limits, left_out, len(train.statistics), len(val.statistics), int(code.max()) + 1)


def conformal_quantile(values: Float, code: NDArray[np.int64], rate: float) -> float:
    """Compute the value that a random image of a new, exchangeable group exceeds with probability at most ``rate``.

    Each of G groups has weight 1 / (G + 1), divided evenly among its images; the new group has the rest. The quantile
    is the smallest value up to which the weights sum to 1 - rate, or the largest value if G is too small for that. With
    one image in each group it is the order statistic of rank ceil((n + 1) (1 - rate)).

    Args:
        values: (n,) float, n >= 1.
        code: (n,) int, group of each value, 0 ... G - 1.
        rate: Probability in (0, 1).
    """
    sizes = np.bincount(code)
    order = np.argsort(values, kind="stable")
    weight = np.cumsum(1 / ((len(sizes) + 1) * sizes[code[order]]))
    rank = int(np.searchsorted(weight, 1 - rate - 1e-9))
    return float(values[order[min(rank, len(values) - 1)]])


def read_ood_detector(folder: Path, metadata: ModelMetadata) -> OodDetector | None:
    """Read the detector of a fold; None if its metadata has none.

    Raises:
        UsvitError: If the file is missing or damaged, or is not the one that the metadata names.
    """
    record = metadata.novelty
    if record is None:
        return None
    path = folder / NOVELTY_FILE
    content = read_beside(folder, NOVELTY_FILE, record.sha256, MAX_BYTES)
    if record.statistics != list(STATISTICS):
        raise UsvitError(f"{path} was written by a version of usvit with other image statistics. Use that version.")
    try:
        arrays = load_arrays(content)
        names = [name for name in _VIEWS if name in record.views]
        views = {name: Gaussian(**{key: arrays[f"{name}.{key}"] for key in Gaussian.__annotations__}) for name in names}
        limits = {name: record.views[name].threshold for name in names}
        if not views or not all(_fits(view) for view in views.values()):
            raise ValueError("the shapes of its arrays do not match")
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"{path}, or its entry in model.json, is damaged ({reason}). Copy both again.") from error
    return OodDetector(views, limits, record.left_out, record.n_train, record.n_val, record.n_val_groups)


def fit_gaussian(values: Float, label: NDArray[np.int64], name: str) -> Gaussian | str:
    """Fit means and a shrunk covariance to values (n, D) of a view, or return the reason why it is impossible."""
    if len(values) < 2 or not np.isfinite(values).all():
        return "fewer than two training images" if len(values) < 2 else "features that are not finite"
    centre, scale = values.mean(0), np.ones(values.shape[1])
    if name == "picture":
        low, first, middle, third, high = np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95], axis=0)
        centre, scale = middle, np.maximum(np.maximum((third - first) / 1.349, (high - low) / 3.29), RESOLUTION)
    kept_centre, kept_scale = centre.astype(np.float32), scale.astype(np.float32)  # float32, as they are read back
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
        mean_variance = 1.0  # all images are equal: a difference of RESOLUTION has distance 1
    shrinkage = max(_shrinkage(away), 1e-4)
    if len(away) > away.shape[1]:
        variance, directions = np.linalg.eigh(away.T @ away / len(away))
        basis = directions.T
    else:
        _, singular, basis = np.linalg.svd(away, full_matrices=False)
        variance = singular**2 / len(away)
    rest = shrinkage * mean_variance
    spread = (1 - shrinkage) * variance
    told = spread > 0.01 * rest  # the variance along the others is close to rest
    return Gaussian(
        kept_centre,
        kept_scale,
        means.astype(np.float32),
        np.ascontiguousarray(basis[told], dtype=np.float32),
        (spread[told] + rest).astype(np.float32),
        np.array([rest], dtype=np.float32),
    )


def _shrinkage(away: Float) -> float:
    """Compute Ledoit and Wolf's shrinkage of centred values (n, D), with products of (n, n) if D is large."""
    n, width = away.shape
    if width <= _WIDE:
        from sklearn.covariance import ledoit_wolf_shrinkage  # on use: importing scikit-learn takes half a second

        return float(ledoit_wolf_shrinkage(away, assume_centered=True))
    squares = away**2
    mean, spread = squares.sum() / (n * width), float(((away @ away.T) ** 2).sum()) / n**2
    noise = (float((squares.sum(1) ** 2).sum()) / n - spread) / (width * n)
    delta = (spread - 2 * mean * squares.sum() / n + width * mean**2) / width
    return float(np.clip(noise / delta, 0, 1)) if delta > 0 else 0.0


def _present(seen: Observed, name: str) -> Float:
    values = seen.view(name)
    if values is None:
        raise ValueError(f"the detector uses the view '{name}', which these images lack")
    return values


def _fits(view: Gaussian) -> bool:
    """Return True if the shapes of a file's arrays match."""
    (dimensions,) = view.centre.shape
    finite = all(array.dtype == np.float32 and np.isfinite(array).all() for array in vars(view).values())
    shapes = view.scale.shape == (dimensions,) and view.means.shape[1:] == view.basis.shape[1:] == (dimensions,)
    counts = view.means.ndim == 2 and len(view.means) > 0 and view.variance.shape == (len(view.basis),)
    positive = view.rest.shape == (1,) and view.rest.min() > 0 and view.scale.min() > 0
    return bool(finite and shapes and counts and positive and (not len(view.variance) or view.variance.min() > 0))
