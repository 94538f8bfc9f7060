"""Output of ``usvit models info NAME --json``."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from usvit.config import ViTShape
from usvit.plain_data import Settings
from usvit.records.base import FileRecord, Name, Number, Record, Text, key, optional

_Whole = Annotated[int, Field(ge=1, le=10**15)]


class FoundationDataset(Record):
    """Public data set in a published list of pre-training images."""

    name: Text = key("Name in the list.")
    card: Name | None = key("Data card of usvit for the same data set; null if there is none.")


class FoundationPretraining(Record):
    """What is published about the images that a foundation model was pre-trained on."""

    known: Literal["listed", "unknown"] = key("unknown: private, or no list of them has been confirmed.")
    collection: Text | None
    source: Text = key("Where the list, or the statement without a list, was read.")
    note: Text
    sets: list[FoundationDataset]


class FoundationFacts(Record):
    """Facts about a foundation model that its file does not show, each with its source."""

    title: Text
    by: Text
    source: Text = key("Short name of the paper.")
    license: Text
    repository: Text = key("The authors' code.")
    address: Text = key("Where the weights are.")
    file: Text | None = key("The authors' name of the file.")
    timm: Name | None = key("Name in timm's registry; null if timm does not host the weights.")
    no_network: Text | None = key("Reason why usvit does not have the network.")
    keys: Text = key("Names of the tensors in the file.")
    heads: _Whole | None
    pooling: Text
    norm: Text
    positions: Text
    image_size: _Whole | None
    mean: list[Number] | None
    std: list[Number] | None
    evidence: dict[str, Text] = key("Key -> where it was read.")
    unconfirmed: dict[str, Text] = key("Key -> what is not confirmed about it, and why.")
    pretraining: FoundationPretraining


class HubWeights(Record):
    """Pre-trained weights on a hub."""

    upstream: Name = key("Text after 'hub:' in --weights, such as in21k.")
    hub: Annotated[Name, Field(pattern="^timm/")] | None = key(
        "The repository on the Hugging Face hub; null if the file has to be downloaded from foundation.address."
    )
    by: Text = key("Authors of the pre-training, and its images.")
    license: Text | None = key("Licence as timm states it.")
    input_size: int | None = key("Side of the images that they were trained on, in pixels.")
    recommended: bool = key("true if --weights hub uses these weights.")
    revision: Annotated[str, Field(pattern="^[0-9a-f]{40}$")] | None = key(
        "Commit of the repository that is required; null if not pinned."
    )
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = key(
        "SHA-256 that the file must have; null if not pinned."
    )
    package: Name | None = key("Python package that holds the same weights (--weights package); null if none does.")
    foundation: FoundationFacts | None = optional("Entry of a foundation model.")


class WeightSourceRecord(Record):
    """One place from which initial weights can come."""

    choice: Text = key("Value of --weights: hub, package, phantom, or hub:NAME=FILE for a file to download.")
    here: bool = key("true if they are on this machine: in the hub's cache, in an installed package, or in usvit.")


class PaperFiguresRecord(Record):
    """Figures that a paper prints."""

    table: Text
    params_millions: int | Number | None = key("Number as printed: 86 and 86.0 differ in their precision.")
    macs_billions: int | Number | None
    input_size: _Whole
    images_per_second: dict[str, Annotated[float, Field(gt=0)]] = key("Protocol -> speed on the paper's own hardware.")
    note: Text = key("Reason why our count differs, if it differs by more than 1 %.")


class ZooPaper(Record):
    """Papers of the network."""

    references: list[Text]
    figures: list[PaperFiguresRecord]
    protocols: dict[str, Text] = key("Protocol of images_per_second -> description.")


class ModelsInfoRecord(FileRecord):
    """One network: its cost, counted on request, its weights on the hub, and the figures of its papers."""

    KIND: ClassVar[str] = "models-info"
    name: Name = key("Name of the network on the command line.")
    family: Literal[
        "vit",
        "hybrid",
        "deit",
        "deit3",
        "parallel",
        "sovit",
        "cait",
        "resmlp",
        "patchconvnet",
        "cnn",
        "hierarchical",
        "mlp",
    ]
    source: Text = key("Short names of its papers, joined by ', '; 'timm' for timm:NAME.")
    implementation: Literal["timm", "usvit"] = key("Package that implements the network.")
    architecture: Name = key("Argument of timm.create_model; names that begin with usvit_ are registered by usvit.")
    params: _Whole = key("Number of parameters, with a head of 'classes' outputs.")
    macs: _Whole = key(
        "Multiply-accumulate operations of matrix products and convolutions for one image; the papers call them FLOPs."
    )
    input_size: _Whole = key("Side of the square image, in pixels, for which macs were counted.")
    classes: _Whole
    shape: ViTShape | None = key("Shape of a plain ViT, which --set vit.PART=... changes; null for other networks.")
    changed: Settings = key("Entries of 'shape' that were changed.")
    weights: list[HubWeights] = key("Weights on the hub, recommended weights first; empty if there are none.")
    sources: list[WeightSourceRecord] = key("Where the weights can come from; empty if only scratch is left.")
    paper: ZooPaper
