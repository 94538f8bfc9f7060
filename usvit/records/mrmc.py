"""``mrmc.json`` of ``usvit mrmc``: the analysis of a reader study."""

from typing import Annotated, ClassVar

from pydantic import Field

from usvit.config.comparison import MarginTest
from usvit.estimate import Difference, Estimate
from usvit.records.base import Count, FileRecord, Name, Number, Record, Share, Text, key, optional
from usvit.records.compare import BothWays, EquivalenceClaim
from usvit.records.protocol import StudyProtocol

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
    icc: Estimate = key("ICC(2,1) of the ratings: absolute agreement of single readers, for other readers as well.")


class ReaderRepeats(Record):
    """Agreement of a reader with herself in one modality, or its mean over readers."""

    modality: Name
    reader: Name | None = key("Null: the mean over readers.")
    n_repeats: Count = key("Cases that were read again.")
    weighted_kappa: Estimate = key("Quadratically weighted kappa of the first and the second ratings.")
    icc: Estimate | None = key("ICC(2,1) of the first and the second ratings; null for the mean over readers.")


class ReaderChangeInference(Record):
    """A mean over readers, of any size, with the interval for what other studies would differ in."""

    across: Text = key("What is random.", enum=["readers and patients", "patients", "readers"])
    estimate: Estimate


class ReaderChange(Record):
    """A number of reading times or of the course of a session: of each reader, and the mean over readers."""

    what: Text = key(
        "seconds: geometric mean time. ratio: of the times of a and b. wrong_over_right: ratio of the times of wrong "
        "and right decisions. time_course: ratio of the times at the end and the start of a session. error_course: "
        "change of the rank error from the start to the end of a session.",
        enum=["seconds", "ratio", "wrong_over_right", "time_course", "error_course"],
    )
    a: Name = key("Modality.")
    b: Name | None = key("Other modality of a ratio.")
    readers: list[ReaderValue]
    mean: list[ReaderChangeInference] = key("Of ratios and times, the geometric mean.")


class ReaderMedians(Record):
    """Median times of the readers in one modality, in seconds."""

    modality: Name
    readers: list[ReaderValue]


class ReaderTimes(Record):
    """Reading times."""

    n_cases: Count = key("Cases whose time is known of each reader in each modality.")
    medians: list[ReaderMedians]
    changes: list[ReaderChange]


class SessionCurve(Record):
    """Means by tenths of the session: over the cases of a reader, and then over readers."""

    what: Text = key("Rank error, or geometric mean time in seconds.", enum=["rank_error", "seconds"])
    modality: Name
    tenths: list[Number | None] = key("Ten numbers; null for a tenth without readings.")


class SessionCourses(Record):
    """Learning and fatigue within sessions."""

    changes: list[ReaderChange]
    curves: list[SessionCurve]


class ReaderShare(Record):
    """A share of the cases, by the decisions of each reader, and the mean over readers."""

    what: Text = key(
        "with_model: the reader decides as the model does. to_right, to_wrong: a wrong decision in a is right in b, or "
        "a right one wrong; shares of all cases.",
        enum=["with_model", "to_right", "to_wrong"],
    )
    a: Name = key("Modality.")
    b: Name | None = key("Later modality of a change.")
    readers: list[ReaderValue]
    mean: list[ReaderInference]


class AnswerRows(Record):
    """Rows of the table."""

    analysed: Count = key("First readings of the readers.")
    repeats: Count = key("Second readings, which serve the agreement within readers only.")
    training: Count = key("Readings of training cases, left out.")
    unfinished: Count = key("Readings that are not finished, left out.")


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
    model_from: Number | None = optional("Lowest score of the model that counts as positive.")
    margin: Share | None
    test: MarginTest | None
    effect: Share = key("Difference that a later study is to find, for its power.")
    figures: list[ReaderFigureRecord]
    agreement: list[ReaderAgreement] = key("Of each modality; empty with one reader.")
    repeats: list[ReaderRepeats] = key("Agreement within readers; empty without second readings.")
    times: ReaderTimes | None = key("Null without times.")
    courses: SessionCourses | None = key("Null without positions.")
    decisions: list[ReaderShare] | None = optional("Agreement with the model and changed minds, with 'positive_from'.")
    protocol: StudyProtocol | None = optional("Of the study of 'usvit review' from which the table comes.")
    rows: AnswerRows
    warnings: list[Text]
