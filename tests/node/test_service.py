"""A whole node with real peers: dcmtk sends, Orthanc gets the results."""

import json
import os
import signal
import subprocess
from pathlib import Path

import pandas as pd
import pydicom
import pytest

import usvit
from tests.node.images import PLANTED, ROOT, RunningNode, image, images, serving, settings
from tests.programs import Orthanc, tool, until
from usvit.errors import UsvitError
from usvit.pseudonyms import Pseudonyms

pytestmark = pytest.mark.slow


def results(node: RunningNode, study: int) -> list:
    return node.database.rows(
        "SELECT r.* FROM results r JOIN studies s ON s.id = r.study_id WHERE s.study_uid = ? ORDER BY r.id",
        (f"{ROOT}.{study}",),
    )


def sent(node: RunningNode, study: int, orthanc: Orthanc) -> list:
    """Wait until all results of a study are at the peer, and return them."""
    node.wait_for(
        "SELECT count(*) > 0 AND min(d.state = 'sent') FROM deliveries d JOIN results r ON r.id = d.result_id "
        "JOIN studies s ON s.id = r.study_id WHERE s.study_uid = ?",
        f"{ROOT}.{study}",
    )
    found = results(node, study)
    assert {one["sop_instance_uid"] for one in found} <= orthanc.instances()
    return found


def test_a_study_is_scored_as_by_usvit_score_and_its_results_are_in_the_study_at_the_archive(
    node: RunningNode, orthanc: Orthanc, run: Path, tmp_path: Path
) -> None:
    folder = images(tmp_path / "in", 1, 3)
    image(folder / "broken.dcm", 1, 4, PixelData=bytes(100))  # fewer pixels than its header says
    assert node.send(folder).returncode == 0
    study = node.wait_for_study(1)
    found = sent(node, 1, orthanc)
    assert sorted(one["kind"] for one in found) == ["gsps"] * 3 + ["sc"] * 3 + ["sr"]
    states = node.database.rows("SELECT state, failure_code FROM instances WHERE study_id = ?", (study["id"],))
    assert sorted(map(tuple, states)) == [("failed", "damaged"), *[("scored", None)] * 3]
    (there,) = orthanc.call("/tools/find", {"Level": "Study", "Query": {"StudyInstanceUID": f"{ROOT}.1"}})
    held = orthanc.call(f"/studies/{there}/instances")
    assert len(held) == 7
    report = next(node.config.folder / one["path"] for one in found if one["kind"] == "sr")
    text = subprocess.run([tool("dsrdump"), str(report)], capture_output=True, text=True, check=True).stdout
    assert text.count("frame 1") >= 3 and "Imaging Measurement Report" in text
    for one in found:
        said = subprocess.run([tool("dciodvfy"), str(node.config.folder / one["path"])], capture_output=True, text=True)
        assert "Error" not in said.stderr, said.stderr
    # An independent job on the files as they lie in the node gives the same numbers.
    stored = node.database.one("SELECT path FROM instances WHERE study_id = ?", (study["id"],))
    usvit.score(
        run, (node.config.folder / stored["path"]).parent, tmp_path / "out", device="cpu", key=node.config.key_path
    )
    expected = pd.read_csv(tmp_path / "out" / "scores.csv", float_precision="round_trip")
    own = pd.read_csv(
        node.config.folder / "results" / study["pseudonym"] / "1" / "scores.csv", float_precision="round_trip"
    )
    pd.testing.assert_frame_equal(own, expected, check_exact=True)


def test_another_rule_scores_with_another_model_and_sends_de_identified_results_to_a_study_of_their_own(
    node: RunningNode, orthanc: Orthanc, run: Path, tmp_path: Path
) -> None:
    node.send(image(tmp_path / "r.dcm", 21, 1, StudyDescription="research, left breast"))
    study = node.wait_for_study(21)
    found = sent(node, 21, orthanc)
    assert (study["rule"], study["model"]) == ("research", "one")
    (stored,) = node.database.rows("SELECT path FROM instances WHERE study_id = ?", (study["id"],))
    file = node.config.folder / stored["path"]
    usvit.score(run, file, tmp_path / "out", folds="0", device="cpu", key=node.config.key_path)
    columns = ["prob_malignant", "calibrated_malignant", "model_sha256", "patient_id", "instance_id"]
    own = node.config.folder / "results" / study["pseudonym"] / "1" / "scores.csv"
    ours, expected = (
        pd.read_csv(path, float_precision="round_trip")[columns] for path in (own, tmp_path / "out" / "scores.csv")
    )
    pd.testing.assert_frame_equal(ours, expected, check_exact=True)
    assert {one["kind"] for one in found} == {"sr", "sc"}
    for one in found:
        content = (node.config.folder / one["path"]).read_bytes()
        assert not [text for text in PLANTED if text.encode() in content]
        assert pydicom.dcmread(node.config.folder / one["path"]).PatientID == expected["patient_id"][0]
        held = {"Level": "Instance", "Query": {"SOPInstanceUID": one["sop_instance_uid"]}}
        (there,) = orthanc.call("/tools/find", held)
        assert orthanc.call(f"/instances/{there}/study")["MainDicomTags"]["StudyInstanceUID"] != f"{ROOT}.21"


def test_late_image_gives_a_report_that_names_its_predecessor_and_lists_all_images(
    node: RunningNode, orthanc: Orthanc, tmp_path: Path
) -> None:
    node.send(images(tmp_path / "in", 2, 2))
    node.wait_for_study(2)
    node.send(image(tmp_path / "late.dcm", 2, 9))
    node.wait_for_study(2, revision=2)
    found = sent(node, 2, orthanc)
    first, second = (one for one in found if one["kind"] == "sr")
    assert second["predecessor_uid"] == first["sop_instance_uid"] != second["sop_instance_uid"]
    report = pydicom.dcmread(node.config.folder / second["path"])
    (study,) = report.PredecessorDocumentsSequence
    assert study.StudyInstanceUID == report.StudyInstanceUID == f"{ROOT}.2"
    (series,) = study.ReferencedSeriesSequence
    assert series.ReferencedSOPSequence[0].ReferencedSOPInstanceUID == first["sop_instance_uid"]
    referred = report.CurrentRequestedProcedureEvidenceSequence[0].ReferencedSeriesSequence[0].ReferencedSOPSequence
    assert {one.ReferencedSOPInstanceUID for one in referred} == {f"{ROOT}.2.1.{number}" for number in (1, 2, 9)}
    assert [one["revision"] for one in found if one["kind"] == "sc"] == [1, 1, 2]


def test_same_instance_again_gives_nothing_new_and_other_pixels_are_refused_and_audited(
    node: RunningNode, orthanc: Orthanc, tmp_path: Path
) -> None:
    folder = images(tmp_path / "in", 3, 1)
    node.send(folder)
    node.wait_for_study(3)
    before = sent(node, 3, orthanc)
    again = node.send(folder)
    assert again.returncode == 0 and "Success" in again.stdout
    other = node.send(image(tmp_path / "other.dcm", 3, 1, seed=5))
    assert "CannotUnderstand" in other.stdout  # 0xCxxx
    instance = node.database.one("SELECT * FROM instances WHERE sop_instance_uid = ?", (f"{ROOT}.3.1.1",))
    stored = (node.config.folder / instance["path"]).read_bytes()
    assert pydicom.dcmread(folder / "3-1.dcm").PixelData in stored
    events = "SELECT event FROM audit_events WHERE event LIKE 'instance_%' AND data LIKE ?"
    pseudonym = Pseudonyms.of_key(node.config.key_path).instance(f"{ROOT}.3.1.1")
    told = [row["event"] for row in node.database.rows(events, (f"%{pseudonym}%",))]
    assert told == ["instance_duplicate", "instance_conflict"]
    until(lambda: (node.config.folder / "audit.jsonl").read_text().count(pseudonym) >= 3)  # with ``received``
    assert [tuple(one) for one in results(node, 3)] == [tuple(one) for one in before]
    assert node.database.one("SELECT revision FROM studies WHERE study_uid = ?", (f"{ROOT}.3",))[0] == 1


def test_rules_leave_studies_alone_and_say_so(node: RunningNode, tmp_path: Path) -> None:
    node.send(image(tmp_path / "p.dcm", 4, 1, StudyDescription="QA Phantom"))
    node.send(image(tmp_path / "k.dcm", 5, 1, StudyDescription="kidney"))
    by_rule = node.wait_for_study(4, state="left_alone")
    by_none = node.wait_for_study(5, state="left_alone")
    assert (by_rule["rule"], by_rule["reason"]) == ("phantoms", "rule")
    assert (by_none["rule"], by_none["reason"]) == (None, "no_rule")
    assert results(node, 4) == results(node, 5) == []
    log = node.config.folder / "audit.jsonl"

    def told() -> set:
        events = map(json.loads, log.read_text().splitlines())
        return {(one["study"], one["rule"], one["reason"]) for one in events if one["event"] == "study_left_alone"}

    until(lambda: {(by_rule["pseudonym"], "phantoms", "rule"), (by_none["pseudonym"], None, "no_rule")} <= told())


def test_a_study_of_which_nothing_can_be_scored_is_done_without_results(node: RunningNode, tmp_path: Path) -> None:
    node.send(image(tmp_path / "b.dcm", 7, 1, PixelData=bytes(100)))
    study = node.wait_for_study(7)
    assert results(node, 7) == []
    failures = node.database.rows(
        "SELECT frame, code FROM failures JOIN instances ON instances.id = instance_id WHERE study_id = ?",
        (study["id"],),
    )
    assert [tuple(one) for one in failures] == [(None, "damaged")]


def test_replay_scores_a_study_again_as_a_new_revision(node: RunningNode, orthanc: Orthanc, tmp_path: Path) -> None:
    node.send(images(tmp_path / "in", 6, 1))
    study = node.wait_for_study(6)
    assert usvit.replay_study(node.path, f"{ROOT}.6") == study["pseudonym"]
    node.wait_for_study(6, revision=2)
    reports = [one for one in sent(node, 6, orthanc) if one["kind"] == "sr"]
    assert reports[1]["predecessor_uid"] == reports[0]["sop_instance_uid"]
    with pytest.raises(UsvitError, match="no such study"):
        usvit.replay_study(node.path, "a000000000000000")


def test_killed_processes_lose_nothing_and_send_nothing_twice(
    node: RunningNode, orthanc: Orthanc, tmp_path: Path
) -> None:
    processes = node.config.folder / "processes.json"
    for number, name in enumerate(("receiver", "scorer-0", "sender")):
        folder = images(tmp_path / str(number), 10 + number, 2)
        until(lambda folder=folder: node.send(folder).returncode == 0)  # the receiver may still be starting again
        before = json.loads(processes.read_text())[name]
        os.kill(before, signal.SIGKILL)
        until(lambda name=name, before=before: json.loads(processes.read_text())[name] != before)
    until(lambda: node.send(images(tmp_path / "last", 13, 1)).returncode == 0)
    for study, count in ((10, 2), (11, 2), (12, 2), (13, 1)):
        node.wait_for_study(study)
        found = sent(node, study, orthanc)
        assert sorted(one["kind"] for one in found) == ["gsps"] * count + ["sc"] * count + ["sr"]
    rows = node.database.rows("SELECT state FROM instances WHERE study_uid GLOB ?", (f"{ROOT}.1[0123]",))
    assert [row["state"] for row in rows] == ["scored"] * 7


def test_logs_and_audit_log_name_nobody(node: RunningNode, tmp_path: Path) -> None:
    """Runs after the others of this file, whose studies bear a planted identity."""
    node.send(images(tmp_path / "in", 14, 1))
    node.wait_for_study(14)
    node.send(image(tmp_path / "bad.dcm", 15, 1, SOPInstanceUID="../../Doe"))
    texts = [node.log.read_text(), (node.config.folder / "audit.jsonl").read_text()]
    pids = json.loads((node.config.folder / "processes.json").read_text()).values()
    texts += [Path(f"/proc/{pid}/cmdline").read_text() for pid in pids if Path(f"/proc/{pid}/cmdline").exists()]
    for text in texts:
        assert not [word for word in (*PLANTED, "Doe", "MRN") if word in text]
    assert node.config.folder.stat().st_mode & 0o077 == 0


def test_folder_and_stop(run: Path, tmp_path: Path) -> None:
    """A node without a network reads a folder, and a second service of the same folder is refused."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    content = settings(
        tmp_path, models={"main": {"path": str(run), "device": "cpu"}}, folders=[{"path": "inbox", "settle_seconds": 0}]
    )
    unshare = ("unshare", "-rn", "sh", "-c", 'ip link set lo up; exec "$@"', "sh")
    offline = subprocess.run([*unshare, "true"], capture_output=True).returncode == 0
    with serving(tmp_path, content, unshare if offline else ()) as node:
        with pytest.raises(UsvitError, match=r"Another service|listens at port"):
            usvit.serve_node(node.path)
        image(inbox / "sub" / "a.dcm", 20, 1)
        (inbox / "notes.txt").write_text("no image")
        node.wait_for_study(20)
        assert [path.name for path in inbox.rglob("*") if path.is_file()] == ["notes.txt"]
        node.process.terminate()
        assert node.process.wait(60) == 0
    last = (node.config.folder / "audit.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["event"] == "service_stopped"
