"""Months of a model in use, in control or after a known change, for the rate of false alarms and the delay of alarms.

A study is one site: a baseline and 12 months, whose patients have 1 to 20 images. Logits have an SD of 0.8 between and
0.6 within patients, and fall with the number of images (informative sizes); grey levels 15 and 8; 3 % of the images are
novel, in clusters; 0.3 % of the files fail. A month has 5, 20, 60 or 120 patients. One false alarm a year is stated:
0.083 of the months. A change begins with the first month. The delay counts months until the first alarm, 13 if there is
none; "at once" is the share of sites with an alarm in the first month.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, ndtri

from benchmarks.coverage.harness import Outcome, Row, Spread, Table
from usvit.metrics.control_charts import PatientSums, control_chart

N_MONTHS = 12
UPWARD, STEADY = (False, False, True, False, True), (np.nan, 0.5, 1.0, np.nan, 1.0)


@dataclass(frozen=True)
class Site(Row):
    """Patients of the baseline and of a month (None: 5 to 120), and the change."""

    baseline_patients: int
    patients: int | None = None
    brighter_by: float = 0.0
    """Grey levels."""
    more_cancers: float = 0.0
    """Share of patients whose logits rise by 2."""
    score_shift: float = 0.0
    """Of all logits."""
    drift: float = 0.0
    """Of all logits, more by this in each month."""
    novel: float = 0.03
    rate: float = 1 / 12

    @property
    def is_changed(self) -> bool:
        return bool(self.brighter_by or self.more_cancers or self.score_shift or self.drift or self.novel != 0.03)


def _month(rng: np.random.Generator, n_patients: int, row: Site, month: int | None) -> PatientSums:
    """Draw one month, or the baseline (None), which is unchanged."""
    changed = 0.0 if month is None else 1.0
    size = rng.integers(1, 21, size=n_patients)
    group = np.repeat(np.arange(n_patients), size)

    def drawn(between: float, within: float) -> np.ndarray:
        return between * rng.normal(size=n_patients)[group] + within * rng.normal(size=len(group))

    logit = drawn(0.8, 0.6) - 0.5 - 0.05 * (size[group] - 10) / 10
    logit += changed * (row.score_shift + row.drift * ((month or 0) + 1))
    logit += changed * 2 * (rng.random(n_patients) < row.more_cancers)[group]
    share = row.novel if month is not None else 0.03
    failed = np.full(len(group), np.nan)
    failed[np.unique(group, return_index=True)[1]] = rng.random(n_patients) < 0.003
    prob = expit(logit)
    novel = drawn(0.8, 0.6) > ndtri(1 - share)
    grey = 60 + drawn(15, 8) + changed * row.brighter_by
    return PatientSums.of(np.column_stack([prob, prob > 0.5, novel, grey, failed]), group)


def watching(row: Site, k: int) -> Outcome:
    """Share of months with a false alarm, and delay of alarms after a change."""
    rng = np.random.default_rng([17, k])
    baseline = _month(rng, row.baseline_patients, row, None)
    sizes = [row.patients or int(rng.choice([5, 20, 60, 120])) for _ in range(N_MONTHS)]
    months = [_month(rng, n, row, t) for t, n in enumerate(sizes)]
    points = control_chart(baseline, months, [row.rate] * N_MONTHS, upward=UPWARD, steady=STEADY, seed=k)
    alarms = [one.alarm for one in points]
    if not row.is_changed:
        return {
            "months with an alarm": float(np.mean(alarms)),
            "jumps": float(np.mean([one.jumps.any() for one in points])),
            "drifts": float(np.mean([one.drifts.any() for one in points])),
        }
    delay = alarms.index(True) + 1 if any(alarms) else N_MONTHS + 1
    return {"delay in months": Spread(delay), "at once": float(alarms[0])}


TABLES = {
    "watch": Table(
        [
            *(Site(n) for n in (50, 200, 600)),
            *(Site(200, n) for n in (5, 20, 120)),
            Site(200, rate=1 / 120),
        ],
        watching,
        90,
    ),
    "watch_changes": Table(
        [
            *(Site(200, 60, brighter_by=n) for n in (5.0, 10.0, 20.0)),
            *(Site(200, 60, more_cancers=n) for n in (0.1, 0.2)),
            *(Site(200, 60, score_shift=n) for n in (0.2, 0.4, 0.8)),
            Site(200, 60, drift=0.05),
            *(Site(200, 60, novel=n) for n in (0.06, 0.15)),
            Site(200, 20, brighter_by=10.0),
        ],
        watching,
        60,
    ),
}
