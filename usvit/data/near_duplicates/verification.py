"""Verify near-duplicates: align the landmarks of two images and count those that fit.

B-mode images look alike at low resolution: bright above and dark below. The places of a hundred blobs, to a pixel, and
the surroundings of each identify a frame.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usvit.data.io import UInt8
from usvit.data.near_duplicates.candidates import MAX_BITS, MAX_SCALE_RATIO, CandidatePair, changed, consistent
from usvit.data.near_duplicates.description import CHANGES, Description, UInt64

_MAX_MATCHES = 80
"""Maximum number of matched landmarks that are used, best first."""
_MAX_TRIES = 3
"""Number of transforms between the images that are refined: those on which most landmarks agree roughly."""
_MAX_ERROR = 4.0
"""Maximum distance of a landmark from its expected place, in pixels of the working image (perspective, rounding)."""
_MAX_STRETCH = 2.2
"""Maximum stretch of one axis relative to the other."""
_CELL = 24
"""Side of a square in pixels of the working image; landmarks in one square count once."""

Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """Agreement of the landmarks of two images."""

    landmarks: int
    """Number of squares of ``_CELL`` pixels with a landmark that fits."""
    share: float
    """Share of squares with a landmark that fits, of the squares with landmarks that both images show; in [0, 1]."""
    spread: float
    """Area over which the landmarks that fit are scattered, without the farthest tenth, relative to that of all
    landmarks that both images show."""
    turn: float
    """Rotation of the second image relative to the first, in degrees from -180 to 180."""


_NO_FIT = Fit(0, 0.0, 0.0, 0.0)


def fit(first: Description, second: Description, candidate: CandidatePair) -> Fit:
    """Align the second image, changed as the candidate says, with the first one by an affine transform.

    Args:
        first: Description of image ``candidate.first``.
        second: Description of image ``candidate.second``.
        candidate: Views of the two images to compare, and the change between them.
    """
    landmarks, hashes = _view(first, candidate.first_stretched)
    other_landmarks, other_hashes = _view(second, candidate.second_stretched)
    bits = np.bitwise_count(hashes[:, None] ^ (other_hashes ^ CHANGES[candidate.change]))
    i, j = np.nonzero(bits <= MAX_BITS)
    if len(i) < 3:
        return _NO_FIT
    best = np.argsort(bits[i, j], kind="stable")[:_MAX_MATCHES]
    i, j = i[best], j[best]
    all_a, all_b = changed(landmarks, 0), changed(other_landmarks, candidate.change)
    a, b = all_a[i], all_b[j]
    agree = consistent(a[:, None], b[:, None], a[None], b[None]).sum(axis=1)
    found = _NO_FIT
    for start in np.argsort(-agree, kind="stable")[:_MAX_TRIES]:
        if agree[start] < 3:
            break
        inliers, matrix = _refined(a, b, consistent(a[start], b[start], a, b))
        if len(inliers) < 3:
            continue
        tried = _judged(all_a, all_b, a[inliers], matrix)
        if (tried.landmarks, tried.share) > (found.landmarks, found.share):
            found = tried
    return found


def _view(description: Description, stretched: bool) -> tuple[UInt8, UInt64]:
    split = len(description.hashes) - description.n_stretched
    part = slice(split, None) if stretched else slice(0, split)
    return description.landmarks[part], description.hashes[part]


def _refined(a: Float64, b: Float64, agree: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Float64]:
    """Return the matches that follow one affine transform, and the (3, 2) transform from first to second."""
    inliers, matrix = np.flatnonzero(agree), np.zeros((3, 2))
    none = np.zeros(0, np.int64)
    places = np.column_stack([a[:, :2], np.ones(len(a))])
    for step in range(4):
        if len(inliers) < 3:
            return none, matrix
        matrix = _affine(a[inliers], b[inliers])
        stretch = np.linalg.svd(matrix[:2], compute_uv=False)
        if np.linalg.det(matrix[:2]) <= 0 or stretch[0] > _MAX_STRETCH * stretch[1]:
            return none, matrix
        scale = np.sqrt(stretch[0] * stretch[1])
        error = np.linalg.norm(places @ matrix - b[:, :2], axis=1)
        near = error <= (_MAX_ERROR if step > 1 else 2 * _MAX_ERROR) * max(scale, 0.5)
        inliers = np.flatnonzero(near & (np.abs(b[:, 2] - a[:, 2] - np.log(scale)) < np.log(MAX_SCALE_RATIO)))
    return inliers, matrix


def _affine(a: Float64, b: Float64) -> Float64:
    """Fit a (3, 2) transform by least squares; for few landmarks, only a rotation, a scale and a shift."""
    ones, zeros = np.ones(len(a)), np.zeros(len(a))
    x, y = a[:, 0], a[:, 1]
    if len(a) >= 6:
        return np.asarray(np.linalg.lstsq(np.column_stack([x, y, ones]), b[:, :2])[0])
    rows = np.concatenate([np.column_stack([x, -y, ones, zeros]), np.column_stack([y, x, zeros, ones])])
    along, across, shift_x, shift_y = np.linalg.lstsq(rows, np.concatenate([b[:, 0], b[:, 1]]))[0]
    return np.array([[along, across], [-across, along], [shift_x, shift_y]])


def _judged(all_a: Float64, all_b: Float64, inliers: Float64, matrix: Float64) -> Fit:
    """Count the landmarks that fit, and those expected to: in the area and of the sizes that both images show."""
    scale = np.sqrt(np.linalg.det(matrix[:2]))
    place = np.column_stack([all_a[:, :2], np.ones(len(all_a))]) @ matrix
    size = all_a[:, 2] + np.log(scale)
    low, high = all_b[:, :2].min(axis=0), all_b[:, :2].max(axis=0)
    shown = ((place >= low) & (place <= high)).all(axis=1)
    shown &= (size >= all_b[:, 2].min()) & (size <= all_b[:, 2].max())
    fitting = _cells(inliers)
    expected = max(1, len(np.union1d(_cells(all_a[shown]), fitting)))
    spread = _scatter(_near(inliers)) / max(_scatter(np.concatenate([all_a[shown], inliers])), 1.0)
    turn = np.degrees(np.arctan2(matrix[0, 1], matrix[0, 0]))
    return Fit(len(fitting), len(fitting) / expected, spread, float(turn))


def _near(landmarks: Float64) -> Float64:
    """Leave out the tenth, at least one, that is farthest from the median: outliers that fit by chance."""
    away = np.linalg.norm(landmarks[:, :2] - np.median(landmarks[:, :2], axis=0), axis=1)
    return landmarks[np.argsort(away, kind="stable")[: len(landmarks) - max(1, len(landmarks) // 10)]]


def _scatter(landmarks: Float64) -> float:
    """Return an area in square pixels: the product of the standard deviations along the main axes."""
    return float(np.sqrt(max(0.0, np.linalg.det(np.cov(landmarks[:, :2], rowvar=False)))))


def _cells(landmarks: Float64) -> NDArray[np.int64]:
    across, down = (landmarks[:, :2] // _CELL).astype(np.int64).T
    return np.unique(down * 1000 + across)
