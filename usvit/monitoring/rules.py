"""Declared conditions to stop, and the verdict."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from usvit.errors import UsvitError, unknown
from usvit.monitoring.charts import QUANTITIES
from usvit.records import AcceptanceRecord, StopCondition, WatchChart, WatchPeriod

_RULE = re.compile(r"\s*([a-z_]+)\s*([<>:])\s*([0-9.]+)\s*")


@dataclass(frozen=True)
class StopRule:
    """One condition: a limit of a quantity, so many alarms in succession, or an acceptance test that is not met."""

    text: str
    quantity: str
    kind: Literal["<", ">", ":", "acceptance"]
    number: float = 0.0

    @classmethod
    def parse(cls, text: str) -> "StopRule":
        """Parse ``failures>0.1``, ``novelty:2``, ``any:2`` or ``acceptance``.

        Raises:
            UsvitError: it is none of these.
        """
        if text.strip() == "acceptance":
            return cls("acceptance", "", "acceptance")
        found = _RULE.fullmatch(text)
        try:
            number = float(found[3]) if found else 0.0
        except ValueError:
            found = None
        if found is None or (found[2] == ":" and (number < 1 or number != int(number))):
            raise UsvitError(f"--stop {text}: expected such as failures>0.1, novelty:2, any:2 or acceptance.")
        names = [*QUANTITIES, *(["any"] if found[2] == ":" else [])]
        if found[1] not in names:
            raise unknown("quantity of --stop", found[1], names)
        return cls(text.strip(), found[1], found[2], number)  # type: ignore[arg-type]

    def judge(self, charts: Sequence[WatchChart], acceptance: AcceptanceRecord | None) -> StopCondition:
        """Return whether the condition is fulfilled, in the chart of all images of the newest model or in any other."""
        if self.kind == "acceptance":
            words = "no acceptance test was made" if acceptance is None else "the acceptance test is not met"
            met = acceptance is not None and acceptance.accepted
            return StopCondition(
                rule=self.text, fulfilled=not met, found="the acceptance test is met" if met else words
            )
        newest = max((one.model for one in charts), default=0)
        own = [one for one in charts if one.model == newest]
        if self.kind == ":":
            longest = max((self._run(one) for one in own), default=0)
            return StopCondition(
                rule=self.text, fulfilled=longest >= self.number, found=f"alarms in {longest} successive last periods"
            )
        for one in (one for one in own if one.division == "all"):
            over = [period for period in one.periods if period.state in ("tested", "not tested") and period.values]
            value = over[-1].values[self.quantity].value.value if over and self.quantity in over[-1].values else None
            if value is not None:
                beyond = value > self.number if self.kind == ">" else value < self.number
                return StopCondition(rule=self.text, fulfilled=beyond, found=f"{value:.4g} in {over[-1].period}")
        return StopCondition(rule=self.text, fulfilled=False, found="not known: no period is over")

    def _run(self, chart: WatchChart) -> int:
        """Return the number of successive periods with an alarm up to the last tested one."""
        n = 0
        for one in reversed([one for one in chart.periods if one.state == "tested"]):
            if not (one.alarms if self.quantity == "any" else self.quantity in one.alarms):
                break
            n += 1
        return n


def reasons_of_alarms(charts: Sequence[WatchChart], since: str) -> list[str]:
    """Return a sentence for each period of each chart with an alarm, from the period ``since`` on."""
    return [
        f"{one.period}, {chart_words(chart)}: {'; '.join(alarm_words(one, chart))}."
        for chart in charts
        for one in chart.periods
        if one.alarms and one.period >= since
    ]


def chart_words(chart: WatchChart) -> str:
    return "all images" if chart.division == "all" else f"{chart.division} {chart.name}"


def alarm_words(period: WatchPeriod, chart: WatchChart) -> list[str]:
    """Return the quantities with an alarm: ``brightness 96.2 against 59.8 (jump)``."""
    said = []
    for name in period.alarms:
        digits, one = QUANTITIES[name].digits, period.values[name]
        numbers = f"{one.value.value:.{digits}f} against {chart.baseline[name].value:.{digits}f}"
        said.append(f"{name.replace('_', ' ')} {numbers} ({' and '.join(one.alarms)})")
    return said
