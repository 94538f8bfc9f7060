"""A folder as a way in."""

import os

import pytest

from tests.node.images import image
from usvit.node.config.settings import WatchedFolderConfig
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


def count(store):
    return store._database.one("SELECT count(*) FROM instances")[0]


def refused(tmp_path):
    return [path.parent.name.split("-")[0] for path in (tmp_path / "inbox" / ".usvit").glob("refused/*/*")]


def test_a_file_that_replaces_one_that_is_being_taken_in_is_kept_and_taken_in_next(tmp_path, store, monkeypatch):
    own = watcher(tmp_path, store, settle_seconds=0)
    path, take = image(tmp_path / "inbox" / "a.dcm", 1, 1), store.take

    def replaced_meanwhile(partial, **told):
        found = take(partial, **told)
        os.replace(image(tmp_path / "new.dcm", 1, 2), path)
        return found

    monkeypatch.setattr(store, "take", replaced_meanwhile)
    assert own.look() == 1
    monkeypatch.undo()
    assert path.exists()
    assert own.look() == 1
    assert count(store) == 2
    assert not path.exists()


@pytest.mark.parametrize("swap", ["pipe", "link", "folder"])
def test_what_is_put_in_place_of_a_settled_file_neither_blocks_nor_leads_out(tmp_path, store, monkeypatch, swap):
    own = watcher(tmp_path, store, settle_seconds=0)
    path, outside = image(tmp_path / "inbox" / "a.dcm", 1, 1), image(tmp_path / "outside.dcm", 2, 1)
    right = own._looks_right

    def swapped(found):
        answer = right(found)
        path.unlink(missing_ok=True)
        if swap == "pipe":
            os.mkfifo(path)
        elif swap == "link":
            path.symlink_to(outside)
        else:
            path.mkdir()
        return answer

    monkeypatch.setattr(own, "_looks_right", swapped)
    assert own.look() == 0
    assert (count(store), refused(tmp_path), outside.exists()) == (0, ["invalid"], True)


def test_a_file_that_is_too_large_is_set_aside_before_it_is_copied_and_audited(tmp_path, store, monkeypatch):
    own = watcher(tmp_path, store, settle_seconds=0)
    path = image(tmp_path / "inbox" / "sparse.dcm", 1, 1)
    os.truncate(path, 6 << 30)
    monkeypatch.setattr("usvit.node.receiving.folder_watcher._copy", lambda *_: pytest.fail("nothing is copied"))
    assert own.look() == 0
    assert (refused(tmp_path), path.exists()) == (["too_large"], False)
    event = store._database.one("SELECT event, data FROM audit_events ORDER BY id DESC")
    assert event["event"] == "file_set_aside"
    assert "sparse" not in event["data"]
    assert own.look() == 0  # what was set aside is not looked at again


def test_a_file_for_which_there_is_no_room_waits_and_is_not_copied(tmp_path, store, monkeypatch):
    own = watcher(tmp_path, store, settle_seconds=0)
    path = image(tmp_path / "inbox" / "a.dcm", 1, 1)
    free = os.statvfs(tmp_path)
    monkeypatch.setattr(store, "_min_free", free.f_bavail * free.f_frsize - (1 << 30))
    os.truncate(path, 1 << 30)
    monkeypatch.setattr("usvit.node.receiving.folder_watcher._copy", lambda *_: pytest.fail("nothing is copied"))
    assert own.look() == 0
    assert path.exists()


def test_files_that_the_store_refuses_are_set_aside_with_the_reason(tmp_path, store):
    own = watcher(tmp_path, store, settle_seconds=0)
    image(tmp_path / "inbox" / "1.dcm", 1, 1)
    image(tmp_path / "inbox" / "2.dcm", 1, 1, seed=7)  # the same UID with other pixels
    image(tmp_path / "inbox" / "3.dcm", 1, 3, SOPClassUID="1.2.840.10008.5.1.4.1.1.88.11")
    assert own.look() == 1
    assert sorted(refused(tmp_path)) == ["conflict", "mismatch"]
    assert [path.name for path in (tmp_path / "inbox").iterdir()] == [".usvit"]


def test_a_file_that_was_moved_before_the_service_was_killed_is_taken_in_at_the_next_start(
    tmp_path, store, monkeypatch
):
    image(tmp_path / "inbox" / "a.dcm", 1, 1)

    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "take", killed)
    with pytest.raises(KeyboardInterrupt):
        watcher(tmp_path, store, settle_seconds=0).look()
    monkeypatch.undo()
    assert watcher(tmp_path, store, settle_seconds=0).look() == 1
    assert list((tmp_path / "inbox").iterdir()) == []


def test_the_private_folder_is_no_way_out_of_the_watched_one(tmp_path, store):
    own = watcher(tmp_path, store, settle_seconds=0)
    path = image(tmp_path / "inbox" / "a.dcm", 1, 1)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "inbox" / ".usvit").symlink_to(tmp_path / "elsewhere")
    assert own.look() == 1  # it cannot be moved, so it is taken in and stays
    assert (path.exists(), list((tmp_path / "elsewhere").iterdir())) == (True, [])
    assert own.look() == 0
