"""Settings of ``usvit transfer --how segment``: a head that predicts the class of each pixel."""

from typing import Annotated, Literal

from pydantic import Field

from usvit.config.sections import AugmentPolicy, Section

SegmentHead = Literal["linear", "segmenter", "upernet", "mask_rcnn", "unet"]


class SegmentConfig(Section):
    """``segment``: the head, its loss and the classes. Size, length and rates are those of ``model``, ``train`` and
    ``optim``."""

    head: SegmentHead = "upernet"
    """On the feature maps of the network: ``linear``; ``segmenter``, the mask transformer of Strudel et al. 2021;
    ``upernet`` (Xiao et al. 2018); or ``mask_rcnn``, torchvision's detector (He et al. 2017) with its own loss, for
    lesions only. ``unet``: MONAI's U-Net instead of the network, from random weights."""
    peer: SegmentHead | None = None
    """A second head, trained and tested in the same folds with the same settings, and compared image by image."""
    loss: Literal["dice_ce", "ce"] = "dice_ce"
    """``dice_ce``: MONAI's soft Dice loss and cross-entropy, 1 : 1; ``ce``: cross-entropy alone."""
    table: str | None = None
    """CSV with columns ``value`` and ``name``: the classes, and their values in the masks; or an annotation file of
    COCO, whose categories are the classes beside the background. Pixels of other values do not count. null: lesion
    against background."""
    test: str | None = None
    """For the data sets ``masks`` and ``coco`` with folders of images: the folder that is tested, such as
    ``validation`` of ADE20k; all others are for training. null: folds."""
    augment: AugmentPolicy = "none"
    """Augmentation of the training images and their masks, as ``input.augment`` of ``usvit cv``."""
    resize: Literal["squash", "pad"] = "pad"
    """``squash`` the image to a square, or ``pad`` it. Predicted masks are mapped back to the image's size."""
    width: Annotated[int, Field(ge=8)] = 128
    """Channels of the feature pyramid of ``upernet`` and ``mask_rcnn``; 512 and 256 in the papers."""
    depth: Annotated[int, Field(ge=1)] = 2
    """Layers of ``segmenter``."""
    channels: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=2)] = (16, 32, 64, 128, 256)
    """Channels of each level of ``unet``, which has two residual units in each."""
