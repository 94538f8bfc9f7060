"""Settings of the comparison of runs."""

from typing import Annotated, Literal

from usvit.config.evaluation import UnitSettings
from usvit.config.fields import Option

MarginTest = Literal["noninferiority", "equivalence"]


class ComparisonSettings(UnitSettings):
    """Settings of a comparison."""

    names: Annotated[tuple[str, ...], Option("--name", metavar="NAME")] = ()
    """Name of a table on the page, such as sklearn. Can be repeated, for each table, or for each run and table."""
    positive: Annotated[str | None, Option(metavar="CLASS")] = None
    """The positive class. (default: that of the runs, or ``malignant``)"""
    margin: Annotated[float | None, Option(metavar="M", aliases=("--non-inferiority-margin",))] = None
    """Also test non-inferiority or equivalence with this margin of AUC, accuracy, sensitivity and specificity, above 0
    and below 0.5, such as 0.05."""
    test: Annotated[MarginTest | None, Option(metavar="TEST")] = None
    """``noninferiority``: one run is not worse by ``margin`` or more. ``equivalence``: they differ by less than
    ``margin`` either way. (default: ``noninferiority``)"""
    primary: Annotated[str, Option(metavar="FIGURE")] = "AUC"
    """The figure that the claim is about; it alone gets verdicts. Choose it before the runs are compared: ``AUC``,
    ``accuracy``, ``sensitivity``, ``specificity``, or one of an operating point such as 'specificity, sensitivity >=
    0.95'."""
