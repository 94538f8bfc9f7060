"""``usvit watch``: from scored sets to the verdict, its record and its page."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd

from usvit import __version__
from usvit.config.keywords import takes_settings
from usvit.config.watching import PERIODS_A_YEAR, WatchSettings, day_of
from usvit.errors import UsvitError
from usvit.files import OutputFolder
from usvit.monitoring.acceptance import accept
from usvit.monitoring.charts import charts_of
from usvit.monitoring.pages import write_watch
from usvit.monitoring.rules import StopRule, reasons_of_alarms
from usvit.monitoring.sources import Watched, WatchedFolder, read_watched, with_sites
from usvit.records import AcceptanceRecord, StopCondition, WatchChart, WatchedModel, WatchRecord, WatchVerdict


@takes_settings
def watch(
    scores: str | Path | Sequence[str | Path],
    settings: WatchSettings,
    *,
    out: str | Path = "watch",
    command: str = "",
) -> tuple[WatchRecord, Path]:
    """Watch a model in use: compare scores, images, failures and decisions of each period with a baseline.

    No labels are needed. An alarm has a stated rate while nothing changes (``usvit.metrics.control_charts``).

    Args:
        scores: folders that ``usvit score`` wrote, or the folder of a node; ``SITE=FOLDER`` names a site,
            ``@2026-03=FOLDER`` the date of all images, ``SITE@2026-03=FOLDER`` both.
        settings: see ``WatchSettings``.
        out: folder to write watch.json, watch.html and watch.md into; files of an earlier call are replaced.
        command: command line for the record.

    Returns:
        The content of watch.json (docs/reference/watch.schema.json), and the folder.

    Raises:
        UsvitError: a folder, a setting or the labels cannot be used, or ``out`` holds other files.

    Example:
        >>> import usvit
        >>> record, folder = usvit.watch("scores", out="watched", least_patients=10)
        >>> record.verdict, len(record.inventory)
        ('not tested', 1)
    """
    folder = OutputFolder(Path(out), "a page of usvit watch", files=("watch.json", "watch.html", "watch.md"))
    folder.refuse_other_files()
    rules = [StopRule.parse(text) for text in settings.stop]
    given = [scores] if isinstance(scores, str | Path) else list(scores)
    if not given:
        raise UsvitError("Pass the folder of at least one scored set.")
    sources = [WatchedFolder.parse(one) for one in given]
    baseline = [WatchedFolder.parse(one) for one in settings.baseline]
    if baseline and settings.baseline_until is not None:
        raise UsvitError("--baseline and --baseline-until both state the baseline: pass one of them.")
    now = datetime.now(UTC)
    today = now.date() if settings.as_of is None else day_of(settings.as_of)
    named = with_sites([*baseline, *sources])
    watched = read_watched(named[len(baseline) :], named[: len(baseline)], settings.dates, now.date())
    charts = charts_of(watched, settings, today)
    folders = {one.folder for one in sources}
    acceptance = accept(settings.labelled or (folders.pop() if len(folders) == 1 else None), settings)
    stop = [one.judge(charts, acceptance) for one in rules]
    verdict, reasons = _verdict(charts, acceptance, stop, settings)
    record = WatchRecord(
        command=command or "usvit.watch(...)",
        usvit_version=__version__,
        time=now.isoformat(timespec="seconds"),
        verdict=verdict,
        reasons=reasons,
        every=settings.every,
        false_alarms=settings.false_alarms,
        rate=settings.false_alarms / PERIODS_A_YEAR[settings.every],
        dates=settings.dates,
        baseline=_baseline_words(settings),
        inventory=_inventory(watched),
        charts=charts,
        acceptance=acceptance,
        stop=stop,
        warnings=[*watched.warnings, *_changes(watched, charts)],
    )
    write_watch(folder, record)
    return record, folder.path


def _verdict(
    charts: Sequence[WatchChart],
    acceptance: AcceptanceRecord | None,
    stop: Sequence[StopCondition],
    settings: WatchSettings,
) -> tuple[WatchVerdict, list[str]]:
    since = ""
    if settings.since is not None:
        since = day_of(settings.since).strftime("%Y-%m" if settings.every == "month" else "%G-W%V")
    alarms = reasons_of_alarms(charts, since)
    if acceptance is not None and not acceptance.accepted:
        missed = ", ".join(f"{one.name} of at least {one.minimum:g}" for one in acceptance.figures if not one.met)
        alarms.append(f"The acceptance test is not met: {missed}.")
    stopped = [f"Condition to stop, {one.rule}: {one.found}." for one in stop if one.fulfilled]
    if stopped:
        return "stop", stopped + alarms
    if alarms:
        return "alarm", alarms
    if any(one.state == "tested" for chart in charts for one in chart.periods):
        return "in control", []
    why = dict.fromkeys(one.reason for one in charts if one.reason)
    return "not tested", [*why] or ["No period after the baseline is over yet."]


def _baseline_words(settings: WatchSettings) -> str:
    if settings.baseline:
        return f"the scores given as --baseline ({len(settings.baseline)})"
    if settings.baseline_until is not None:
        return f"all images until {day_of(settings.baseline_until, last=True).isoformat()}"
    return f"the first {settings.baseline_periods} {settings.every}s of each model"


def _inventory(watched: Watched) -> list[WatchedModel]:
    found = []
    for k, (one, facts) in enumerate(zip(watched.models, watched.facts, strict=True)):
        rows = watched.rows[watched.rows["model"] == k]
        days = rows["day"].dropna()
        first, last = ("unknown", "unknown") if days.empty else (days.min(), days.max())
        found.append(
            WatchedModel(
                sha256=one.sha256 or None,
                architectures=sorted(facts.architectures),
                threshold=one.threshold,
                threshold_origin=facts.threshold_origin or None,
                calibration_sha256=one.calibration,
                usvit_versions=sorted(facts.versions),
                first=_text(first),
                last=_text(last),
                n_images=int((rows["frame"] >= 0).sum()),
            )
        )
    return found


def _text(day: "str | pd.Timestamp") -> str:
    return day if isinstance(day, str) else day.date().isoformat()


def _changes(watched: Watched, charts: Sequence[WatchChart]) -> list[str]:
    """Say where a model replaced another, since it has a baseline of its own."""
    said = []
    for k in range(1, len(watched.models)):
        a, b = watched.models[k - 1], watched.models[k]
        parts = {
            "networks": a.sha256 != b.sha256,
            "threshold": a.threshold != b.threshold,
            "recalibration": a.calibration != b.calibration,
        }
        changed = ", ".join(name for name, differs in parts.items() if differs)
        own = next((one for one in charts if one.model == k), None)
        names = [one.period for one in own.periods if one.state == "baseline"] if own else []
        days = watched.rows.loc[watched.rows["model"] == k, "day"].dropna()
        if names and len(days):
            said.append(
                f"The model changed ({changed}): model {k + 1} scored images from {_text(days.min())}. It has a "
                f"baseline of its own, {names[0]}{f' to {names[-1]}' if len(names) > 1 else ''}."
            )
    said += [
        f"Model {k + 1} was used with several versions of usvit: {', '.join(sorted(one.versions))}."
        for k, one in enumerate(watched.facts)
        if len(one.versions) > 1
    ]
    return said
