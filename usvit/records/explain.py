"""``explain.json`` of ``usvit explain``."""

from typing import Annotated, ClassVar

from pydantic import Field

from usvit.records.base import (
    Count,
    FileRecord,
    Fold,
    Name,
    Number,
    Record,
    Sha256,
    Share,
    Text,
    Version,
    key,
    nullable,
    optional,
    written,
)
from usvit.records.values import PlainValue

_Png = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,200}\.png$")]
_Grid = Annotated[list[Count], Field(min_length=2, max_length=2)]
_GRID = "Number of rows and columns of patches, or of cells of the feature map."


class MaskScores(Record):
    """Agreement of one attention head with the mask."""

    pointing: Share | None = nullable()
    share: Share | None = nullable()


class MaskAgreement(Record):
    """Agreement of the map with the lesion's mask."""

    area: Share | None = written("Share of the input that the lesion covers: the score of a map without information.")
    pointing: Share | None = nullable(
        "1 if the map's maximum lies in the mask, 0 if not; for tied maxima: the share in the mask. Null: blank."
    )
    share: Share | None = nullable("Share of the map's sum that lies in the mask; null: blank.")


class ExplainedImage(Record):
    """Map of one image."""

    dataset: Name | None = written()
    image_id: Name | None = written()
    group_id: Name | None = written()
    fold: Fold | None = written("Fold whose network made the map; the image is in the test split of this fold.")
    label: Name | None = written()
    predicted: Name | None = written()
    probabilities: dict[str, Share] | None = written("Class -> probability, from the fold's predictions.csv.")
    class_: Name | None = written(
        "Class whose score the map explains; null if the map is of no class (attention, rollout).",
        null=True,
        alias="class",
    )
    file: _Png | None = written("PNG file in the same folder.")
    shows_image: bool | None = written(
        "false: the licence does not clearly allow a copy, so the picture shows only the map."
    )
    blank: bool | None = written("The map has the same value everywhere, so it contains no information.")
    mask: MaskAgreement | None = written("Null if the image has no mask.", null=True)
    heads: list[MaskScores] | None = optional("Scores of each attention head, only for the method attention.")


class AgainstMasks(Record):
    """Agreement of the maps with lesion masks, over images."""

    n_images: Count = key("Images with a mask whose map is not blank.")
    n_groups: Count
    n_blank: Count | None = written("Images with a mask whose map is blank; they are in no mean.")
    pointing: PlainValue = key("Pointing game.")
    share: PlainValue = key("Mean share of the map in the mask.")
    area: PlainValue = key("Mean share of the image that the lesion covers: the chance level of both.")
    centre: PlainValue = key("Pointing game of a map that always points at the image's centre.")


class LayerRecord(Record):
    """Attention distances of one layer."""

    layer: Name | None = written()
    heads: list[Number] | None = written(
        "Mean distance of each head, in pixels of the input.", items={"type": "number", "minimum": 0}
    )
    prefix_share: list[Share] | None = written(
        "Share of each head's attention on class, distillation and register tokens, which have no position."
    )


class ExplanationRecord(Record):
    """Output of one method. Which keys it has depends on the method."""

    source: Text | None = written("The paper.")
    part: Name | None = optional(const="test")
    layer: Text | None = optional("Layer of the network.", null=True)
    grid: _Grid | None = optional(_GRID)
    notes: list[Text] | None = optional()
    images: Annotated[list[ExplainedImage], Field(max_length=100_000)] | None = optional()
    against_masks: AgainstMasks | None = optional("Null if no image has a mask.", null=True)
    fold: Fold | None = optional(null=True)
    n_images: Count | None = optional()
    n_groups: Count | None = optional()
    uniform: Number | None = optional("Distance in pixels if every patch attended equally to all patches.")
    image_size: Count | None = optional()
    layers: list[LayerRecord] | None = optional()
    same_row: Number | None = optional("Mean cosine similarity over pairs of patches in the same row.", null=True)
    same_column: Number | None = optional(null=True)
    others: Number | None = optional(null=True)
    n_filters: Count | None = optional()
    size: list[Count] | None = optional("Height and width in pixels.", minItems=2, maxItems=2)
    explained: list[Share] | None = optional("Share of the filters' variance for each component shown.")
    file: _Png | None = optional()


_KEYS = {
    "rollout": ["part", "images", "against_masks"],
    "attention": ["part", "images", "against_masks"],
    "gradcam": ["part", "images", "against_masks"],
    "occlusion": ["part", "images", "against_masks"],
    "distance": ["part", "fold", "n_images", "n_groups", "uniform", "image_size", "layers", "file"],
    "positions": ["fold", "grid", "same_row", "same_column", "others", "file"],
    "filters": ["fold", "layer", "n_filters", "size", "explained", "file"],
}
"""Method -> keys that its output has besides ``source``."""


class ExplainRecord(FileRecord):
    """Output of 'usvit explain': one entry for each method; each file that it names is a PNG in the same folder."""

    KIND: ClassVar[str] = "explain"
    VERSION: ClassVar[str] = "1.0"
    schema_version: Version
    run: Text = key("Name of the run, or of the folder.")
    model: Text | None = written()
    classes: list[Name] | None = written()
    positive_class: Name | None = written()
    image_size: Count | None = written("Side of the network's input, in pixels.")
    weights_sha256: dict[str, Sha256] = key("Fold -> SHA-256 of its model.safetensors.")
    methods: dict[Name, ExplanationRecord] = key(
        "rollout, attention, gradcam and occlusion: one map for each image. distance: mean attention distance of each "
        "head in each layer. positions: cosine similarity of the position embeddings. filters: principal components of "
        "the first layer's filters.",
        allOf=[{"properties": {name: {"required": keys} for name, keys in _KEYS.items()}}],
        propertyNames={"enum": [*_KEYS]},
    )
