"""Sources of what is watched: how they are written, and the folder of a node."""

import json
from datetime import date

import pytest

from tests.scoring.scored import CLASSES, POSITIVE, row
from usvit.config.watching import day_of
from usvit.errors import UsvitError
from usvit.monitoring.sources import WatchedFolder, read_watched
from usvit.scoring import score_columns, write_rows


def test_a_source_has_a_site_and_a_date(tmp_path):
    assert WatchedFolder.parse(str(tmp_path)) == WatchedFolder(tmp_path)
    assert WatchedFolder.parse(f"north={tmp_path}") == WatchedFolder(tmp_path, "north")
    assert WatchedFolder.parse(f"@2026-03={tmp_path}") == WatchedFolder(tmp_path, "", date(2026, 3, 1))
    assert WatchedFolder.parse(f"north@2026-03-31={tmp_path}") == WatchedFolder(tmp_path, "north", date(2026, 3, 31))
    (tmp_path / "a=b").mkdir()
    assert WatchedFolder.parse(str(tmp_path / "a=b")) == WatchedFolder(tmp_path / "a=b")
    for text, said in ((f"@2026-13={tmp_path}", "is no date"), ("north=nowhere", "nowhere is not a folder")):
        with pytest.raises(UsvitError, match=said):
            WatchedFolder.parse(text)


def test_a_month_has_a_first_and_a_last_day():
    assert day_of("2028-02", last=True) == date(2028, 2, 29) and day_of("2028-02") == date(2028, 2, 1)
    with pytest.raises(ValueError, match="is no date"):
        day_of("2026-2-1")


def test_the_studies_of_a_node_have_the_days_and_failures_of_its_audit_log(tmp_path):
    (tmp_path / "node.sqlite").touch()
    events = []
    for k in range(3):
        study = f"{'a' * 15}{k}"
        folder = tmp_path / "results" / study / "1"
        folder.mkdir(parents=True)
        write_rows(folder / "scores.csv", score_columns(CLASSES, POSITIVE), [row(10 * k), row(10 * k + 1)])
        told = {"time": f"2026-0{k + 1}-05T10:00:00+00:00", "event": "study_scored", "study": study, "revision": 1}
        events.append(told | {"failed": k})
    (tmp_path / "audit.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    found = read_watched([WatchedFolder(tmp_path)], [], "study", date(2026, 6, 1))
    assert found.rows["day"].dt.month.value_counts().to_dict() == {1: 2, 2: 3, 3: 4}
    assert (found.rows["code"] == "failed").sum() == 3
    (tmp_path / "audit.jsonl").write_text("{\n")
    with pytest.raises(UsvitError, match=r"audit\.jsonl is damaged"):
        read_watched([WatchedFolder(tmp_path)], [], "study", date(2026, 6, 1))
