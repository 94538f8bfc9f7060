"""``test.json`` and the rows of its ``predictions.csv``: fixed classifiers on labelled images."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from usvit.records.base import Count, FileRecord, Name, Number, Record, Share, Text, key, optional
from usvit.records.model import TestPreprocessing
from usvit.records.run import DeviceRecord
from usvit.records.seen_images import ContaminationRecord
from usvit.records.tables import CsvRow
from usvit.records.values import ShareValue
from usvit.records.weights_origin import WeightsRecord


class TestedClassifier(Record):
    """One network that was tested."""

    name: Name
    model: Name
    heads: list[Name | None] = key(
        "Rules by which a network with two heads decided: joint (the softmax outputs of both heads are added; "
        "Touvron 2022, thesis, section 3.3), class, distilled, or logits (the mean of the logits, as in timm). A "
        "network with one head has one null.",
        minItems=1,
    )
    n_classes: Count = key(minimum=2)
    classes_origin: Text = key("Where the names of its classes come from.")
    parameters: Count
    weights: WeightsRecord
    preprocessing: TestPreprocessing


class TestSource(Record):
    """The labelled images of one split of one source."""

    source: Name = key("SOURCE:SPLIT, or the source alone if it has no splits.")
    n_images: Count = key("Number of tested images, without those that were left out or dropped.", minimum=1)
    n_groups: Count = key("Patients, clusters of near-duplicates or single images.", minimum=1)
    n_classes: Count
    n_classes_with_images: Count
    left_out: Count = key("Images that have no label, or one that ImageNet-1k does not have (ObjectNet).")
    seen: Count | None = key(
        "Images that a classifier was trained on, and others of their groups; null if none could be compared."
    )
    seen_dropped: bool = key("True if these images were left out; false if they were tested (leaks=report).")
    several_labels: bool = key("True if any of several labels is right (ReaL).")
    leaks: dict[str, Text] = key("Classifier -> what is known of the images that it was trained on.")


class TestResult(Record):
    """A line of the printed table: one classifier, by one rule of its heads, on one source."""

    classifier: Name
    source: Name
    rule: Literal["all", "subset", "mapped"] = key(
        "all: the most probable of all outputs decides. subset: the outputs are restricted to the classes of the "
        "images first. mapped: the most probable of all outputs decides and is right if it maps to the image's class."
    )
    n_images: Count = key(minimum=1)
    n_outputs: Count = key("Number of competing outputs.", minimum=2)
    top1: ShareValue = key("Share of images whose decision is right.")
    top5: ShareValue | None = key(
        "Share of images with a right class among the five most probable; null for up to five outputs."
    )
    mean_class_accuracy: Share = key(
        "Accuracy of each class with images, averaged over these classes; an image with several labels counts in each."
    )
    nll: Number = key(
        "Negative log-likelihood in nats: minus the mean logarithm of the probability of the right class, or of the "
        "sum of the probabilities of all right classes.",
        minimum=0,
    )
    ece: ShareValue = key("Expected calibration error of the decision's probability, without temperature scaling.")
    ece_debiased: ShareValue = key("The same without the part that chance adds.")
    images_per_second: Number = key("Reading and resizing included; all heads of a network share one pass.", minimum=0)


class DisagreementMatrix(Record):
    """Share of the images of one source that two classifiers decide differently (thesis, Table 3.4)."""

    source: Name
    names: list[Name] = key("Rows and columns; the first stands for the labels.", minItems=3)
    share: list[list[Share]] = key("Symmetric, with zeros on the diagonal.")


class TestMachine(DeviceRecord):
    """The machine on which the images per second were measured."""

    batch_size: Count


class TestRecord(FileRecord):
    """Test of fixed classifiers on labelled images, by 'usvit test'."""

    __test__: ClassVar[bool] = False  # for pytest: this is no class of tests
    KIND: ClassVar[str] = "test"
    classifiers: list[TestedClassifier] = key(minItems=1)
    sources: list[TestSource] = key(minItems=1)
    results: list[TestResult] = key(minItems=1)
    disagreement: list[DisagreementMatrix] = key("One entry for each source; empty for a single classifier and head.")
    machine: TestMachine
    contamination: Annotated[list[ContaminationRecord], Field(max_length=1000)] | None = optional(
        "Tested data sets that a foundation model behind a classifier was pre-trained on (--allow-contaminated).",
        minItems=1,
    )


class TestRow(CsvRow):
    """Row of predictions.csv of usvit test: the decision of one classifier for one image."""

    __test__: ClassVar[bool] = False
    KIND: ClassVar[str] = "test-predictions-csv"
    classifier: Name
    source: Name
    image: Name = key("Path of the image relative to its source, or its identifier in a data card.")
    label: Text = key("The reference class; several are joined by ';', and each is right.")
    predicted: Name = key("The class that was decided for.")
    probability: Share = key("Its probability among the competing outputs.")
    rank: Count = key("Rank of the best right class, from 1.", minimum=1)
    right: bool
