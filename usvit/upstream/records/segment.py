"""Entry ``segment`` of ``transfer.json``: what a segmentation measures."""

from typing import Annotated

from pydantic import Field

from usvit.estimate import Estimate
from usvit.records.base import Count, Fold, Name, Number, Record, Share, Text, key, optional


class ClassOverlap(Record):
    """Agreement of one class over all pixels of all images; null if no pixel has the class."""

    name: Text
    iou: Share | None = key("Intersection over union.")
    accuracy: Share | None = key("Share of the pixels of the class that are predicted as such.")
    dice: Share | None


class FrocPoint(Record):
    """Share of lesions that is found with at most some false candidates per image."""

    false_per_image: Number = key(minimum=0)
    sensitivity: Estimate


class SegmentedHead(Record):
    """Figures of one head over the test images of all folds."""

    head: Name
    n_params: Count = key("Trained parameters.")
    seconds: Number = key("Duration of the training in all folds.", minimum=0)
    miou: Estimate = key("Mean over classes of the intersection over union, over all pixels.")
    pixel_accuracy: Estimate
    mean_class_accuracy: Estimate
    classes: list[ClassOverlap]
    dice: Estimate | None = optional("Mean over the images with a lesion; this and all below for lesions only.")
    iou: Estimate | None = optional("Mean over the images with a lesion.")
    hd95: Estimate | None = optional("Mean 95 % Hausdorff distance in pixels, of images with both masks.")
    hd95_mm: Estimate | None = optional("The same in mm, of images whose pixel spacing is known.")
    missed: Estimate | None = optional("Share of the images with a lesion in which none is predicted.")
    false_alarm: Estimate | None = optional("Share of the images without a lesion in which one is predicted.")
    ap: Estimate | None = optional("Average precision of the candidates' boxes, mean over IoU 0.5 to 0.95 (COCO).")
    ap50: Estimate | None = optional("Average precision of the candidates' boxes at an IoU of 0.5.")
    lesion_sensitivity: Estimate | None = optional("Share of lesions found by a candidate of 0.5 or more.")
    froc: list[FrocPoint] | None = optional()


class SegmentDifference(Record):
    """Mean over the same images of the head's figure less that of its peer."""

    figure: Name
    difference: Estimate


class Overlay(Record):
    """Picture of one case."""

    file: Text
    image_id: Text
    fold: Fold
    dice: Share | None
    has_image: bool = key("False if the licence does not allow the image itself; then the outlines are on black.")


class SegmentationRecord(Record):
    """Heads that were trained and tested in the same folds."""

    n_folds: Count = key(minimum=1)
    n_images: Count = key("Tested images.")
    n_groups: Count
    n_lesions: Count | None = optional("Connected components of the true masks.")
    n_without_mask: Count = key("Images without a mask file, which are left out.")
    heads: Annotated[list[SegmentedHead], Field(max_length=2)] = key("The head and its peer.", minItems=1)
    differences: list[SegmentDifference] = key("Empty without a peer.")
    overlays: list[Overlay]
