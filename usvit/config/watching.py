"""Settings of ``usvit watch``: periods, baseline, rate of false alarms, acceptance test and stop rule."""

import calendar
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from usvit.config.evaluation import LabelSettings
from usvit.config.fields import Option

Every = Literal["week", "month"]
WatchDates = Literal["study", "scoring"]
PERIODS_A_YEAR: Mapping[Every, int] = MappingProxyType({"week": 52, "month": 12})


def day_of(text: str, *, last: bool = False) -> date:
    """Return the day of ``2026-03-31``; of ``2026-03``, the first or the last day of the month.

    Raises:
        ValueError: the text is neither.
    """
    try:
        if len(text) == 7:
            first = date.fromisoformat(f"{text}-01")
            return first.replace(day=calendar.monthrange(first.year, first.month)[1]) if last else first
        return date.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"'{text}' is no date: expected a day such as 2026-03-31, or a month such as 2026-03"
        ) from None


def _checked(text: str | None) -> str | None:
    if text is not None:
        day_of(text)
    return text


_Day = Annotated[str | None, AfterValidator(_checked), Option(metavar="DATE")]
_Minimum = Annotated[float | None, Field(gt=0, lt=1), Option(metavar="X")]


class WatchSettings(LabelSettings):
    """Settings of watching a model in use."""

    baseline: Annotated[tuple[str, ...], Option(metavar="[[SITE][@DATE]=]SCORES")] = ()
    """Scores of the baseline, with which all others are compared. Can be repeated. (default: ``baseline_until``)"""
    baseline_until: _Day = None
    """Last day, or month, of the baseline. (default: the first ``baseline_periods``)"""
    baseline_periods: Annotated[int, Field(ge=1, le=100)] = 3
    """Number of periods that form the baseline if none is given, and that of each model that replaces another."""
    every: Every = "month"
    """Length of a period: ``week`` or ``month``."""
    dates: WatchDates = "study"
    """Date of an image: ``study`` (StudyDate of scores with ``--keep-ids``, otherwise the day of scoring), or
    ``scoring``."""
    as_of: _Day = None
    """A period that contains this day is not over: it is shown, and not tested. (default: today, UTC)"""
    since: _Day = None
    """Alarms of earlier periods are shown, and do not count for the verdict: they have been dealt with."""
    false_alarms: Annotated[float, Field(gt=0, le=6), Option(metavar="N")] = 1.0
    """Expected number of false alarms in a year in which nothing changes, over all quantities, devices and sites."""
    least_patients: Annotated[int, Field(ge=10, le=10_000), Option(metavar="N")] = 30
    """Number of patients below which a baseline is too small. Devices and sites with fewer are pooled."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the histories that set the limits."""
    labels: Annotated[Path | None, Option(metavar="FILE")] = None
    """Labels of local cases for the acceptance test: CSV, TSV, XLSX or Parquet."""
    labelled: Annotated[Path | None, Option(metavar="SCORES")] = None
    """Scores of the local cases. (default: the only folder)"""
    min_sensitivity: _Minimum = None
    """Acceptance: the lower 95 % limit of the sensitivity at the threshold in use must reach this."""
    min_specificity: _Minimum = None
    """Acceptance: the same for the specificity."""
    min_auc: _Minimum = None
    """Acceptance: the same for the AUC."""
    stop: Annotated[tuple[str, ...], Option(metavar="RULE")] = ()
    """Condition of the verdict stop: ``failures>0.1`` (any quantity, or ``<``, in the last period that is over),
    ``novelty:2`` (its alarm in 2 successive periods; ``any:2`` for whatever quantity), or ``acceptance`` (not met). Can
    be repeated."""
