"""When a study is complete, what is decided, and what a late image changes."""

import threading

import pytest

from tests.node.images import ROOT, image, settings, write_config
from usvit.errors import UsvitError
from usvit.node.config.file import load_node_config
from usvit.node.database import NodeDatabase
from usvit.node.receiving.instance_store import InstanceStore
from usvit.node.scoring_process import _StudyScorer
from usvit.node.studies import complete_studies, replay
from usvit.node.study_results import SeveralPatients
from usvit.node.watching.status import read_status
from usvit.pseudonyms import Pseudonyms

RULES = [
    {"name": "phantoms", "when": {"description": "*phantom*"}, "leave_alone": True},
    {"name": "breast", "when": {"modality": "US", "description": "*breast*"}, "model": "main"},
]


class Setup:
    def __init__(self, folder):
        (folder / "node").mkdir()
        self.folder = folder
        self.config = load_node_config(write_config(folder, settings(folder, rules=RULES)))
        self.database = NodeDatabase(self.config.database, create=True)
        self.store = InstanceStore(self.config.folder, self.database, Pseudonyms(bytes(range(32))))

    def arrive(self, study, number, **tags):
        partial = self.store.partial()
        image(partial, study, number, **tags)
        assert self.store.take(partial, source="dimse", calling_ae="A").outcome == "stored"

    def complete(self, after=10.0):
        last = self.database.one("SELECT max(last_at) FROM studies")[0]
        return complete_studies(self.config, self.database, last + after)

    def study(self):
        return self.database.one("SELECT * FROM studies")

    def states(self):
        return [row["state"] for row in self.database.rows("SELECT state FROM instances ORDER BY id")]

    def change(self, query):
        with self.database.transaction() as connection:
            connection.execute(query)

    def events(self):
        return [row["event"] for row in self.database.rows("SELECT event FROM audit_events ORDER BY id")]


@pytest.fixture
def own(tmp_path):
    return Setup(tmp_path)


def test_a_study_is_complete_when_nothing_has_arrived_for_the_quiet_time(own):
    own.arrive(1, 1)
    own.arrive(1, 2, Modality="OT")
    assert own.complete(after=0.4) == 0
    assert own.study()["state"] == "open"
    assert own.complete(after=0.6) == 1
    assert (own.study()["state"], own.study()["rule"], own.study()["model"]) == ("ready", "breast", "main")
    assert own.states() == ["stored", "ignored"]  # the image of another modality does not meet the rule
    assert own.complete() == 0


def test_an_image_that_arrives_before_scoring_begins_lets_the_study_wait_again(own):
    own.arrive(1, 1)
    own.complete()
    own.arrive(1, 2)
    assert (own.study()["state"], own.study()["revision"]) == ("open", 1)


def test_a_late_image_begins_the_next_revision_also_while_the_study_is_scored(own):
    own.arrive(1, 1)
    own.complete()
    own.change("UPDATE studies SET state = 'scoring', scorer = 's'")
    own.arrive(1, 2)
    assert (own.study()["state"], own.study()["revision"]) == ("scoring", 1)  # its scorer will see it at the end
    own.change("UPDATE studies SET state = 'done', started_at = 'x', attempts = 3")
    own.arrive(1, 3)
    study = own.study()
    assert (study["state"], study["revision"], study["started_at"], study["attempts"]) == ("open", 2, None, 0)
    assert "study_reopened" in own.events()


def test_no_rule_and_a_rule_that_says_so_leave_a_study_alone_until_an_image_changes_that(own):
    own.arrive(1, 1, StudyDescription="kidney")
    own.complete()
    assert (own.study()["state"], own.study()["reason"], own.states()) == ("left_alone", "no_rule", ["ignored"])
    own.arrive(1, 2)
    assert own.study()["state"] == "open"
    own.complete()
    assert (own.study()["state"], own.states()) == ("ready", ["ignored", "stored"])
    own.arrive(1, 3, SeriesDescription="QA phantom")
    own.complete()
    assert (own.study()["state"], own.study()["rule"], own.study()["reason"]) == ("left_alone", "phantoms", "rule")
    assert own.events().count("study_left_alone") == 2


@pytest.mark.parametrize("state", ["open", "ready", "scoring", "done"])
def test_images_of_two_patients_stop_their_study_whatever_it_is_doing(own, state):
    own.arrive(1, 1)
    own.change(f"UPDATE studies SET state = '{state}', scorer = 's'")
    own.arrive(1, 2, PatientID="MRN-0815")
    own.arrive(1, 3)
    assert own.complete() == 0
    assert (own.study()["state"], own.study()["reason"], own.study()["scorer"]) == ("failed", "patient_conflict", None)
    assert set(own.states()) == {"ignored"}
    assert own.events().count("patient_conflict") == 1
    told = own.database.one("SELECT data FROM audit_events WHERE event = 'patient_conflict'")[0]
    assert "PatientID" in told
    assert "MRN" not in told + own.study()["patient"]  # pseudonyms only
    with pytest.raises(UsvitError, match="different patients"):
        replay(own.database, own.study()["pseudonym"])
    status = read_status(own.config.folder, own.config)
    assert (status.studies["patient_conflict"], status.studies["failed"]) == (1, 0)
    assert "patient_conflict" in [one.event for one in status.problems]


def test_a_patient_who_is_written_in_another_way_does_not_stop_a_study(own):
    own.arrive(1, 1, PatientName="Doe^Jane")
    own.arrive(1, 2, PatientName="DOE^JANE^^Mrs", PatientID="MRN-4711 ", PatientBirthDate="19700101")
    own.arrive(1, 3, PatientName="", PatientBirthDate="19700101")
    own.complete()
    assert own.study()["state"] == "ready"
    own.arrive(1, 4, PatientBirthDate="19800101")  # the first image had no birth date, the second had another one
    assert own.study()["reason"] == "patient_conflict"


def test_a_report_that_would_mix_patients_stops_its_study(own, monkeypatch):
    """As for a study that was received by a version that did not compare patients."""
    own.arrive(1, 1)
    own.complete()
    worker = _StudyScorer(own.config, own.database, None, {"main": None}, "s", threading.Event())
    monkeypatch.setattr(worker, "_score", raising(SeveralPatients))
    worker.work_on(worker.claim())
    assert (own.study()["state"], own.study()["reason"]) == ("failed", "patient_conflict")
    assert (own.states(), own.events()[-1]) == (["ignored"], "patient_conflict")


def raising(kind):
    def call(*_):
        raise kind

    return call


def test_replay_lets_a_study_be_scored_again_unless_it_is_unknown_busy_or_deleted(own):
    own.arrive(1, 1)
    own.complete()
    with pytest.raises(UsvitError, match="is being scored"):
        replay(own.database, f"{ROOT}.1")
    own.change("UPDATE studies SET state = 'done'")
    own.change("UPDATE instances SET state = 'scored', revision = 1")
    name = own.study()["pseudonym"]
    assert replay(own.database, name) == name
    assert (own.study()["state"], own.study()["revision"], own.states()) == ("open", 2, ["stored"])
    own.change("UPDATE studies SET state = 'done'")
    own.change("UPDATE instances SET state = 'expired', path = NULL")
    with pytest.raises(UsvitError, match="deleted"):
        replay(own.database, name)
    assert own.study()["revision"] == 2
    with pytest.raises(UsvitError, match="no such study"):
        replay(own.database, "1.2.3")
