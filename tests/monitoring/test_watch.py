"""``usvit.watch`` on folders of scores: baselines, periods, changes of the model, and what is damaged or missing."""

import json
from datetime import date

import jsonschema
import pandas as pd
import pytest

import usvit
from tests.conftest import REPOSITORY
from tests.monitoring.months import write_month
from usvit.config.watching import WatchSettings
from usvit.errors import UsvitError
from usvit.monitoring.charts import charts_of
from usvit.monitoring.rules import StopRule
from usvit.monitoring.sources import WatchedFolder, read_watched, with_sites
from usvit.records import WatchRecord, load_record

SCHEMA = json.loads((REPOSITORY / "docs/reference/watch.schema.json").read_text())
TODAY = date(2026, 12, 1)


@pytest.fixture(scope="module")
def months(tmp_path_factory):
    """Six months: the fifth is brighter."""
    root = tmp_path_factory.mktemp("months")
    return [write_month(root / f"m{k}", f"2026-0{k}", brighter=40.0 * (k == 5)) for k in range(1, 7)]


def charts(*folders, baseline=(), today=TODAY, **settings):
    """Read folders and test them, without a page."""
    named = with_sites([*map(WatchedFolder.parse, baseline), *map(WatchedFolder.parse, folders)])
    chosen = WatchSettings(baseline=tuple(map(str, baseline)), **settings)
    watched = read_watched(named[len(baseline) :], named[: len(baseline)], chosen.dates, TODAY)
    return charts_of(watched, chosen, today), watched


def states(chart):
    return {one.period: one.state for one in chart.periods}


@pytest.mark.slow
def test_a_brighter_month_is_an_alarm_and_the_record_and_pages_say_so(months, tmp_path):
    record, folder = usvit.watch(months, out=tmp_path / "w", as_of="2026-12-01", false_alarms=0.5, stop=["any:2"])
    assert record.verdict == "alarm" and record == load_record(folder / "watch.json", WatchRecord)
    jsonschema.validate(json.loads((folder / "watch.json").read_text()), SCHEMA, jsonschema.Draft202012Validator)
    bright = record.charts[0].periods[4].values["brightness"]
    assert bright.alarms and bright.value.value == pytest.approx(100, abs=8)
    assert abs(bright.deviation) > bright.jump_limit
    html, text = (folder / "watch.html").read_text(), (folder / "watch.md").read_text()
    assert "<script" not in html and "2026-05, all images" in html and "2026-05, all images" in text
    assert record.stop[0].fulfilled is False


def test_the_first_periods_are_the_baseline_and_the_others_are_tested(months):
    (chart,), _ = charts(*months)
    assert list(states(chart).values()) == ["baseline"] * 3 + ["tested"] * 3
    assert [one.alarms != [] for one in chart.periods] == [False, False, False, False, True, False]
    assert chart.n_baseline_patients == 120


def test_a_baseline_is_declared_by_folder_or_by_date(months):
    by_folder = charts(*months[2:], baseline=months[:2])[0][0]
    by_date = charts(*months, baseline_until="2026-02")[0][0]
    assert by_folder == by_date and list(states(by_folder).values()) == ["baseline"] * 2 + ["tested"] * 4
    split = charts(*months, baseline_until="2026-02-14")[0][0]
    assert split.n_baseline_patients == 40


def test_a_period_that_is_not_over_is_shown_and_not_tested(months):
    (chart,), _ = charts(*months, today=date(2026, 5, 31))
    assert list(states(chart).values())[3:] == ["tested", "not over", "not over"]
    assert chart.periods[4].n_images and not chart.periods[4].alarms


def test_an_empty_month_is_named_and_weeks_are_iso_weeks(months):
    (chart,), _ = charts(*months[:4], months[5])
    assert states(chart)["2026-05"] == "not tested" and chart.periods[4].n_images == 0
    (weekly,), _ = charts(*months[:2], every="week", baseline_periods=1)
    assert weekly.periods[0].period == "2026-W03" and weekly.periods[-1].period == "2026-W07"


def test_one_month_is_its_own_baseline(months):
    (chart,), _ = charts(months[0])
    assert states(chart) == {"2026-01": "baseline"} and chart.reason is None


def test_a_single_patient_in_a_month_is_tested(months, tmp_path):
    one = write_month(tmp_path / "one", "2026-07", n_patients=1)
    (chart,), _ = charts(*months[:3], one)
    assert chart.periods[-1].state == "tested" and chart.periods[-1].n_patients == 1


def test_a_small_baseline_sets_no_limits_and_says_so(tmp_path):
    folders = [write_month(tmp_path / f"{k}", f"2026-0{k}", n_patients=6) for k in range(1, 6)]
    (chart,), _ = charts(*folders)
    assert "18 patients" in chart.reason and "tested" not in states(chart).values()


def test_a_model_that_replaces_another_in_mid_month_has_its_own_baseline(months, tmp_path):
    new = [
        write_month(tmp_path / f"n{k}", f"2026-0{k}", sha256="cd" * 32, study_date=f"2026-0{k}-20") for k in range(3, 8)
    ]
    found, watched = charts(*months[:3], *new, baseline_until="2026-01")
    first, second = (one for one in found if one.division == "all")
    assert [one.sha256[:2] for one in watched.models] == ["ab", "cd"]
    assert states(first) == {"2026-01": "baseline", "2026-02": "tested", "2026-03": "tested"}
    assert list(states(second).values()) == ["baseline"] * 3 + ["tested"] * 2 and "2026-03" in states(second)


@pytest.mark.slow
def test_the_inventory_says_what_changed_and_when(months, tmp_path):
    new = write_month(tmp_path / "n", "2026-07", calibration="ef" * 32)
    record, _ = usvit.watch([*months[:3], new], out=tmp_path / "w", as_of="2026-12-01")
    assert [one.calibration_sha256 for one in record.inventory] == [None, "ef" * 32]
    assert record.inventory[1].first == "2026-07-15"
    assert any(
        "The model changed (recalibration): model 2 scored images from 2026-07-15" in one for one in record.warnings
    )


def test_devices_and_sites_with_few_patients_are_pooled(months, tmp_path):
    parts = []
    for k in range(1, 6):
        for device, n in (("A", 15), ("B", 6), ("C", 6)):
            own = {"n_patients": n, "device": device, "study_date": f"2026-0{k}-{15 + n}"}
            parts.append(write_month(tmp_path / f"{k}{device}", f"2026-0{k}", seed=ord(device) + k, **own))
    # the three parts of a month share the ids of their files, so different bytes tell them apart
    for number, part in enumerate(parts):
        table = pd.read_parquet(part / "scores.parquet")
        for name in ("item_id", "patient_id", "file_sha256"):
            table[name] = [f"{number:04x}{text[4:]}" for text in table[name]]
        (part / "summary.json").rename(part / "old.json")
        (part / "job.json").unlink(missing_ok=True)
        table.to_parquet(part / "scores.parquet")
    found, _ = charts(*(f"@2026-0{part.name[0]}={part}" for part in parts), least_patients=30)
    names = {one.name: (one.n_baseline_patients, one.reason) for one in found if one.division == "device"}
    assert names == {"A": (45, None), "B + C": (36, None)}


def test_sites_are_those_that_the_user_names(months):
    found, _ = charts(*(f"{'north' if k % 2 else 'south'}={one}" for k, one in enumerate(months)), baseline_periods=4)
    assert {one.name for one in found if one.division == "site"} == {"north", "south"}


def test_dates_come_from_the_study_the_user_or_the_day_of_scoring(months, tmp_path):
    undated = write_month(tmp_path / "u", "2026-06", study_date="")
    assert states(charts(undated)[0][0]) == {"2026-06": "baseline"}
    assert states(charts(f"@2025-02={months[0]}")[0][0]) == {"2025-02": "baseline"}
    assert states(charts(months[0], dates="scoring")[0][0]) == {"2026-01": "baseline"}


def test_wrong_clocks_leave_images_out_and_say_so(months, tmp_path):
    future = write_month(tmp_path / "f", "2026-06", study_date="2031-01-01")
    _, watched = charts(months[0], future)
    assert any("in the future" in one for one in watched.warnings)
    assert any("without a date" in one for one in watched.warnings)
    with pytest.raises(UsvitError, match="No image has a possible date"):
        charts(future)


def test_an_image_in_two_folders_counts_once(months):
    (chart,), watched = charts(months[0], months[0], months[1])
    assert any("count once" in one for one in watched.warnings)
    assert chart.periods[0].n_patients == 40


def test_a_month_in_which_every_file_failed_has_failures_and_no_patients(months, tmp_path):
    failed = write_month(tmp_path / "all", "2026-07", n_patients=0, failures=30)
    (chart,), _ = charts(*months[:4], failed)
    last = chart.periods[-1]
    assert last.failures == {"damaged": 30} and last.n_images == 0
    assert last.values["failures"].value.value == 1 and last.values["failures"].alarms


def test_scores_without_a_threshold_have_no_decisions(tmp_path):
    folders = [write_month(tmp_path / f"{k}", f"2026-0{k}", threshold=None) for k in range(1, 5)]
    (chart,), _ = charts(*folders)
    assert "positive" not in chart.baseline and "undecided" not in chart.baseline
    assert set(chart.periods[0].decisions) == {"none"}


def test_tables_of_earlier_versions_have_no_image_statistics(months, tmp_path):
    old = write_month(tmp_path / "old", "2026-01")
    table = pd.read_parquet(old / "scores.parquet").drop(columns=["brightness", "contrast", "width", "height"])
    table.to_parquet(old / "scores.parquet")
    (old / "summary.json").unlink()
    (chart,), _ = charts(f"@2026-01={old}")
    assert "brightness" not in chart.baseline and "score" in chart.baseline


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda folder: (folder / "scores.parquet").write_bytes(b"no table"), "scores.parquet"),
        (lambda folder: (folder / "summary.json").write_text("{"), "summary.json"),
        (lambda folder: [one.unlink() for one in folder.iterdir()], "no scores.parquet or scores.csv"),
        (lambda folder: (folder / "summary.json").unlink(), "its day is not known"),
    ],
)
def test_a_damaged_folder_is_named(change, text, tmp_path):
    folder = write_month(tmp_path / "m", "2026-01", n_patients=3)
    change(folder)
    with pytest.raises(UsvitError, match=text):
        charts(folder)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"stop": ["failure>0.1"]}, "Nearest: failures"),
        ({"stop": ["novelty:0"]}, "--stop novelty:0|'stop'"),
        ({"stop": ["novelty"]}, "expected such as"),
        ({"baseline_until": "March"}, "is no date"),
        ({"min_auc": 0.8}, "needs the labels"),
        ({"labels": "x.csv"}, "declared beforehand"),
        ({"baseline": ["nowhere"]}, "is not a folder"),
        ({"false_alarms": 0.0}, "false_alarms"),
    ],
)
def test_wrong_settings_are_refused_and_nothing_is_written(settings, text, months, tmp_path):
    from pathlib import Path

    given = {name: Path(value) if name == "labels" else value for name, value in settings.items()}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    with pytest.raises(UsvitError, match=text):
        usvit.watch(months[0], out=tmp_path / "w", **given)
    assert not (tmp_path / "w").exists()


def test_conditions_to_stop_are_judged_on_the_last_periods(months):
    found, _ = charts(*months[:5])
    assert StopRule.parse("brightness>80").judge(found, None).fulfilled
    assert not StopRule.parse("brightness<80").judge(found, None).fulfilled
    assert StopRule.parse("brightness:1").judge(found, None).fulfilled
    assert not StopRule.parse("brightness:2").judge(found, None).fulfilled
    assert StopRule.parse("acceptance").judge(found, None).fulfilled
    later, _ = charts(*months)
    assert not StopRule.parse("any:1").judge(later, None).fulfilled
