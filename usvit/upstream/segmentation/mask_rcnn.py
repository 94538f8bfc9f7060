"""Mask R-CNN as a head on the feature maps of a network: boxes of lesions and the mask in each.

Source: He et al. (2017), Mask R-CNN, ICCV, with the feature pyramid of Lin et al. (2017). All parts are torchvision's;
anchors are as small as lesions in small images.
"""

from collections import OrderedDict
from collections.abc import Sequence

import torch
from scipy.ndimage import label
from torch import Tensor, nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.anchor_utils import AnchorGenerator
from torchvision.models.detection.image_list import ImageList
from torchvision.models.detection.mask_rcnn import MaskRCNNHeads, MaskRCNNPredictor
from torchvision.models.detection.roi_heads import paste_masks_in_image
from torchvision.ops import FeaturePyramidNetwork, MultiScaleRoIAlign, masks_to_boxes

from usvit.metrics.lesion_detection import AROUND

_ANCHOR = 4
"""Side of the square anchor of a map, in its cells; 8 in the paper, for photographs of 800 px."""
_RATIOS = (0.5, 1.0, 2.0)
_DETECTIONS = 20
"""Largest number of boxes of an image; 100 in the paper."""
_PROPOSALS = 64
"""Anchors, and proposals, of an image that the losses count; 256 and 512 in the paper, for many objects."""
_KEPT = 200
"""Proposals of a map, and of an image, before and after the suppression of overlapping ones; 2,000 in the paper."""
_LAYERS = 4
"""Convolutions of the mask head."""
_LEAST = 1e-6


class MaskRCNNMasks(nn.Module):
    """Mask R-CNN for lesions; its map of the lesion is the highest product of a box's score and mask at each pixel.

    Args:
        channels: Channels of each map, finest first.
        strides: Pixels of the image for each cell of each map.
        image_size: Side S of the images in pixels.
        width: Channels of the feature pyramid; 256 in the paper.
        neck: Applied to the maps first.
    """

    def __init__(self, channels: Sequence[int], strides: Sequence[int], image_size: int, width: int, neck: nn.Module):
        super().__init__()
        self.image_size, self.neck = image_size, neck
        self.names = [str(level) for level in range(len(channels))]
        self.pyramid = FeaturePyramidNetwork([*channels], width)
        anchors = AnchorGenerator(tuple((_ANCHOR * one,) for one in strides), (_RATIOS,) * len(strides))
        no_network = nn.Module()  # torchvision asks it for the number of channels alone
        no_network.out_channels = width  # type: ignore[assignment]
        parts = MaskRCNN(
            no_network,
            num_classes=2,
            rpn_anchor_generator=anchors,
            box_roi_pool=MultiScaleRoIAlign(self.names, output_size=7, sampling_ratio=2),
            mask_roi_pool=MultiScaleRoIAlign(self.names, output_size=14, sampling_ratio=2),
            mask_head=MaskRCNNHeads(width, (width,) * _LAYERS, 1),
            rpn_batch_size_per_image=_PROPOSALS,
            box_batch_size_per_image=_PROPOSALS,
            box_detections_per_img=_DETECTIONS,
            **{f"rpn_{when}_nms_top_n_{mode}": _KEPT for when in ("pre", "post") for mode in ("train", "test")},
        )
        self.rpn, self.roi_heads = parts.rpn, parts.roi_heads
        self.roi_heads.mask_predictor = MaskRCNNPredictor(width, width, 2)  # torchvision's reads 256 channels

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """Map (B, C_i, h_i, w_i), finest first, to logits (B, 2, S, S) of background and lesion."""
        found, _ = self._detect(maps, None)
        side = (self.image_size, self.image_size)
        shares = []
        for one in found:
            masks = paste_masks_in_image(one["masks"], one["boxes"], side)[:, 0] * one["scores"][:, None, None]
            shares.append(masks.amax(0) if len(masks) else masks.new_zeros(side))
        lesion = torch.stack(shares).clamp(_LEAST, 1 - _LEAST)
        return torch.stack([(1 - lesion).log(), lesion.log()], dim=1)

    def losses(self, maps: Sequence[Tensor], labels: Tensor) -> Tensor:
        """Compute the summed losses of images: of proposals, classes, boxes and masks, 1 : 1 : 1 : 1 : 1.

        Args:
            maps: As for ``forward``.
            labels: (B, S, S) int64, 1 in lesions. Each connected component (eight neighbours) is one.
        """
        _, losses = self._detect(maps, [instances(one) for one in labels])
        total: Tensor = torch.stack([*losses.values()]).sum()
        return len(labels) * total  # torchvision's are means over images

    def _detect(
        self, maps: Sequence[Tensor], targets: list[dict[str, Tensor]] | None
    ) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
        features = self.pyramid(OrderedDict(zip(self.names, self.neck(maps), strict=True)))
        device, side = maps[0].device, (self.image_size, self.image_size)
        with torch.autocast(device.type, enabled=False):  # boxes need more digits than those of bfloat16
            features = {name: one.float() for name, one in features.items()}
            images = ImageList(torch.empty(1, 3, *side, device=device), [side] * len(maps[0]))
            proposals, of_proposals = self.rpn(images, features, targets)
            found, of_boxes = self.roi_heads(features, proposals, images.image_sizes, targets)
        return found, of_proposals | of_boxes


def instances(labels: Tensor) -> dict[str, Tensor]:
    """Return the targets of torchvision for an image: boxes (N, 4) in pixels, classes (N,) and masks (N, S, S); N >= 0.

    Args:
        labels: (S, S) int64, 1 in lesions.
    """
    parts, n = label((labels == 1).cpu().numpy(), AROUND)
    masks = torch.from_numpy(parts)[None] == torch.arange(1, n + 1)[:, None, None]
    boxes = masks_to_boxes(masks)
    boxes[:, 2:] += 1  # the last pixel belongs to the lesion
    classes = torch.ones(n, dtype=torch.int64)
    found = {"boxes": boxes.float(), "labels": classes, "masks": masks.to(torch.uint8)}
    return {name: one.to(labels.device) for name, one in found.items()}
