"""A folder as a way in."""

import os

import pytest

from tests.node.images import image
from usvit.config.node import WatchedFolderConfig
from usvit.node.database import NodeDatabase
from usvit.node.receiving.folder_watcher import FolderWatcher
from usvit.node.receiving.instance_store import InstanceStore
from usvit.pseudonyms import Pseudonyms


@pytest.fixture
def store(tmp_path):
    (tmp_path / "node").mkdir()
    database = NodeDatabase(tmp_path / "node" / "node.sqlite", create=True)
    return InstanceStore(tmp_path / "node", database, Pseudonyms(bytes(range(32))))


def watcher(tmp_path, store, **settings):
    (tmp_path / "inbox").mkdir(exist_ok=True)
    return FolderWatcher(WatchedFolderConfig(path=tmp_path / "inbox", **settings), store)


def test_files_that_have_settled_are_taken_in_and_removed_and_all_others_stay(tmp_path, store, monkeypatch):
    own, clock = watcher(tmp_path, store, settle_seconds=5), [100.0]
    monkeypatch.setattr("usvit.node.receiving.folder_watcher.time.monotonic", lambda: clock[0])
    first = image(tmp_path / "inbox" / "sub" / "a.dcm", 1, 1)
    (tmp_path / "inbox" / "notes.txt").write_text("text")
    (tmp_path / "inbox" / "link.dcm").symlink_to("/etc/passwd")
    os.mkfifo(tmp_path / "inbox" / "pipe")
    assert own.look() == 0
    clock[0] += 4
    with open(first, "ab") as file:  # still being written
        file.write(b"\0\0")
    assert own.look() == 0
    clock[0] += 4
    assert own.look() == 0
    clock[0] += 4
    assert own.look() == 1
    assert sorted(path.name for path in (tmp_path / "inbox").iterdir()) == ["link.dcm", "notes.txt", "pipe", "sub"]
    assert not first.exists()
    assert [row["source"] for row in store._database.rows("SELECT source FROM instances")] == ["folder"]


def test_kept_files_are_taken_in_once_and_again_if_they_change(tmp_path, store):
    own = watcher(tmp_path, store, settle_seconds=0, keep=True)
    path = image(tmp_path / "inbox" / "a.dcm", 1, 1)
    assert [own.look(), own.look()] == [1, 0]
    assert path.exists()
    image(path, 1, 2, PatientName="Longer^Name^Of^Somebody")
    assert [own.look(), own.look()] == [1, 0]


def test_without_room_files_wait_in_their_folder(tmp_path, store, monkeypatch):
    own = watcher(tmp_path, store, settle_seconds=0)
    path = image(tmp_path / "inbox" / "a.dcm", 1, 1)
    monkeypatch.setattr(store, "_min_free", 10**18)
    assert own.look() == 0
    assert path.exists()
    monkeypatch.setattr(store, "_min_free", 0)
    assert own.look() == 1
