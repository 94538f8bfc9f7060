"""The audit log: every event once, whatever is killed."""

import json

from usvit.node.audit_log import NodeAuditLog
from usvit.node.database import NodeDatabase, add_event


def test_each_event_is_appended_once_also_by_a_service_that_starts_after_a_torn_line(tmp_path):
    database, path = NodeDatabase(tmp_path / "node.sqlite", create=True), tmp_path / "audit.jsonl"
    for number in range(3):
        with database.transaction() as connection:
            add_event(connection, "received", study=f"s{number}")
    log = NodeAuditLog(path)
    assert log.append(database) == 3
    assert log.append(database) == 0
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])  # the machine stopped within the last line
    with database.transaction() as connection:
        add_event(connection, "study_scored", study="s0")
    assert NodeAuditLog(path).append(database) == 2
    assert path.read_bytes().startswith(whole)
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["event_id"] for one in events] == [1, 2, 3, 4]
    assert [one["event"] for one in events] == ["received"] * 3 + ["study_scored"]
    assert path.stat().st_mode & 0o077 == 0


def test_events_stay_in_the_database_for_a_while_only(tmp_path, monkeypatch):
    monkeypatch.setattr("usvit.node.audit_log.KEPT", 2)
    database = NodeDatabase(tmp_path / "node.sqlite", create=True)
    for number in range(5):
        with database.transaction() as connection:
            add_event(connection, "received", number=number)
    NodeAuditLog(tmp_path / "audit.jsonl").append(database)
    assert database.rows("SELECT id FROM audit_events")[0][0] == 4
    with database.transaction() as connection:  # numbers go on, although rows are gone
        add_event(connection, "received", number=5)
    assert NodeAuditLog(tmp_path / "audit.jsonl").append(database) == 1
