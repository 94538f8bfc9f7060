"""``compare-masks.json`` of ``usvit compare`` for segmentations."""

from typing import ClassVar

from usvit.estimate import Estimate
from usvit.records.base import Count, FileRecord, Name, Record, Share, key
from usvit.records.mask_estimates import MaskEstimates


class ComparedMasks(MaskEstimates):
    """Figures of one segmentation."""

    name: Name


class MaskDifference(Record):
    """Mean difference of a figure over the same images, first minus second."""

    a: Name
    b: Name
    figure: Name
    n_images: Count = key("Images for which the figure is defined in both.")
    difference: Estimate = key("Its interval and its p-value count groups; the networks are taken as given.")
    p_holm: Share | None = key("p-value after Holm's correction for all p-values of this file.")


class CompareMasksRecord(FileRecord):
    """Segmentations compared pair by pair on the same test images in the same folds."""

    KIND: ClassVar[str] = "compare-masks"
    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)
    n_folds: Count = key(minimum=1)
    runs: list[ComparedMasks] = key(minItems=2)
    differences: list[MaskDifference] = key(minItems=1)
