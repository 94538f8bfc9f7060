"""``best.json``: the winner among the runs of a study, and the honest figure of choosing it."""

from typing import Annotated, ClassVar

from pydantic import Field

from usvit.estimate import Estimate
from usvit.records.base import Count, FileRecord, Fold, Name, Number, Record, Text, key

_MAX_CANDIDATES = 1000


class BestValidation(Record):
    """A figure on inner validation images. It serves the choice only and is no result."""

    value: Number
    standard_error: Number | None = key("It counts groups; null if there are too few groups to estimate it.")


class BestCandidate(Record):
    """One candidate: a configuration of the study, or the mean of the best ones."""

    name: Text
    runs: list[Name] = key("Ids of its runs: one for each seed if these have different folds.", minItems=1)
    members: list[Text] = key("Candidates whose probabilities are averaged; empty for a single one.")
    parameters: Count = key("Parameters of its networks of one fold.")
    validation: BestValidation = key("Mean over the folds of the figure on their inner validation images.")
    within_one_se: bool = key("true if it is within one standard error of the best.")
    test: Estimate = key("Mean over folds on the test images. Comparing candidates by it makes the best look better.")


class BestFold(Record):
    """The choice of one fold, which only the inner validation images of this fold made."""

    fold: Fold
    repeat: Count
    chosen: Text = key("Name of the candidate that was chosen by the one-standard-error rule.")
    members: list[Text] = key("Members of the chosen mean, as they were chosen in this fold; empty for a single one.")
    best: Text = key("Name of the candidate with the best figure.")
    validation: BestValidation = key("Figure of that best candidate.")
    chosen_validation: Number = key("Figure of the chosen candidate.")
    test: Number | None = key("Figure of the chosen candidate on the test images of the fold.")


class ApparentBest(Record):
    """Candidate with the best figure on the test images. Reported as it is, the figure is too good."""

    name: Text
    test: Estimate


class BestWinner(Record):
    """The final choice, made on the inner validation images of all folds."""

    name: Text
    members: list[Text] = key("Members of the winning mean; empty for a single one.")
    runs: list[Text] = key("Run directories to score with, as the commands name them.", minItems=1)
    parameters: Count


class LeftOutRun(Record):
    """Run of the study that could not be a candidate."""

    run: Name
    reason: Text


class BestRecord(FileRecord):
    """Winner of a study by nested choice with the one-standard-error rule.

    'nested' is the figure to report: in each fold, the candidate was chosen without the test images of the fold.
    """

    KIND: ClassVar[str] = "best"
    usvit_version: Name
    study: Name
    figure: Name = key("Figure of the choice, a key of 'headline' in metrics.json.")
    positive_class: Name
    classes: Annotated[list[Name], Field(min_length=2, max_length=1000)]
    n_images: Count
    n_groups: Count
    n_folds: Count = key("Folds of all repeats.")
    n_repeats: Count
    candidates: Annotated[list[BestCandidate], Field(min_length=1, max_length=_MAX_CANDIDATES)]
    folds: Annotated[list[BestFold], Field(min_length=1, max_length=10_000)]
    nested: Estimate = key("Figure of the choosing procedure, with its interval.")
    apparent: ApparentBest
    apparent_minus_nested: Estimate = key(
        "Apparent best minus nested, with its interval; for Brier scores with the sign reversed. It is more than the "
        "optimism of choosing on the test images, because it also contains what is lost as each fold chooses on its "
        "few inner validation images."
    )
    winner: BestWinner
    commands: list[Text] = key("Commands that score with the winner.", minItems=1)
    left_out: list[LeftOutRun]
    warnings: list[Text]
