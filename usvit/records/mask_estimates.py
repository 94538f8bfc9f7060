"""Entry ``masks`` of ``metrics.json``: predicted lesion masks against the true ones."""

from usvit.estimate import Estimate
from usvit.records.base import Count, Record, key


class MaskEstimates(Record):
    """Means over the test images with a mask file, each predicted by a decoder that was not trained on it."""

    n_images: Count = key("Test images with a mask file; the rows of masks.csv.")
    dice: Estimate = key("Of images with a lesion.")
    iou: Estimate = key("Intersection over union, of images with a lesion.")
    hd95: Estimate = key("95 % Hausdorff distance in pixels, of images with both masks.")
    pixel_accuracy: Estimate
    missed: Estimate = key("Share of the images with a lesion in which none is predicted.")
    false_alarm: Estimate = key("Share of the images with an empty mask in which a lesion is predicted.")
