"""``mrmc.json`` of ``usvit mrmc``: the analysis of a reader study."""

from typing import Annotated, ClassVar

from pydantic import Field

from usvit.config.comparison import MarginTest
from usvit.estimate import Difference, Estimate
from usvit.records.base import Count, FileRecord, Name, Number, Record, Share, Text, key, optional
from usvit.records.compare import BothWays, EquivalenceClaim

_Square = Annotated[Number, Field(ge=0)] | None


class ReaderComponents(Record):
    """What makes the numbers of the readers vary, from which the power of other studies follows."""

    mean_square: _Square = key("Variance of the numbers between readers. Null with one reader.")
    variance: _Square = key("Mean variance of a reader's number that the patients cause.")
    covariance: Number | None = key("Mean covariance of two readers' numbers that the patients cause.")


class ReaderInference(Record):
    """A mean over readers with the interval for what other studies would differ in."""

    across: Text = key("What is random.", enum=["readers and patients", "patients", "readers"])
    estimate: Difference = key("p, if there is one, is that of a difference of 0.")
    p_holm: Share | None = optional("p after Holm's correction over the comparisons of this figure.")
    noninferiority: BothWays | None = optional("With the stated margin.")
    equivalence: EquivalenceClaim | None = optional("With the stated margin.")


class ReaderValue(Record):
    """The figure of one reader."""

    reader: Name
    value: Number


class ReaderMean(Record):
    """A figure of one modality: of each reader, and the mean over readers."""

    modality: Name
    readers: list[ReaderValue]
    mean: list[ReaderInference]
    components: ReaderComponents


class ReaderPower(Record):
    """Power of a study of this size, if the difference is 'effect'."""

    readers: Count
    patients: Count
    power: Share


class ReaderDifference(Record):
    """The difference of two modalities, or of the model and the readers of a modality."""

    a: Name
    b: Name
    readers: list[ReaderValue] = key("a minus b of each reader.")
    mean: list[ReaderInference]
    components: ReaderComponents
    power: list[ReaderPower] = key("Of later studies; empty if it cannot be computed.")


class ReaderFigureRecord(Record):
    """One figure: of each modality, of the model, and the differences."""

    figure: Text = key(enum=["auc", "sensitivity", "specificity"])
    modalities: list[ReaderMean]
    model: Number | None = optional("The figure of the model.")
    differences: list[ReaderDifference]


class ReaderAgreement(Record):
    """Agreement of the readers in one modality, with intervals for these readers and other patients."""

    modality: Name
    weighted_kappa: Estimate = key("Quadratically weighted kappa of the ratings, the mean over pairs of readers.")
    fleiss_kappa: Estimate | None = key("Of calling ratings from 'positive_from' positive; null without it.")
    gwet_ac1: Estimate | None = key("Gwet's AC1 of the same decisions.")


class MrmcRecord(FileRecord):
    """Multi-reader multi-case analysis of a reader study."""

    KIND: ClassVar[str] = "mrmc"
    table: Name
    usvit_version: Name
    n_cases: Count
    n_positive: Count
    n_patients: Count
    readers: list[Name]
    modalities: list[Name]
    model: Name | None
    positive_from: Number | None
    margin: Share | None
    test: MarginTest | None
    effect: Share = key("Difference that a later study is to find, for its power.")
    figures: list[ReaderFigureRecord]
    agreement: list[ReaderAgreement] = key("Of each modality; empty with one reader.")
    warnings: list[Text]
