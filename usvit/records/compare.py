"""``compare.json`` of ``usvit compare``."""

from typing import Annotated, ClassVar

from pydantic import Field

from usvit.estimate import Difference, Interval
from usvit.figure_table import COMPARED
from usvit.records.base import (
    Classes,
    Count,
    FileRecord,
    InGivenOrder,
    Name,
    Number,
    Record,
    Share,
    Text,
    key,
    optional,
)
from usvit.records.metrics_figures import with_figures
from usvit.records.units import RowsOfUnit, UnitRecord
from usvit.records.values import MeanSd, ShareValue

_Margin = Annotated[float, Field(gt=0, lt=0.5)]
_HOLM_CLAIMS = (
    "p after Holm's correction for the claims of all pairs: those about the primary figure, or all others. The two "
    "directions of non-inferiority of a pair count once, because at most one of them can be wrong."
)
_VERDICT = "Null if the figure is not the primary one."
_HOLM = "p_holm is corrected for all p-values of this section, of all pairs."


@with_figures((row.key, ShareValue, row.meaning) for row in COMPARED)
class ComparedRun(Record):
    """Figures of one run: pooled over folds, except headline and mean_sd."""

    name: Name
    headline: ShareValue = key(
        "AUC of the positive class against the rest: the mean within the folds of all repeats, with the interval that "
        "holds under cross-validation. It equals headline.auc of metrics.json."
    )
    auc: ShareValue = key("AUC of the positive class against the rest.")
    auc_macro_ovr: ShareValue
    accuracy: ShareValue
    balanced_accuracy: ShareValue
    sensitivity: ShareValue = key("Sensitivity of the positive class.")
    specificity: ShareValue = key("Specificity of the positive class.")
    pooling: Name | None = optional("Probability of a unit, as in unit.pooling; present if the runs pool differently.")
    mean_sd: dict[str, MeanSd] = key("Mean and SD of the same figures over folds. The SD is not a confidence interval.")


class McNemar(InGivenOrder):
    """Images that only one run decides correctly, and the McNemar test of them if there is one fold."""

    p: Share | None = key("Null with several folds: see the difference of accuracies.")
    only_a: Count = key("Images that only run a decides correctly.")
    only_b: Count = key("Images that only run b decides correctly.")
    method: Text
    n_groups: Count = key(minimum=1)
    reason: Text | None = optional()
    warning: Text | None = optional()
    p_holm: Share | None = optional(null=True)


class DecisionDifference(Record):
    """Difference of sensitivity and specificity at one rule: the mean over folds if there are several."""

    rule: Text = key("'most probable class', or the rule of an operating point.", minLength=1)
    sensitivity: Difference | None
    specificity: Difference | None
    reason: Text | None = key("Reason why one of the two runs has no such decision.", minLength=1)


class SubgroupDifference(Record):
    """Difference of AUCs in one subgroup."""

    by: Text
    level: Text = key(minLength=1)
    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)
    auc: Difference


class Verdict(InGivenOrder):
    """Claim of non-inferiority."""

    bound: Number | None = key(
        "Lower bound of the one-sided 97.5 % interval of the first minus the second; null without an interval."
    )
    p: Share | None = key(
        "One-sided p of the hypothesis that the first is worse by the margin or more; below 0.025 exactly if the bound "
        "lies above minus the margin.",
    )
    verdict: Text | None = key(
        f"Non-inferior if p_holm is below 0.025. {_VERDICT}",
        enum=["non-inferior", "not shown to be non-inferior", None],
    )
    p_holm: Share | None = optional(_HOLM_CLAIMS, null=True)
    reason: Text | None = optional(minLength=1)


class BothWays(Record):
    """Non-inferiority of one figure, in both directions."""

    margin: Number
    a_vs_b: Verdict = key("Run a against run b.")
    b_vs_a: Verdict = key("Run b against run a.")


class DecisionNonInferiority(Record):
    """Non-inferiority of the decisions of one rule."""

    rule: Text = key(minLength=1)
    sensitivity: BothWays
    specificity: BothWays


class NonInferiority(Record):
    """Non-inferiority of a pair. The verdicts of all pairs contain a wrong claim in at most 2.5 % of comparisons."""

    margin: _Margin
    auc: BothWays
    accuracy: BothWays = key("Accuracy of the most probable class.")
    decisions: list[DecisionNonInferiority]


class EquivalenceClaim(InGivenOrder):
    """Claim that two figures differ by less than the margin either way: two one-sided tests at 5 %."""

    margin: Number
    ci90: Interval | None = key("90 % interval of the difference; null without an interval.")
    p: Share | None = key(
        "The larger of both one-sided p-values; below 0.05 exactly if the 90 % interval lies within the margin."
    )
    verdict: Text | None = key(
        f"Equivalent if p_holm is below 0.05. {_VERDICT}", enum=["equivalent", "not shown to be equivalent", None]
    )
    p_holm: Share | None = optional(_HOLM_CLAIMS, null=True)
    reason: Text | None = optional(minLength=1)


class DecisionEquivalence(Record):
    """Equivalence of the decisions of one rule."""

    rule: Text = key(minLength=1)
    sensitivity: EquivalenceClaim
    specificity: EquivalenceClaim


class Equivalence(Record):
    """Equivalence of a pair. The verdicts of all pairs contain a wrong claim in at most 5 % of comparisons."""

    margin: _Margin
    auc: EquivalenceClaim
    accuracy: EquivalenceClaim
    decisions: list[DecisionEquivalence]


class PairedTests(Record):
    """Tests of the difference of two runs, run a minus run b."""

    a: Name
    b: Name
    headline: Difference = key(
        "Comparison of the training procedures: the mean difference of AUCs within the folds of all repeats. The "
        "variance counts groups and allows for the training images that folds share."
    )
    auc: Difference = key(
        "Comparison of these predictions: the difference of AUCs on the pooled images (of the first repeat); the "
        "variance counts groups."
    )
    auc_macro_ovr: Difference
    mcnemar: McNemar
    auc_over_folds: Difference = key(
        "Mean over folds of the difference within the fold, with the corrected t test of Nadeau and Bengio."
    )


class Pair(PairedTests):
    """Run a minus run b."""

    decisions: list[DecisionDifference] = key(
        "Differences of sensitivity and specificity of the positive class against the rest. Thresholds are each run's "
        "own. With several folds, the mean of the folds' differences with Nadeau and Bengio's corrected t; with one, "
        f"thresholds and models are taken as given. {_HOLM}",
        minItems=1,
    )
    accuracy: Difference = key("Difference of the accuracies, computed as those of decisions.")
    subgroups: list[SubgroupDifference] = key(
        "Difference of AUCs in each subgroup (data set, device, BI-RADS, size), pooled; the models are taken as given. "
        f"{_HOLM}"
    )
    non_inferiority: NonInferiority | None = optional("Absent if it was not tested.")
    equivalence: Equivalence | None = optional("Absent if it was not tested.")


class CompareRecord(RowsOfUnit, FileRecord):
    """Runs compared pair by pair on the same test images in the same folds."""

    KIND: ClassVar[str] = "compare"
    positive_class: Name
    classes: Classes
    n_images: Count = key(minimum=1)
    n_groups: Count = key(minimum=1)
    n_folds: Count = key(minimum=1)
    class_counts: dict[str, Count]
    unit: UnitRecord | None = optional("Present if a row is not an image; 'images' in the other keys are then units.")
    runs: list[ComparedRun] = key(minItems=2)
    pairs: list[Pair] = key(minItems=1)
    n_compared: Count = key("Number of pairs, for Holm's correction.", minimum=1)
    non_inferiority_margin: _Margin | None = key("Margin that the user gave; null if none was given.")
    equivalence_margin: _Margin | None = key("The same for equivalence.")
    primary_figure: Text | None = key(
        "Figure that was declared beforehand, which alone has verdicts: 'AUC', 'accuracy', or sensitivity or "
        "specificity with its rule. Null without a margin."
    )
    warnings: list[Text]
