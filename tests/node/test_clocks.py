"""Clocks that are set: studies are complete, and results are given up, by time that has really passed."""

import time

import pytest

from tests.node.peers import TITLE
from tests.node.sending.objects import Queue, config_of
from tests.node.test_studies import Setup
from tests.programs import a_free_port
from usvit.node.config.settings import PeerConfig
from usvit.node.database import NodeDatabase
from usvit.node.sending.delivery_process import PeerDelivery
from usvit.node.studies import complete_studies

DAY = 86400.0


class Clock:
    def __init__(self):
        self.ahead, self._real = 0.0, time.time

    def __call__(self):
        return self._real() + self.ahead


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr("usvit.node.database.time.time", found)
    return found


def test_the_time_of_a_node_goes_on_evenly_in_all_its_processes_when_the_clock_is_set(tmp_path, clock):
    service = NodeDatabase(tmp_path / "node.sqlite", create=True)
    service.set_clock()
    start = service.now()
    for clock.ahead in (30 * DAY, -30 * DAY):
        assert 0 <= service.now() - start < 60
        assert 0 <= NodeDatabase(tmp_path / "node.sqlite").now() - start < 60


def test_after_another_start_of_the_machine_the_clock_counts_again(tmp_path, clock, monkeypatch):
    NodeDatabase(tmp_path / "node.sqlite", create=True).set_clock()
    monkeypatch.setattr("usvit.node.database._boot", lambda: "another")
    clock.ahead = DAY
    assert abs(NodeDatabase(tmp_path / "node.sqlite").now() - time.time()) < 60


@pytest.mark.parametrize("restarted", [False, True])
def test_a_study_that_arrived_while_the_clock_was_ahead_is_complete_after_the_quiet_time(tmp_path, clock, restarted):
    own = Setup(tmp_path)
    clock.ahead = 30 * DAY
    own.database.set_clock()
    own.arrive(1, 1)
    clock.ahead = 0.0
    if restarted:
        own.database.set_clock()
        own.database.clamp_stamps(3600)
    assert complete_studies(own.config, own.database, own.database.now() + 1) == 1
    assert own.study()["state"] == "ready"


@pytest.fixture
def queue(tmp_path):
    found = Queue(tmp_path)
    found.database.set_clock()
    return found


def delivery_of(queue):
    peer = PeerConfig(ae_title=TITLE, host="127.0.0.1", port=a_free_port(), timeout_seconds=1)
    return PeerDelivery(config_of(queue.folder, peer, give_up_hours=72), "pacs", queue.database)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_jump_of_the_clock_gives_up_no_result_that_was_hardly_tried(queue, clock, restarted, monkeypatch):
    import threading

    queue.add("a", "sc", "sr")
    delivery, never = delivery_of(queue), threading.Event()
    assert delivery.work(never)
    clock.ahead = 8 * DAY
    if restarted:
        queue.database.set_clock()
        delivery = delivery_of(queue)
    queue.database.connection.execute("UPDATE deliveries SET next_at = 0")
    assert delivery.work(never)
    assert queue.states() == ["waiting"] * 2
    assert "delivery_gave_up" not in queue.events()
    queue.database.connection.execute("UPDATE results SET created_at = 0")
    monkeypatch.setattr(delivery, "_time_tried", lambda: 73 * 3600.0)  # the peer was down, and was asked, for so long
    queue.database.connection.execute("UPDATE deliveries SET next_at = 0")
    delivery.work(never)
    queue.database.connection.execute("UPDATE deliveries SET next_at = 0")
    delivery.work(never)
    assert queue.states() == ["gave_up"] * 2
