"""Copies of one frame: the same image stored again, cropped, on a canvas, turned, mirrored, inverted or annotated.

Three steps: describe each image by its landmarks, find candidates by equal hashes, lay one over the other.
"""

from usvit.data.copies.description import Description, describe
from usvit.data.copies.find import (
    ENOUGH_COPIES,
    MIN_LANDMARKS,
    MIN_SIMILARITY,
    Copy,
    clusters,
    find_copies,
    find_copies_between,
)

__all__ = [
    "ENOUGH_COPIES",
    "MIN_LANDMARKS",
    "MIN_SIMILARITY",
    "Copy",
    "Description",
    "clusters",
    "describe",
    "find_copies",
    "find_copies_between",
]
