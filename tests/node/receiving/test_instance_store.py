"""Taking in instances: what is stored, what is refused, and that nothing is half there."""

import errno
import hashlib
import shutil

import pydicom
import pytest

from tests.data.conftest import write_dicom
from tests.node.images import PLANTED, ROOT, image
from usvit.files import sha256_of_file
from usvit.node.database import NodeDatabase
from usvit.node.receiving.instance_store import InstanceStore, Outcome
from usvit.pseudonyms import Pseudonyms


class Setup:
    def __init__(self, folder, **limits):
        self.folder = folder
        self.database = NodeDatabase(folder / "node.sqlite", create=True)
        self.store = InstanceStore(folder, self.database, Pseudonyms(bytes(range(32))), **limits)

    def take(self, source, **more):
        partial = self.store.partial()
        shutil.copyfile(source, partial)
        receipt = self.store.take(partial, source="dimse", **more)
        assert list((self.folder / "incoming" / ".partial").iterdir()) == []
        return receipt

    def files(self):
        return sorted((self.folder / "incoming").glob("*/*/*"))

    def events(self):
        return [tuple(row) for row in self.database.rows("SELECT event, data FROM audit_events ORDER BY id")]


@pytest.fixture
def own(tmp_path):
    (tmp_path / "node").mkdir()
    return Setup(tmp_path / "node")


def test_an_instance_is_stored_as_it_came_under_a_name_without_uids(own, tmp_path):
    path = image(tmp_path / "a.dcm", 1, 1)
    receipt = own.take(path, calling_ae="SCANNER")
    assert receipt.outcome is Outcome.STORED
    row = own.database.one("SELECT * FROM instances")
    stored = own.folder / row["path"]
    assert own.files() == [stored]
    assert stored.read_bytes() == path.read_bytes()
    assert ROOT not in row["path"]
    assert row["file_sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (row["calling_ae"], row["state"], row["n_bytes"]) == ("SCANNER", "stored", path.stat().st_size)
    study = own.database.one("SELECT * FROM studies")
    assert (study["state"], study["revision"], study["study_uid"]) == ("open", 1, f"{ROOT}.1")
    ((event, data),) = own.events()
    assert event == "received"
    assert not [word for word in PLANTED if word in data]


def test_hash_of_the_data_set_ignores_who_wrote_the_file(own, tmp_path):
    path = image(tmp_path / "a.dcm", 1, 1)
    data = pydicom.dcmread(path)
    data.file_meta.ImplementationVersionName = "ANOTHER_SENDER"
    data.save_as(tmp_path / "b.dcm", enforce_file_format=True)
    assert (tmp_path / "b.dcm").read_bytes() != path.read_bytes()
    assert own.take(path).outcome is Outcome.STORED
    assert own.take(tmp_path / "b.dcm").outcome is Outcome.DUPLICATE
    assert own.take(image(tmp_path / "c.dcm", 1, 1, seed=9)).outcome is Outcome.CONFLICT
    assert len(own.files()) == 1
    assert own.files()[0].read_bytes() == path.read_bytes()
    assert [event for event, _ in own.events()] == ["received", "instance_duplicate", "instance_conflict"]


@pytest.mark.parametrize("uid", ["../../../etc/passwd", "1.2/3", "1..2", "", "1." * 40, "1.2.3\\4.5"])
@pytest.mark.parametrize("keyword", ["SOPInstanceUID", "StudyInstanceUID", "SeriesInstanceUID"])
@pytest.mark.filterwarnings("ignore")
def test_uids_that_are_none_are_refused(own, tmp_path, keyword, uid):
    data = pydicom.dcmread(image(tmp_path / "a.dcm", 1, 1))
    pydicom.config.settings.writing_validation_mode, before = 0, pydicom.config.settings.writing_validation_mode
    try:
        data[keyword]._value = uid
        data.save_as(tmp_path / "b.dcm")
    finally:
        pydicom.config.settings.writing_validation_mode = before
    assert own.take(tmp_path / "b.dcm").outcome is Outcome.INVALID
    assert own.files() == []
    assert own.database.rows("SELECT * FROM studies") == []


def test_what_is_no_image_or_not_what_was_announced_is_refused(own, tmp_path):
    path = image(tmp_path / "a.dcm", 1, 1)
    (tmp_path / "half.dcm").write_bytes(path.read_bytes()[:300])
    (tmp_path / "text.dcm").write_text("Doe^Jane")
    report = write_dicom(tmp_path / "r.dcm", None, SeriesInstanceUID="1.2.3")
    announced = ("1.2.840.10008.5.1.4.1.1.6.1", "1.2.3")
    assert own.take(tmp_path / "half.dcm").outcome is Outcome.INVALID
    assert own.take(tmp_path / "text.dcm").outcome is Outcome.INVALID
    assert own.take(report).outcome is Outcome.MISMATCH
    assert own.take(path, announced=announced).outcome is Outcome.MISMATCH
    assert own.files() == []


def test_without_room_nothing_is_taken_in_until_there_is_some(tmp_path):
    (tmp_path / "node").mkdir()
    own = Setup(tmp_path / "node", max_waiting=1)
    assert own.take(image(tmp_path / "a.dcm", 1, 1)).outcome is Outcome.STORED
    assert own.take(image(tmp_path / "b.dcm", 1, 2)).outcome is Outcome.STORED
    own.store._counted_at = -1e9
    assert own.take(image(tmp_path / "c.dcm", 1, 3)).outcome is Outcome.FULL
    with own.database.transaction() as connection:
        connection.execute("UPDATE instances SET state = 'scored'")
    own.store._counted_at = -1e9
    assert own.take(tmp_path / "c.dcm").outcome is Outcome.STORED
    (tmp_path / "other").mkdir()
    full = Setup(tmp_path / "other", min_free_bytes=10**18)
    assert full.take(tmp_path / "c.dcm").outcome is Outcome.FULL
    assert full.files() == []


def test_a_small_disk_that_is_full_refuses_keeps_what_was_stored_and_accepts_again(small_disk, tmp_path):
    filler = small_disk / "filler"
    filler.write_bytes(bytes(400_000))
    own, outcomes = Setup(small_disk), []
    while len(outcomes) < 200 and outcomes[-1:] != [Outcome.FULL]:
        try:
            outcomes.append(own.take(image(tmp_path / "a.dcm", 1, len(outcomes))).outcome)
        except OSError as error:  # the file itself did not fit, as the receiver meets it
            assert error.errno == errno.ENOSPC
            outcomes.append(Outcome.FULL)
            for path in (small_disk / "incoming" / ".partial").iterdir():
                path.unlink()
    assert set(outcomes[:-1]) == {Outcome.STORED}
    assert outcomes[-1] is Outcome.FULL
    rows = own.database.rows("SELECT path, file_sha256 FROM instances")
    assert len(rows) == len(outcomes) - 1
    assert all(sha256_of_file(small_disk / row["path"]) == row["file_sha256"] for row in rows)
    filler.unlink()
    assert own.take(image(tmp_path / "a.dcm", 2, 1)).outcome is Outcome.STORED


def test_files_of_interrupted_arrivals_are_removed_but_never_one_that_is_registered(own, tmp_path, monkeypatch):
    own.take(image(tmp_path / "a.dcm", 1, 1))
    (kept,) = own.files()
    orphan = kept.with_name("0" * 32 + ".dcm")
    orphan.write_bytes(b"renamed, and then the process died")
    (own.folder / "incoming" / ".partial" / "other-1.dcm").write_bytes(b"half")
    (own.folder / "incoming" / ".partial" / "receiver-1.dcm").write_bytes(b"half")
    own.store.clear_partials()
    assert [path.name for path in (own.folder / "incoming" / ".partial").iterdir()] == ["receiver-1.dcm"]
    own.store.clear_leftovers()
    assert orphan.exists()  # it may belong to a process that is just about to register it
    monkeypatch.setattr("usvit.node.receiving.instance_store.LEFTOVER_SECONDS", -10)
    own.store.clear_leftovers()
    assert own.files() == [kept]
    assert list((own.folder / "incoming" / ".partial").iterdir()) == []


def test_a_deleted_image_that_is_sent_again_can_be_scored_again_but_is_not_by_itself(own, tmp_path):
    path = image(tmp_path / "a.dcm", 1, 1)
    own.take(path)
    (file,) = own.files()
    file.unlink()
    with own.database.transaction() as connection:
        connection.execute("UPDATE instances SET state = 'expired', path = NULL, attributes = '{}'")
        connection.execute("INSERT INTO scores SELECT id, 0, '{}' FROM instances")
        connection.execute("UPDATE studies SET state = 'done'")
    assert own.take(path).outcome is Outcome.DUPLICATE
    row = own.database.one("SELECT * FROM instances")
    assert (row["state"], (own.folder / row["path"]).read_bytes()) == ("scored", path.read_bytes())
    assert own.database.one("SELECT state FROM studies")[0] == "done"


def test_a_result_of_the_node_that_comes_back_opens_no_study(own, tmp_path):
    assert own.take(image(tmp_path / "a.dcm", 7, 1)).outcome is Outcome.STORED
    with own.database.transaction() as connection:
        connection.execute("UPDATE studies SET state = 'done'")
        connection.execute(
            "INSERT INTO results (study_id, revision, kind, sop_instance_uid, sop_class_uid, series_uid, "
            "result_study_uid, sha256, created_at) VALUES (1, 1, 'sc', ?, '1.2', '1.3', '1.4', '', 0)",
            (f"{ROOT}.7.1.2",),
        )
    assert own.take(image(tmp_path / "b.dcm", 7, 2)).outcome is Outcome.DUPLICATE
    assert [row["state"] for row in own.database.rows("SELECT state FROM studies")] == ["done"]
