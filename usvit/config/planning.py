"""Settings of the plans of a study: what is expected of its model and patients, and how precise it is to be."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from usvit.config.evaluation import UnitSettings
from usvit.config.fields import Option

ComparisonTest = Literal["difference", "noninferiority", "equivalence"]

_Share = Annotated[float | None, Field(gt=0, lt=1), Option(metavar="P")]
_Area = Annotated[float | None, Field(gt=0.5, lt=1), Option(metavar="A")]
_Width = Annotated[float, Field(gt=0, le=2), Option(metavar="W")]
_Like = Annotated[Path | None, Option(metavar="RUN")]


class PatientSettings(UnitSettings):
    """Patients of a planned study, and the unit whose figures it measures: images are then those units."""

    prevalence: _Share = None
    """Share of positive images. (default: that of ``like``)"""
    positive: Annotated[str | None, Option(metavar="CLASS")] = None
    """The positive class of ``like``. (default: its own, or malignant)"""
    images: Annotated[float | None, Field(ge=1), Option(metavar="M")] = None
    """Mean number of images, or of units, of a patient. (default: that of ``like``, or 1)"""
    images_cv: Annotated[float | None, Field(ge=0, le=10), Option(metavar="CV")] = None
    """SD / mean of the number of images. (default: that of ``like``, or 0)"""
    icc: Annotated[float | None, Field(ge=0, le=1), Option(metavar="R")] = None
    """Correlation of the scores of two images of one patient and class. (default: that of ``like``; else 1, further
    images add nothing)"""


class ValidationPlanSettings(PatientSettings):
    """Settings of the plan to validate a model."""

    auc: _Area = None
    """Expected AUC of the model. (default: that of ``like``)"""
    like: _Like = None
    """Run or predictions table whose predictions are typical: it gives what is not stated."""
    linear_predictor: Annotated[str | None, Option(metavar="D")] = None
    """Distribution of the log-odds that a paper reports: ``normal:MEAN,SD`` or ``beta:A,B`` of the probabilities.
    (default: normal in each class, from the AUC)"""
    threshold: Annotated[float | None, Field(gt=0, lt=1), Option(metavar="T")] = None
    """Threshold probability of the net benefit. (default: not planned)"""
    sensitivity: _Share = None
    """Sensitivity at ``threshold``. (default: from the distribution)"""
    specificity: _Share = None
    """Specificity at ``threshold``. (default: from the distribution)"""
    oe: Annotated[float, Field(gt=0, le=10)] = 1.0
    """Expected ratio of observed to expected positives (O/E)."""
    oe_width: _Width = 0.2
    """Width of the 95 % interval of O/E."""
    slope_width: _Width = 0.2
    """Width of the 95 % interval of the calibration slope."""
    auc_width: _Width = 0.1
    """Width of the 95 % interval of the AUC."""
    net_benefit_width: _Width = 0.2
    """Width of the 95 % interval of the standardised net benefit."""


_HalfWidth = Annotated[float | None, Field(gt=0, lt=0.5), Option(metavar="H")]


class AccuracyPlanSettings(PatientSettings):
    """Settings of the plan to measure sensitivity and specificity."""

    sensitivity: _Share = None
    """Expected sensitivity. (default: that of the most probable class of ``like``)"""
    specificity: _Share = None
    """Expected specificity. (default: that of the most probable class of ``like``)"""
    like: _Like = None
    """Run or predictions table whose predictions are typical: it gives what is not stated."""
    half_width: Annotated[float, Field(gt=0, lt=0.5), Option(metavar="H")] = 0.05
    """Half the width of both 95 % intervals: 0.05 for plus or minus 5 points."""
    sensitivity_half_width: _HalfWidth = None
    """Half width for the sensitivity. (default: ``half_width``)"""
    specificity_half_width: _HalfWidth = None
    """Half width for the specificity. (default: ``half_width``)"""


class ComparisonPlanSettings(PatientSettings):
    """Settings of the plan to compare two models."""

    auc: _Area = None
    """Expected AUC of the first model. (default: that of ``like``)"""
    auc_b: _Area = None
    """Expected AUC of the second model. (default: that of the second run in ``like``)"""
    correlation: Annotated[float | None, Field(gt=-1, lt=1), Option(metavar="R")] = None
    """Correlation of the two models' scores within a class. (default: that of two runs in ``like``)"""
    like: Annotated[tuple[Path, ...], Option(metavar="RUN")] = ()
    """Run or predictions table whose predictions are typical; one, or one for each model, on the same images."""
    test: Annotated[ComparisonTest | None, Option(metavar="TEST")] = None
    """``difference``: the AUCs differ; ``noninferiority``: the first is not worse by ``margin`` or more;
    ``equivalence``: they differ by less than ``margin`` either way. (default: ``difference``; with ``margin``,
    ``noninferiority``)"""
    margin: Annotated[float | None, Option(metavar="M")] = None
    """Difference of the AUCs that would not matter, such as 0.05."""
    power: Annotated[float, Field(ge=0.5, lt=1)] = 0.8
    """Probability that the test succeeds if the expected values are true."""
    alpha: Annotated[float, Field(gt=0, le=0.2), Option(metavar="L")] = 0.05
    """Two-sided level; non-inferiority has half of it, one-sided; equivalence has two one-sided tests at it."""
