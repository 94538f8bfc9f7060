"""``explain.json`` of ``usvit explain``."""

from typing import Annotated, ClassVar

from pydantic import Field

from usvit.estimate import Estimate
from usvit.records.base import (
    BY_NAME,
    Count,
    FileRecord,
    Fold,
    Name,
    Number,
    Record,
    Sha256,
    Share,
    Text,
    key,
    optional,
)
from usvit.records.model import TestPreprocessing

_Png = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}\.png$")]
_Grid = Annotated[list[Count], Field(min_length=2, max_length=2)]
_GRID = "Number of rows and columns of patches, or of cells of the feature map."


class MaskScores(Record):
    """Agreement of one attention head with the mask."""

    pointing: Share | None
    share: Share | None


class MaskAgreement(Record):
    """Agreement of the map with the lesion's mask."""

    area: Share = key("Share of the input that the lesion covers: the score of a map without information.")
    pointing: Share | None = key(
        "1 if the map's maximum lies in the mask, 0 if not; for tied maxima: the share in the mask. Null: blank."
    )
    share: Share | None = key("Share of the map's sum that lies in the mask; null: blank.")


class ExplainedImage(Record):
    """Map of one image."""

    model_config = BY_NAME
    dataset: Name = key("Data set, or SOURCE:SPLIT.")
    image_id: Name = key("Id, or name of the file in the source or folder.")
    group_id: Name | None = key("Null for the images of a source or folder.")
    fold: Fold | None = key(
        "Fold whose network made the map; the image is in the test split of this fold. Null for other images."
    )
    label: Name | None = key("Null without a label.")
    predicted: Name | None = key("Null for a network without a classifier.")
    probabilities: dict[str, Share] = key(
        "Class -> probability, from the fold's predictions.csv; for the images of a source or folder, of the most "
        "probable classes."
    )
    class_: Name | None = key(
        "Class whose score the map, or the first of several maps, explains; null if it is of no class (attention, "
        "rollout).",
        alias="class",
    )
    file: _Png = key("PNG file in the same folder.")
    shows_image: bool = key("false: the licence does not clearly allow a copy, so the picture shows only the map.")
    blank: bool = key("The map has the same value everywhere, so it contains no information.")
    mask: MaskAgreement | None = key("Null if the image has no mask.")
    heads: list[MaskScores] | None = optional("Scores of each attention head, only for the method attention.")


class AgainstMasks(Record):
    """Agreement of the maps with lesion masks, over images."""

    n_images: Count = key("Images with a mask whose map is not blank.")
    n_groups: Count
    n_blank: Count = key("Images with a mask whose map is blank; they are in no mean.")
    pointing: Estimate = key("Pointing game.")
    share: Estimate = key("Mean share of the map in the mask.")
    area: Estimate = key("Mean share of the image that the lesion covers: the chance level of both.")
    centre: Estimate = key("Pointing game of a map that always points at the image's centre.")


class LayerRecord(Record):
    """Attention distances of one layer."""

    layer: Name
    heads: list[Number] = key(
        "Mean distance of each head, in pixels of the input.", items={"type": "number", "minimum": 0}
    )
    prefix_share: list[Share] = key(
        "Share of each head's attention on class, distillation and register tokens, which have no position."
    )


class BranchNorms(Record):
    """Mean over images of |g(x)| / |x| for the two residual branches of one layer, x <- x + g(x)."""

    layer: Name = key()
    attention: Number = key(minimum=0)
    mlp: Number = key(minimum=0)


class MixingRecord(Record):
    """Shares of small weights in the matrices of one layer of a ResMLP."""

    layer: Name = key()
    sparsity: Share = key("Of the linear map over patches.")
    mlp_sparsity: list[Share] = key("Of the first and the second matrix of the MLP.", minItems=2, maxItems=2)
    file: _Png | None = key("Rows of the linear map as images; null: not drawn.")


class ExplanationRecord(Record):
    """Output of one method. Which keys it has depends on the method."""

    source: Text = key("The paper.")
    part: Name | None = optional("Images of the test splits of a run; otherwise images_of says which.", const="test")
    images_of: Name | None = optional("SOURCE:SPLIT of the images; absent for the test images of a run.")
    fold: Fold | None = optional(null=True)
    layer: Text | None = optional("Layer of the network; of several, the last, whose map is scored.", null=True)
    shown_layers: list[Text] | None = optional("The layers in the picture, if there are several.")
    grid: _Grid | None = optional(_GRID)
    notes: list[Text] | None = optional()
    images: Annotated[list[ExplainedImage], Field(max_length=100_000)] | None = optional()
    against_masks: AgainstMasks | None = optional("Null if no image has a mask.", null=True)
    n_images: Count | None = optional()
    n_groups: Count | None = optional()
    uniform: Number | None = optional("Distance in pixels if every patch attended equally to all patches.")
    image_size: Count | None = optional()
    layers: list[LayerRecord] | None = optional()
    residuals: list[BranchNorms] | None = optional()
    threshold: Share | None = optional(
        "A weight is small if its absolute value is below this share of the largest of its matrix."
    )
    mixing: list[MixingRecord] | None = optional()
    same_row: Number | None = optional("Mean cosine similarity over pairs of patches in the same row.", null=True)
    same_column: Number | None = optional(null=True)
    others: Number | None = optional(null=True)
    n_filters: Count | None = optional()
    size: list[Count] | None = optional("Height and width in pixels.", minItems=2, maxItems=2)
    explained: list[Share] | None = optional("Share of the filters' variance for each component shown.")
    file: _Png | None = optional()


_KEYS = {
    "rollout": ["images", "against_masks"],
    "attention": ["images", "against_masks"],
    "gradcam": ["images", "against_masks"],
    "occlusion": ["images", "against_masks"],
    "distance": ["n_images", "uniform", "image_size", "layers", "file"],
    "residuals": ["n_images", "image_size", "residuals", "file"],
    "positions": ["fold", "grid", "same_row", "same_column", "others", "file"],
    "filters": ["fold", "layer", "n_filters", "size", "explained", "file"],
    "mixing": ["fold", "grid", "threshold", "mixing", "file"],
}
"""Method -> keys that its output has besides ``source``."""


class ExplainRecord(FileRecord):
    """Output of 'usvit explain': one entry for each method; each file that it names is a PNG in the same folder."""

    KIND: ClassVar[str] = "explain"
    run: Text = key("Name of the run, of its folder, or of other weights.")
    model: Text
    classes: list[Name] = key("Empty for a network without a classifier.")
    positive_class: Name | None = key("Null for weights that are not of a run of usvit cv or train.")
    image_size: Count = key("Side of the network's input, in pixels.")
    weights_sha256: dict[str, Sha256] = key("Fold -> SHA-256 of its model.safetensors; 0 -> that of other weights.")
    preprocessing: TestPreprocessing | None = optional("For the images of a source or folder.")
    methods: dict[Name, ExplanationRecord] = key(
        "rollout, attention, gradcam and occlusion: one map for each image. distance: mean attention distance of each "
        "head in each layer. residuals: norms of the residual branches. positions: cosine similarity of the position "
        "embeddings. filters: principal components of the first layer's filters. mixing: linear maps over patches.",
        allOf=[{"properties": {name: {"required": keys} for name, keys in _KEYS.items()}}],
        propertyNames={"enum": [*_KEYS]},
    )
