"""Periods, baselines and charts of what is watched."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

import numpy as np
import pandas as pd

from usvit.config.watching import PERIODS_A_YEAR, Every, WatchSettings, day_of
from usvit.estimate import Estimate
from usvit.metrics.clustered_mean import clustered_mean
from usvit.metrics.control_charts import ChartPoint, PatientSums, control_chart
from usvit.metrics.intervals import undefined
from usvit.metrics.proportions import clustered_share
from usvit.monitoring.sources import Watched
from usvit.records import PeriodState, WatchAlarm, WatchChart, WatchedValue, WatchPeriod
from usvit.wording import plural


@dataclass(frozen=True)
class WatchedQuantity:
    """What is watched of each image, or of each file."""

    name: str
    title: str
    is_share: bool = True
    upward: bool = False
    """Only a rise is an alarm."""
    digits: int = 3

    @property
    def steady(self) -> float:
        """Value of one more patient of the baseline, by which a share of 0 can vary."""
        return (1.0 if self.upward else 0.5) if self.is_share else float("nan")


QUANTITIES = {
    one.name: one
    for one in (
        WatchedQuantity("score", "Mean calibrated probability", is_share=False),
        WatchedQuantity("positive", "Share called positive"),
        WatchedQuantity("undecided", "Share without a decision", upward=True),
        WatchedQuantity("novelty", "Share unlike the training images", upward=True),
        WatchedQuantity("brightness", "Mean grey level", is_share=False, digits=1),
        WatchedQuantity("contrast", "SD of grey levels", is_share=False, digits=1),
        WatchedQuantity("quality", "Image quality", is_share=False),
        WatchedQuantity("new_size", "Share of image sizes new to the baseline", upward=True),
        WatchedQuantity("failures", "Share of files not scored", upward=True),
    )
}
"""Name -> quantity, in the order of the page. ``new_size`` of the baseline itself counts sizes of a single patient: the
probability of an unseen kind (Good 1953, Biometrika 40:237)."""


def charts_of(watched: Watched, settings: WatchSettings, today: date) -> list[WatchChart]:
    """Return the charts of every model: of all its images, its devices and its sites."""
    rows = watched.rows.dropna(subset="day")
    rows = rows.assign(period=_periods(rows["day"], settings.every))
    drafts = [draft for k in range(len(watched.models)) for draft in _drafts(rows[rows["model"] == k], k, settings)]
    current = _periods(pd.Series([pd.Timestamp(today)]), settings.every).iloc[0]
    for draft in drafts:
        draft.split(current)
    counts = Counter(name for draft in drafts if not draft.reason for name, _ in draft.tested)
    rate = settings.false_alarms / PERIODS_A_YEAR[settings.every]
    return [draft.finished(rate, counts, settings.seed) for draft in drafts]


def _periods(days: pd.Series, every: Every) -> pd.Series:
    return days.dt.strftime("%Y-%m" if every == "month" else "%G-W%V")


def _drafts(rows: pd.DataFrame, model: int, settings: WatchSettings) -> Iterator["_Draft"]:
    """Yield the charts of one model. Devices and sites are divided only if there are several."""
    if rows.empty:
        return
    rows = rows.assign(in_baseline=_in_baseline(rows, settings))
    yield _Draft(rows, model, "all", "", settings.least_patients)
    divisions: tuple[Literal["device", "site"], ...] = ("device", "site")
    for division in divisions:
        named = rows.assign(**{division: rows[division].replace("", "not recorded")})
        if division == "device":  # a failed file names none
            named = named[named["frame"] >= 0].assign(failures=np.nan)
        if named[division].nunique() < 2:
            continue
        names = sorted(named[division].unique())
        patients = named[named["in_baseline"]].groupby(division)["group"].nunique()
        small = [name for name in names if patients.get(name, 0) < settings.least_patients]
        for name in names:
            if name not in small:
                yield _Draft(named[named[division] == name], model, division, name, settings.least_patients)
        if small:
            own = named[named[division].isin(small)]
            yield _Draft(own, model, division, " + ".join(small), settings.least_patients)


def _in_baseline(rows: pd.DataFrame, settings: WatchSettings) -> pd.Series:
    """Return which images are the baseline; that of a model without a declared one is its first periods."""
    declared = rows["baseline"]
    if not settings.baseline and settings.baseline_until is not None:
        declared = rows["day"] <= pd.Timestamp(day_of(settings.baseline_until, last=True))
    if declared.any():
        return declared
    first = sorted(rows["period"].unique())[: settings.baseline_periods]
    return rows["period"].isin(first)


@dataclass
class _Draft:
    """The images of one chart."""

    rows: pd.DataFrame
    model: int
    division: Literal["all", "device", "site"]
    name: str
    least_patients: int
    parts: list[tuple[str, PeriodState, pd.DataFrame]] = field(default_factory=list)
    """Name, state and images of each period, in the order of time."""

    def __post_init__(self) -> None:
        self.baseline = self.rows[self.rows["in_baseline"]]
        self.n_patients = _patients(self.baseline)
        self.reason: str | None = None
        if self.n_patients < self.least_patients:
            self.reason = (
                f"The baseline has {plural(self.n_patients, 'patient')}, fewer than --least-patients "
                f"{self.least_patients}: too small to set limits."
            )
        seen = self.baseline[self.baseline["size"] != ""].groupby("size")["group"].nunique()
        own = pd.Series(np.where(self.rows["in_baseline"], 1, 0), index=self.rows.index)
        new = (self.rows["size"].map(seen).fillna(0) <= own).astype(float)
        self.rows = self.rows.assign(new_size=new.where(self.rows["size"] != "") if len(seen) else np.nan)
        self.baseline = self.rows[self.rows["in_baseline"]]

    @property
    def tested(self) -> list[tuple[str, pd.DataFrame]]:
        return [(name, rows) for name, state, rows in self.parts if state == "tested"]

    def split(self, current: str) -> None:
        """Divide the images into periods; those from ``current`` on are not over."""
        rest = self.rows[~self.rows["in_baseline"]]
        names = sorted({*self.rows["period"], *(_between(self.rows) if self.division == "all" else ())})
        for name in names:
            before, after = self.baseline[self.baseline["period"] == name], rest[rest["period"] == name]
            if len(before):
                self.parts.append((name, "baseline", before))
            if len(after) or not len(before):
                state: PeriodState = "tested" if len(after) and not self.reason else "not tested"
                self.parts.append((name, "not over" if name >= current and len(after) else state, after))

    def finished(self, rate: float, counts: Counter[str], seed: int) -> WatchChart:
        points: dict[str, ChartPoint] = {}
        if self.tested and not self.reason:
            chart = control_chart(
                _sums(self.baseline),
                [_sums(rows) for _, rows in self.tested],
                [rate / counts[name] for name, _ in self.tested],
                upward=[one.upward for one in QUANTITIES.values()],
                steady=[one.steady for one in QUANTITIES.values()],
                seed=seed,
            )
            points = dict(zip((name for name, _ in self.tested), chart, strict=True))
        return WatchChart(
            model=self.model,
            division=self.division,
            name=self.name,
            n_baseline_patients=self.n_patients,
            baseline={name: _estimate(self.baseline, one) for name, one in _present(self.rows)},
            reason=self.reason,
            periods=[
                _period(name, state, rows, points.get(name) if state == "tested" else None, _present(self.rows))
                for name, state, rows in self.parts
            ],
        )


def _between(rows: pd.DataFrame) -> list[str]:
    """Return the names of all periods from the first to the last, also of those without images."""
    weekly = "W" in rows["period"].iloc[0]
    days = pd.Series(pd.date_range(rows["day"].min(), rows["day"].max(), freq="D"))
    return list(_periods(days, "week" if weekly else "month").unique())


def _patients(rows: pd.DataFrame) -> int:
    return int(rows.loc[rows["frame"] >= 0, "group"].nunique())


def _sums(rows: pd.DataFrame) -> PatientSums:
    return PatientSums.of(rows[list(QUANTITIES)].to_numpy(np.float64), rows["group"].to_numpy(str))


def _present(rows: pd.DataFrame) -> list[tuple[str, WatchedQuantity]]:
    return [(name, one) for name, one in QUANTITIES.items() if rows[name].notna().any()]


def _estimate(rows: pd.DataFrame, quantity: WatchedQuantity) -> Estimate:
    own = rows[rows[quantity.name].notna()]
    if own.empty:
        return undefined("there are no images", 0)
    values, group = own[quantity.name].to_numpy(np.float64), own["group"].to_numpy(object)
    return clustered_share(values > 0, group) if quantity.is_share else clustered_mean(values, group)


def _period(
    name: str,
    state: PeriodState,
    rows: pd.DataFrame,
    point: ChartPoint | None,
    present: Sequence[tuple[str, WatchedQuantity]],
) -> WatchPeriod:
    images = rows[rows["frame"] >= 0]
    return WatchPeriod(
        period=name,
        state=state,
        n_patients=_patients(rows),
        n_images=len(images),
        decisions={str(key): int(n) for key, n in images["decision"].value_counts().sort_index().items()},
        failures={str(key): int(n) for key, n in rows.loc[rows["code"] != "", "code"].value_counts().items()},
        values={key: _value(_estimate(rows, one), point, list(QUANTITIES).index(key)) for key, one in present},
    )


def _value(estimate: Estimate, point: ChartPoint | None, k: int) -> WatchedValue:
    if point is None or not np.isfinite(point.deviation[k]):
        empty = dict.fromkeys(("deviation", "drift", "jump_limit", "drift_limit"))
        return WatchedValue(value=estimate, alarms=[], **empty)
    found: tuple[tuple[WatchAlarm, bool], ...] = (("jump", bool(point.jumps[k])), ("drift", bool(point.drifts[k])))
    return WatchedValue(
        value=estimate,
        deviation=_bounded(point.deviation[k]),
        drift=_bounded(point.drift[k]),
        jump_limit=_bounded(point.jump_limits[k]),
        drift_limit=_bounded(point.drift_limits[k]),
        alarms=[name for name, is_alarm in found if is_alarm],
    )


def _bounded(value: float) -> float:
    return float(np.clip(value, -1e9, 1e9))
