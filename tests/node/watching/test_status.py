import json
import os
import subprocess
import sys

import pytest

from tests.node.watching.conftest import NOW
from usvit.errors import UsvitError
from usvit.node.database import add_event, count
from usvit.node.watching import read_status


def test_counts_are_those_of_the_rows(node):
    node.study(n_images=3)
    node.study(state="open", image_state="stored", last_at=NOW - 100)
    node.study(state="left_alone", image_state="ignored", n_images=1)
    done = node.study(n_images=1, image_state="failed")
    node.result(done, deliveries=[("pacs", "sent"), ("archive", "waiting")], created_at=NOW - 50)
    node.result(done, kind="sc", deliveries=[("pacs", "gave_up")])
    status = read_status(node.folder, node.config(), NOW)
    assert status.instances == {"stored": 2, "scored": 3, "failed": 1, "ignored": 1, "expired": 0}
    of_studies = {"open": 1, "ready": 0, "scoring": 0, "done": 2, "left_alone": 1, "failed": 0, "patient_conflict": 0}
    assert status.studies == of_studies
    assert status.results == {"sr": 1, "sc": 1, "gsps": 0}
    assert status.oldest_study_seconds == 100
    pacs, archive = status.deliveries
    assert (pacs.peer, pacs.sent, pacs.gave_up, pacs.waiting, pacs.oldest_waiting_seconds) == ("pacs", 1, 1, 0, None)
    assert (archive.peer, archive.waiting, archive.oldest_waiting_seconds) == ("archive", 1, 50)
    assert (status.disk.images_bytes, status.disk.results_bytes) == (7000, 1000)
    assert status.disk.min_free_bytes == 10**9
    assert not status.running and status.problems == []


def test_throughput_counts_the_last_minute_and_hour(node):
    node.study(last_at=NOW - 7200, n_images=4)
    node.study(last_at=NOW - 600, n_images=3)
    node.study(last_at=NOW - 30, n_images=2)
    found = read_status(node.folder, None, NOW).throughput
    assert (found.received_minute, found.received_hour) == (2, 5)
    assert (found.scored_minute, found.scored_hour) == (2, 5)


def test_problems_are_the_last_events_that_are_not_ordinary(node):
    with node.database.transaction() as connection:
        add_event(connection, "received", study="a" * 16)
        for number in range(30):
            add_event(connection, "study_failed", study="b" * 16, reason="crashed", images=number)
        add_event(connection, "study_scored", study="a" * 16)
        count(connection, "instances_received", 5)
    status = read_status(node.folder)
    assert len(status.problems) == 20
    assert status.problems[0].event == "study_failed" and status.problems[0].study == "b" * 16
    assert status.problems[0].detail == "reason crashed, images 29"
    assert status.counters == {"instances_received": 5}


def test_whether_it_runs_is_told_from_the_processes(node):
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    (node.folder / "processes.json").write_text(json.dumps({"supervisor": os.getpid(), "sender": child.pid}))
    status = read_status(node.folder)
    assert status.running and {one.name: one.alive for one in status.processes} == {"supervisor": True, "sender": False}


def test_the_last_error_of_a_queue_is_that_of_a_delivery_that_waits(node):
    node.result(node.study(), deliveries=[("pacs", "waiting"), ("archive", "sent")])
    with node.database.transaction() as connection:
        connection.execute("UPDATE deliveries SET attempts = 2, last_status = 42752, last_error = 'out of resources'")
    pacs, archive = read_status(node.folder, node.config(), NOW).deliveries
    assert (pacs.last_status, pacs.last_error) == (42752, "out of resources")
    assert archive.last_error is None


def test_a_folder_without_a_node_is_refused(tmp_path):
    with pytest.raises(UsvitError, match="There is no node in"):
        read_status(tmp_path)


def test_the_last_verdict_of_usvit_watch_is_shown_and_a_damaged_one_is_named(node):
    assert read_status(node.folder).watch is None
    (node.folder / "watch").mkdir()
    (node.folder / "watch" / "watch.json").write_text("{")
    found = read_status(node.folder).watch
    assert found.verdict == "unreadable" and "watch.json" in found.reasons[0]
