"""The database of a node."""

import sqlite3
import threading

import pytest

from usvit.errors import UsvitError
from usvit.node.database import MIGRATIONS, NodeDatabase, add_event, count


def test_a_transaction_that_fails_leaves_nothing_and_threads_share_the_database(tmp_path):
    database = NodeDatabase(tmp_path / "node.sqlite", create=True)
    with pytest.raises(RuntimeError), database.transaction() as connection:
        count(connection, "x")
        raise RuntimeError

    def add():
        for _ in range(20):
            with database.transaction() as connection:
                count(connection, "x")
                add_event(connection, "tick")

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.one("SELECT value FROM counters")[0] == 80
    assert database.one("SELECT count(*) FROM audit_events")[0] == 80
    assert (tmp_path / "node.sqlite").stat().st_mode & 0o077 == 0


def test_commits_survive_a_crash_of_the_machine_by_the_settings_of_sqlite(tmp_path):
    database = NodeDatabase(tmp_path / "node.sqlite", create=True)
    assert database.one("PRAGMA journal_mode")[0] == "wal"
    assert database.one("PRAGMA synchronous")[0] == 2  # FULL


def test_a_newer_a_damaged_and_a_missing_database_are_errors_that_say_what_to_do(tmp_path):
    with pytest.raises(UsvitError, match="usvit node serve"):
        NodeDatabase(tmp_path / "node.sqlite")
    NodeDatabase(tmp_path / "node.sqlite", create=True).close()
    newer = sqlite3.connect(tmp_path / "node.sqlite")
    newer.execute(f"PRAGMA user_version={len(MIGRATIONS) + 1}")
    newer.close()
    with pytest.raises(UsvitError, match="another version of usvit"):
        NodeDatabase(tmp_path / "node.sqlite")
    (tmp_path / "bad.sqlite").write_bytes(b"no database" * 1000)
    with pytest.raises(UsvitError, match="cannot be used"):
        NodeDatabase(tmp_path / "bad.sqlite")


def test_an_older_database_is_brought_up_to_date_and_keeps_its_rows(tmp_path, monkeypatch):
    path = tmp_path / "node.sqlite"
    database = NodeDatabase(path, create=True)
    with database.transaction() as connection:
        count(connection, "kept", 3)
    database.close()
    later = (*MIGRATIONS, "ALTER TABLE counters ADD COLUMN unit TEXT; UPDATE counters SET unit = 'images'")
    monkeypatch.setattr("usvit.node.database.MIGRATIONS", later)
    migrated = NodeDatabase(path)
    assert tuple(migrated.one("SELECT * FROM counters")) == ("kept", 3, "images")
    assert migrated.one("PRAGMA user_version")[0] == len(later)
