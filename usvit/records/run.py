"""``run.json``: configuration, images, network and results of a run."""

from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    TypeAdapter,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from usvit.config.sections import Unit
from usvit.errors import UsvitError
from usvit.plain_data import Json, Settings
from usvit.records.base import (
    OPEN,
    Classes,
    Count,
    FileRecord,
    Fold,
    InGivenOrder,
    Name,
    Number,
    Record,
    Sha256,
    Text,
    key,
    load_record,
    of_section,
    optional,
)
from usvit.records.run_kinds import KindSchema, known_kind, run_kinds
from usvit.records.scores import ScoringMember
from usvit.records.seen_images import ContaminationRecord
from usvit.records.values import SkippedFile
from usvit.records.weights_origin import ExclusionRecord, SourceRecord, TeacherRecord, WeightsRecord

MAX_FOLDS = 10_000
MAX_CLASSES = 100_000
"""Most classes of a collection for pre-training: ImageNet-21k has 21,841."""


class Folds(Record):
    """Division of the images into folds."""

    n: Annotated[int, Field(ge=1, le=MAX_FOLDS)] | None = of_section()
    threads: Count | None = optional("Threads of PyTorch with which each fold is trained.", minimum=1)
    repeats: Count | None = optional(minimum=1)
    sha256: Sha256 | None = optional("SHA-256 of folds.csv.")
    scheme: Name | None = optional()
    unit: Name | None = optional("Unit whose images are kept in one split: 'group' or 'image'.")
    leaking_groups: Count | None = optional("Groups with images in several splits of a fold.")
    file: Text | None = optional("The file of folds that was given.")


class ExcludedImage(Record):
    """Image that was left out."""

    dataset: Name
    image_id: Text
    reason: Text


class DecodedImages(Record):
    """Images that are stored decoded."""

    longest_side: Count = key("Longest side in pixels, to which larger images are reduced.")


class Data(InGivenOrder):
    """Images of the run. Runs of usvit pretrain and transfer describe their sources with further keys."""

    model_config = OPEN
    sources: list[SourceRecord] | None = optional("Training images of each fold of a pre-training; tested images.")
    datasets: Annotated[list[Name], Field(max_length=1000)] | None = optional()
    classes: Annotated[list[Name], Field(max_length=MAX_CLASSES)] | None = optional("Absent for tests.")
    positive_class: Name | None = optional(null=True)
    n_images: Count | None = optional()
    n_groups: Count | None = optional()
    class_counts: dict[str, Count] | None = optional()
    label_level: Unit | None = optional(
        "Unit to which the labels belong by the data cards; absent if that is the image."
    )
    grouping: dict[str, Count] | None = optional(
        "Number of images by the kind of their group: patient, near-duplicates or single image."
    )
    manifest_sha256: Sha256 | None = optional()
    sha256: Sha256 | None = optional("SHA-256 of the description of the images, of pretrain, transfer and test.")
    excluded: list[ExcludedImage] | None = optional("Images that were left out, each with the reason.")
    skipped: list[SkippedFile] | None = optional("Files that could not be read (--skip-bad).")
    contamination: Annotated[list[ContaminationRecord], Field(max_length=1000)] | None = optional(
        "Tested data sets that a foundation model behind the weights was pre-trained on: the run was "
        "started with --allow-contaminated.",
        minItems=1,
    )
    validation: SourceRecord | None = optional("Validation images of usvit pretrain; absent for other runs.", null=True)
    exclude: ExclusionRecord | None = optional("Images of source.exclude.")
    decoded: DecodedImages | None = optional("Images that a pre-training stores decoded.")
    parts: dict[str, SourceRecord | None] | None = optional("Images of each split of a transfer.")


class FoldResultRecord(Record):
    """Result of one fold; further keys depend on the kind of the run."""

    model_config = OPEN
    fold: Fold
    steps: Count | None = optional()
    best_step: Count | None = optional("Step of the weights that were kept.")
    seconds: Annotated[Number, Field(ge=0)] | None = optional()
    images_per_second: Annotated[Number, Field(ge=0)] | None = optional(null=True)
    phases: dict[str, Annotated[Number, Field(ge=0)]] | None = optional("Phase -> its wall time in seconds.")


class Model(Record):
    """The network."""

    model_config = OPEN
    name: Name | None = of_section()
    vit: Settings = of_section("Settings of a ViT that were changed.", empty=dict)
    timm: Name | None = of_section()
    params: Count | None = of_section("Number of parameters.")
    trainable: Count | None = optional("Number of parameters that are trained.")
    weights: WeightsRecord = of_section(empty=WeightsRecord)


class TestedModel(Model):
    """The network of a tested classifier; several classifiers may have the same network."""

    name: Name | None = of_section("Name of the classifier.")


class Classifiers(Record):
    """The networks of a test."""

    networks: list[TestedModel] = key(minItems=1)
    sha256: Sha256 = key("SHA-256 over their weights, classes and preprocessing.")


class LearntFrom(Record):
    """The other networks that a training learns from."""

    networks: list[TeacherRecord] = key(minItems=1)
    sha256: Sha256 = key("SHA-256 of their description.")


class DeviceRecord(Record):
    """Device of the training."""

    model_config = OPEN
    type: Name | None = of_section()
    name: Text | None = of_section(null=True)
    precision: Name | None = of_section()
    threads: Count | None = of_section()


class DataSection(Record):
    """Configuration of the images."""

    model_config = OPEN
    dataset: Text
    table: Text | None = optional("The table of the user's own images.", null=True)
    columns: dict[str, Text] | None = optional("usvit's name of a column -> name in that table.")
    positive: Text | None = optional("The positive class, if the user named it.", null=True)
    classes: list[Text] | None
    keep_list: Text | None


class ModelSection(Record):
    """Configuration of the network."""

    model_config = OPEN
    image_size: Count | None = key("Null for tests that use the size of the weights.", minimum=1)


class LossSection(Record):
    """Configuration of the loss."""

    model_config = OPEN
    class_weights: Name | None


class OptimSection(Record):
    """Configuration of the optimizer; ``usvit.config`` checks its numbers."""

    model_config = OPEN
    name: Name
    lr: float
    schedule: Name
    weight_decay: float


class StoppingSection(Record):
    """Configuration of early stopping."""

    model_config = OPEN
    monitor: Name
    keep: Name


class TrainSection(Record):
    """Configuration of the training; its length is given in steps or in epochs."""

    model_config = OPEN
    batch_size: Count
    steps: Count | None
    epochs: float | None
    early_stopping: StoppingSection


class InputSection(Record):
    """Configuration of the input."""

    model_config = OPEN
    resize: Name
    crop: Name
    augment: Name


class Config(Record):
    """Sections of the configuration that the report reads; ``usvit.config`` checks a configuration that is run."""

    model_config = OPEN
    recipe: Text | None = optional("Absent, as the sections of a training are, for tests.")
    seed: int | None = of_section()
    data: DataSection | None = of_section()
    model: ModelSection | None = of_section()
    loss: LossSection | None = optional()
    optim: OptimSection | None = optional()
    train: TrainSection | None = optional()
    split: Settings | None = optional()
    input: InputSection | None = optional()
    objective: Name | None = optional("Objective of usvit pretrain and transfer; absent for other runs.")
    source: Settings | None = optional("Images of usvit pretrain and transfer; absent for other runs.")
    _written: Json = PrivateAttr(default_factory=dict)

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, content: Any, check: ModelWrapValidatorHandler["Config"]) -> "Config":
        found = check(content)
        if isinstance(content, dict):  # otherwise it is a record already
            found._written = content
        return found

    @model_serializer
    def as_written(self) -> Json:
        """Return the complete configuration with its keys in the order of the file."""
        return self._written


class Evaluation(Record):
    """What an evaluation evaluated: predictions that nothing in this folder was trained for."""

    of: Literal["table", "run", "external test"] = key(
        "table: the predictions of any tool. run: a run that was evaluated again. external test: scores of usvit score "
        "with the labels of their images."
    )
    source: Text = key("Name of the table's file, or of the folder of the run or of the scores.")
    columns: dict[str, Text] | None = optional("Option -> column of the table that it named.")
    files: dict[str, Sha256] | None = optional("Kind of a file that was read (predictions, labels, ...) -> SHA-256.")
    networks: list[ScoringMember] | None = optional("The networks that scored the images of an external test.")
    scored: Name | None = optional("End of the scoring of an external test, ISO 8601.")
    warnings: list[Text] = key("What is wrong with the source itself.")


_TRAINED: Json = {
    "required": ["folds", "model", "device", "config", "config_sha256", "seed", "results"],
    "properties": {"data": {"required": ["classes"]}},
    "if": {"properties": {"kind": {"const": "ensemble"}}},
    "else": {"properties": {"config": {"required": ["recipe", "loss", "optim", "train", "split"]}}},
}
_BY_KIND: Json = {
    "if": {"properties": {"kind": {"const": "test"}}},
    "then": {"required": ["classifiers", "device", "config", "config_sha256", "seed", "results"]},
    "else": {
        "if": {"properties": {"kind": {"const": "evaluation"}}},
        "then": {"required": ["evaluation", "folds"]},
        "else": _TRAINED,
    },
}


class RunRecord(FileRecord):
    """Description of a run: its configuration, data, network, software, hardware and results."""

    model_config = ConfigDict(json_schema_extra={"x-open": True, **_BY_KIND})
    KIND: ClassVar[str] = "run"
    kind: Annotated[str, AfterValidator(known_kind), KindSchema()] = key(
        "'ensemble': usvit ensemble, whose ensemble.json names the members. 'evaluation': usvit evaluate --out, which "
        "trains nothing."
    )
    name: Name
    command: Text | None = key("The command line that began the run; null for a call from Python.")
    config: Config = Field(
        default_factory=Config, description="The complete configuration. Absent, as the next ones, for evaluations."
    )
    config_sha256: Sha256 | None = optional()
    seed: int | None = optional()
    device: DeviceRecord = Field(default_factory=DeviceRecord)
    data: Data
    learnt_from: LearntFrom | None = optional()
    folds: Folds = Field(default_factory=Folds, description="Absent for tests.")
    model: Model = Field(default_factory=Model, description="Absent for tests.")
    classifiers: Classifiers | None = optional("Only for tests: the networks that were tested.")
    evaluation: Evaluation | None = optional("Only for evaluations: what was evaluated.")
    state: Literal["running", "finished"]
    created: Name = key("Start of the run, ISO 8601.")
    finished: Name | None = key("End of the run, ISO 8601; null while it is running.")
    usvit_version: Name
    versions: dict[str, Name] = key("Package -> version.")
    results: Annotated[list[FoldResultRecord], Field(max_length=MAX_FOLDS)] = Field(
        default_factory=list, description="Results, one entry for each fold."
    )
    seconds: Annotated[Number, Field(ge=0)] | None = optional("Duration since the run was last resumed.")
    files: dict[str, Sha256] | None = optional("Name -> SHA-256 of the tables and records of a finished run.")

    @property
    def training_seconds(self) -> float | None:
        """Training time of all folds; None if no time is recorded."""
        seconds = [one.seconds for one in self.results if one.seconds is not None]
        return sum(seconds) if seconds else None

    @property
    def kept_last_step(self) -> bool:
        """Whether this is a pre-training that was set to keep its last step: its validation images chose nothing."""
        train = self.config.as_written().get("train")
        stopping = train.get("early_stopping") if isinstance(train, dict) else None
        if self.kind != "pretrain" or not isinstance(stopping, dict):
            return False
        return stopping.get("keep") == "last" and stopping.get("patience", 0) is None

    @field_validator("data")
    @classmethod
    def _classes_of_a_classifier(cls, data: Data, info: ValidationInfo) -> Data:
        """Require two classes of a classifier; a pre-training may have any number, or none without labels."""
        kind = run_kinds().get(info.data.get("kind", ""))
        if data.classes is not None and (kind is None or kind.of_folds):
            TypeAdapter(Classes).validate_python(data.classes)
        return data


def load_run_record(run: Path, hint: str = "") -> RunRecord:
    """Read a run's ``run.json``.

    Args:
        run: Folder of the run.
        hint: What to do if the file does not exist; part of the error message.

    Raises:
        UsvitError: If the file is missing or damaged, or is of a later major version.
    """
    if not (run / "run.json").exists():
        raise UsvitError(f"{run} is not a run directory: it has no run.json. {hint}".rstrip())
    return load_record(run / "run.json", RunRecord, hint)
