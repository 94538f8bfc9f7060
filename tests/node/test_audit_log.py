"""The audit log: every event once, whatever is killed."""

import json
import os

import pytest

from usvit.errors import UsvitError
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


def filled(folder, n=3):
    database, path = NodeDatabase(folder / "node.sqlite", create=True), folder / "audit.jsonl"
    for number in range(n):
        with database.transaction() as connection:
            add_event(connection, "received", study=f"s{number}")
    NodeAuditLog(path).append(database)
    return database, path


@pytest.mark.parametrize(
    "ending",
    [
        b"\0" * 5000,
        b"\0" * (1 << 17),
        b'{"event_id": 4, "ti',
        b'{"event_id": 4, "ti\0\0\0\n\0\0',
        b"\n\n",
        b"[1]\nnull\n12\n",
        b'{"event_id": "x"}\n{"event_id": true}\n{"event_id": -1}\n',
        b"[" * 5000 + b"\n",
        b"\xff\xfe\n",
    ],
)
def test_a_log_that_ends_in_zeros_or_garbage_after_a_power_loss_goes_on_after_its_last_whole_line(tmp_path, ending):
    database, path = filled(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole + ending)
    with database.transaction() as connection:
        add_event(connection, "study_scored", study="s0")
    assert NodeAuditLog(path).append(database) == 1
    assert path.read_bytes().startswith(whole)
    assert [json.loads(line)["event_id"] for line in path.read_text().splitlines()] == [1, 2, 3, 4]


def test_lines_that_were_replaced_by_zeros_are_written_again(tmp_path):
    database, path = filled(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + b"\0" * len(b"".join(lines[1:])))
    assert NodeAuditLog(path).append(database) == 2
    assert path.read_bytes() == b"".join(lines)


def test_a_log_without_a_whole_line_is_kept_under_another_name(tmp_path):
    database, path = filled(tmp_path)
    path.write_bytes(b"\0" * 300)
    assert NodeAuditLog(path).append(database) == 3
    (kept,) = tmp_path.glob("audit.damaged-*.jsonl")
    assert kept.read_bytes() == b"\0" * 300


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_log_that_is_a_link_or_no_file_is_neither_followed_nor_waited_for(tmp_path, kind):
    path, other = tmp_path / "audit.jsonl", tmp_path / "other"
    other.write_text("half a line")
    if kind == "link":
        path.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    with pytest.raises(UsvitError, match="audit log"):
        NodeAuditLog(path)
    assert other.read_text() == "half a line"
