"""Samples of the suites of ``benchmarks.fuzzing`` that attack the node."""

import sys

import pytest

from benchmarks.fuzzing import associations
from benchmarks.fuzzing.__main__ import SUITES
from benchmarks.fuzzing.associations import CLIMBS, MUTATIONS, UID_LENGTH
from benchmarks.fuzzing.harness import Options
from benchmarks.fuzzing.harness import run as run_suite
from usvit.node.receiving.instance_store import is_uid

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_the_receiver_stays_up_and_serves_others_while_it_is_attacked(tmp_path, monkeypatch):
    monkeypatch.setattr(associations, "SLOW_SENDERS", 0)
    n = 3 * len(MUTATIONS)
    cases = [*run_suite(SUITES["associations"], tmp_path, Options(n, seed=1, memory_gb=0.05))]
    assert [case for case in cases if case.bad] == [] and len(cases) == n + 1
    folder = tmp_path / "service"
    log = (folder / "log.txt").read_text() + (folder / "node" / "audit.jsonl").read_text()
    assert "Traceback" not in log and "planted" not in log.lower()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.parametrize("suite", ["folders", "clocks"])
def test_hostile_exporters_and_clocks_lose_nothing(tmp_path, suite):
    cases = [*run_suite(SUITES[suite], tmp_path, Options(3, seed=1, seconds=60))]
    assert [case.last_line for case in cases if case.bad] == [] and len(cases) == 3


def test_the_texts_that_climb_are_no_uids():
    assert not [text for text in CLIMBS if len(text) > UID_LENGTH or is_uid(text.decode("latin-1"))]
