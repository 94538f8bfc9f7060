"""``watch.json`` of ``usvit watch``: what runs, how its scores and images develop, and the verdict."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from usvit.estimate import Estimate
from usvit.records.base import Count, FileRecord, Name, Number, Record, Sha256, Share, Text, key

WatchVerdict = Literal["in control", "alarm", "stop", "not tested"]
WatchAlarm = Literal["jump", "drift"]
PeriodState = Literal["baseline", "tested", "not over", "not tested"]


class WatchedModel(Record):
    """A model that scored images, with everything that makes its decisions."""

    sha256: Sha256 | None = key("SHA-256 of the set of networks; null if it is not recorded.")
    architectures: list[Name]
    threshold: Number | None = key("Threshold on the calibrated probability.")
    threshold_origin: Text | None
    calibration_sha256: Name | None = key("SHA-256 of the file of usvit recalibrate; null without one.")
    usvit_versions: list[Name] = key("Versions of usvit that scored with it.")
    first: Name = key("First day of its images.")
    last: Name = key("Last day of its images.")
    n_images: Count


class WatchedValue(Record):
    """A quantity in one period."""

    value: Estimate = key("Mean or share of images (failures: of files), with its patient-clustered interval.")
    deviation: Number | None = key("Difference from the baseline over its standard error; null if it is not tested.")
    drift: Number | None = key("Moving average of the deviations.")
    jump_limit: Number | None = key("An absolute deviation beyond it is an alarm.")
    drift_limit: Number | None = key("An absolute moving average beyond it is an alarm.")
    alarms: list[WatchAlarm]


class WatchPeriod(Record):
    """One week or month."""

    period: Name = key("2026-03, or 2026-W12.")
    state: PeriodState
    n_patients: Count = key("Patients; an image that names none counts as one.")
    n_images: Count
    decisions: dict[Name, Count] = key("Images by decision: positive, negative, none.")
    failures: dict[Name, Count] = key("Files or frames that were not scored, by code.")
    values: dict[Name, WatchedValue]

    @property
    def alarms(self) -> list[str]:
        """Names of the quantities with an alarm."""
        return [name for name, one in self.values.items() if one.alarms]


class WatchChart(Record):
    """Images of one model: all, those of a device, or those of a site."""

    model: Count = key("Number of the model in the inventory, from 0.")
    division: Literal["all", "device", "site"]
    name: Text = key("The device or site; several are joined if each has too few patients. Empty for all images.")
    n_baseline_patients: Count
    baseline: dict[Name, Estimate] = key("Quantity -> its value in the baseline.")
    reason: Text | None = key("Reason why no period is tested.")
    periods: list[WatchPeriod]


class AcceptanceFigure(Record):
    """A figure of the acceptance test; it is met if its lower 95 % limit reaches the minimum."""

    name: Name
    minimum: Share
    value: Estimate
    met: bool


class AcceptanceRecord(Record):
    """Test on local cases, with minima that were declared beforehand."""

    accepted: bool
    model_sha256: Sha256
    n_images: Count
    n_groups: Count
    figures: Annotated[list[AcceptanceFigure], Field(min_length=1)]


class StopCondition(Record):
    """A declared condition to stop."""

    rule: Name
    fulfilled: bool
    found: Text = key("What the condition was compared with.")


class WatchRecord(FileRecord):
    """What ``usvit watch`` found."""

    KIND: ClassVar[str] = "watch"
    command: Text
    usvit_version: Name
    time: Name = key("Time of this record, ISO 8601, UTC.")
    verdict: WatchVerdict
    reasons: list[Text] = key("Why: alarms, fulfilled conditions to stop, or why nothing is tested.")
    every: Literal["week", "month"]
    false_alarms: Number = key("Expected number of false alarms in a year without a change.")
    rate: Share = key("Probability of a false alarm in one period, over all charts.")
    dates: Literal["study", "scoring"]
    baseline: Text = key("What the baseline is.")
    inventory: list[WatchedModel] = key("Models, in the order of their first images.")
    charts: list[WatchChart]
    acceptance: AcceptanceRecord | None
    stop: list[StopCondition]
    warnings: list[Text]

    @property
    def alarms(self) -> list[tuple[WatchChart, WatchPeriod]]:
        """Charts and periods with an alarm."""
        return [(chart, one) for chart in self.charts for one in chart.periods if one.alarms]
