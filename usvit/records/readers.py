"""``readers.json`` of ``usvit compare --readers``."""

from typing import ClassVar

from usvit.estimate import Difference
from usvit.records.base import Classes, Count, FileRecord, Name, Record, Text, key
from usvit.records.metrics_decisions import OutcomeRecord
from usvit.records.values import NonNegative, ShareValue

_HOLM = "p_holm is corrected for all p-values of this section."


class LeftOutReadings(Record):
    """Tested images without a category from 1 to 5 of this reader."""

    missing: Count = key("No reading.")
    category_0: Count = key("Incomplete.")
    category_6: Count = key("Known cancer.")


class ReaderAreas(Record):
    """AUCs of a reader and of the model on the images that the reader has read; the last entry may be the mean."""

    reader: Name
    n_images: Count
    n_groups: Count
    class_counts: dict[str, Count]
    left_out: LeftOutReadings | None = key("Null for the mean, which is that of the images that all readers have read.")
    auc: ShareValue = key("AUC of the ordered categories; ties count one half.")
    model: ShareValue = key("AUC of the model on the same images, pooled.")
    within_folds: Difference = key(
        "Model minus reader: mean difference of AUCs within the folds of all repeats. p_holm is corrected over the "
        "readers."
    )
    pooled: Difference = key(
        "The same of the pooled images of the first repeat; the model is taken as given. p_holm is corrected over the "
        "readers."
    )


class ReaderPoint(Record):
    """Decisions of a reader who calls the categories from ``cut`` upwards positive."""

    reader: Name
    cut: Text
    outcome: OutcomeRecord


class GivenDifferences(Record):
    """The same differences of the pooled images of the first repeat, with model and thresholds taken as given."""

    sensitivity: Difference
    specificity: Difference


class MatchedPoint(Record):
    """The model at a threshold that is chosen for the specificity, or for the sensitivity, of a reader's point."""

    reader: Name
    cut: Text
    matched: Text = key(enum=["specificity", "sensitivity"])
    model: OutcomeRecord | None = key("Of the first repeat.")
    sensitivity: Difference | None = key(f"Model minus reader. {_HOLM}")
    specificity: Difference | None = key(f"Model minus reader. {_HOLM}")
    given: GivenDifferences | None
    reason: Text | None = key("Reason why the model has no such threshold.", minLength=1)


class CategoryCounts(Record):
    """Images of one category by the model's decision and the reference, of the first repeat."""

    reader: Name
    decision: Text = key("'most probable class', or the rule of an operating point of the model.")
    category: Text
    positive_called: Count = key("Images of the positive class that the model calls positive.")
    positive_not_called: Count
    negative_called: Count
    negative_not_called: Count


class Changed(Record):
    """Number of images, and per 1,000 images."""

    n: Count
    per_1000: NonNegative


class CombinedRule(Record):
    """A rule from a reader's category and the model's decision, beside the reader alone."""

    reader: Name
    decision: Text = key("'most probable class', or the rule of an operating point of the model.")
    rule: Text = key(enum=["downgrade", "upgrade", "both"])
    n_biopsies_alone: Count
    n_biopsies: Count
    avoided: Changed = key("Images that the reader alone biopsies, and the rule does not.")
    missed: Changed = key("Cancers among them.")
    added: Changed = key("Images that the rule biopsies, and the reader alone does not.")
    found: Changed = key("Cancers among them.")
    ppv_alone: ShareValue = key("Share of cancers among the images that the reader alone biopsies.")
    ppv: ShareValue = key("Share of cancers among the images that the rule biopsies.")
    sensitivity: Difference = key(f"Rule minus reader alone. {_HOLM}")
    specificity: Difference = key(f"Rule minus reader alone. {_HOLM}")
    given: GivenDifferences


class ReadersRecord(FileRecord):
    """A model beside the BI-RADS categories of readers on the same test images."""

    KIND: ClassVar[str] = "readers"
    run: Name
    positive_class: Name
    classes: Classes
    n_images: Count = key("Tested images.", minimum=1)
    n_groups: Count = key(minimum=1)
    n_folds: Count = key(minimum=1)
    n_repeats: Count = key(minimum=1)
    scale: list[Text] = key("The ordered categories; 4 is one category if a reader has not divided it.")
    biopsied_from: Text = key("The lowest category that readers biopsy.")
    downgraded: list[Text] = key("Categories that a negative decision of the model downgrades.")
    upgraded: list[Text] = key("Categories that a positive decision of the model upgrades.")
    thresholds_from: Text = key("Images that the thresholds of matched were chosen on.")
    readers: list[ReaderAreas] = key(minItems=1)
    points: list[ReaderPoint]
    matched: list[MatchedPoint]
    categories: list[CategoryCounts] = key("Not of the mean of readers.")
    rules: list[CombinedRule]
    warnings: list[Text]
