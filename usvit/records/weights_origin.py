"""How weights came about: the images and trainings before them, and what was loaded from a file."""

from typing import Annotated, Literal

from pydantic import Field

from usvit.records.base import (
    BY_NAME,
    OPEN,
    Count,
    Fold,
    InGivenOrder,
    Name,
    Record,
    Sha256,
    Text,
    key,
    of_section,
    optional,
)


class SourceRecord(InGivenOrder):
    """A set of images to learn from; further keys depend on the set."""

    model_config = OPEN
    label: Name | None = optional("SOURCE:SPLIT of tested images.")
    name: Text
    images: Count
    classes: Count
    image_size: Count | None = optional("Side of generated images, as the next keys.")
    split: Name | None = optional()
    seed: int | None = optional()
    generator_version: Name | None = optional()
    tested: Count | None = optional("Images that are tested.")
    seen: Count | None = optional("Images that a classifier was trained on; null if none were compared.", null=True)
    listing_sha256: Sha256 | None = optional("SHA-256 of names, classes and labels; absent from generated images.")
    parts: list["SourceRecord"] | None = optional("The sets that were joined.")

    def changed(self, other: "SourceRecord", **more: object) -> "SourceRecord":
        """Return a copy with the keys of another record and further keys."""
        return SourceRecord(**self.content() | other.content() | more)


class ExclusionRecord(Record):
    """Downstream images whose near-duplicates a pre-training leaves out."""

    datasets: list[Name]
    manifest_sha256: Sha256 | None = optional("SHA-256 of the images with a data card.")
    listing_sha256: dict[str, Sha256] | None = optional("Named set -> SHA-256 of its listing.")


class TrainingRecord(Record):
    """One training that led to the weights."""

    model_config = OPEN
    stage: Name | None = optional()
    objective: Name | None = optional()
    recipe: Text | None = optional()
    source: SourceRecord | None = optional("The images.")
    seed: int | None = optional()
    fold: Fold | None = optional()
    steps: Count | None = optional()
    weights_sha256: Sha256 | None = optional("SHA-256 of its model.safetensors.")


class ResizedTensor(Record):
    """Tensor that was resized to the network."""

    model_config = BY_NAME
    name: Text
    from_: list[Count] = key("Shape in the file.", alias="from")
    to: list[Count] = key("Shape in the network.")


class SkippedTensors(Record):
    """Tensors of the file that are not used, for one reason."""

    why: Text
    names: list[Text]


class LoadedRecord(Record):
    """Which tensors of the file were loaded into the network."""

    tensors: Count = key("Number of tensors that were loaded.")
    table: Text | None = key("Table of a training checkpoint that held the tensors.")
    renamed: Count
    resized: list[ResizedTensor]
    skipped: list[SkippedTensors]
    new: list[Text] = key("Tensors of the network that are newly initialised.")


class WeightsRecord(Record):
    """The initial weights."""

    model_config = OPEN
    source: Name | None = of_section("Source of the weights, such as scratch, hub, package, file or run.")
    name: Text | None = optional(
        "Name of the file or run, of the repository on the hub, or of the Python package.", null=True
    )
    sha256: Sha256 | None = optional(null=True)
    license: Text | None = optional(null=True)
    upstream: Text | None = optional("Name of the hub's weights, as in --weights hub:UPSTREAM.", null=True)
    pretrained_by: Text | None = optional(null=True)
    revision: Text | None = optional("Commit of the hub's repository, or version of the Python package.", null=True)
    pinned: bool | None = optional("Whether the file of the hub or package was checked against a pin.")
    lineage: list[TrainingRecord] | None = optional("Trainings that led to the weights, the last one first.")
    folds: list[Sha256] | None = optional("SHA-256 of the weights of each fold, if they differ.")
    loaded: LoadedRecord | None = optional("Only in run.json.")


class TeacherRecord(Record):
    """Another network that a training learnt from."""

    role: Name = key("teacher, tokenizer or source of LayerScale.")
    architecture: Name
    weights_sha256: Sha256 | None = key("SHA-256 of its file; null if it was never trained.")
    source: SourceRecord | None = key("The images that it was trained on, if usvit trained it.")
    weights: WeightsRecord | None


class BaseRecord(Record):
    """The weights beside which adapters were trained."""

    source: Literal["hub", "package", "file", "run"]
    name: Text = key("Repository of the hub, or name of the package, file or run; no path.")
    sha256: Sha256 = key("SHA-256 of the file of the base's weights.")
    upstream: Text | None = key("Name of the hub's weights, as in --weights hub:UPSTREAM; null for others.")


class AdapterRecord(Record):
    """Low-rank adapters: model.safetensors holds only them and the head, and all else comes from the base."""

    method: Literal["lora"]
    rank: Annotated[int, Field(ge=1, le=1024)]
    alpha: Annotated[float, Field(gt=0)] = key("The product of each pair of matrices is multiplied by alpha / rank.")
    targets: Annotated[list[Literal["q", "k", "v", "proj", "fc1", "fc2"]], Field(min_length=1, max_length=6)]
    base: BaseRecord
