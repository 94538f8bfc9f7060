"""A small part of benchmarks/node_fuzz.py: mutated associations, while a good sender goes on."""

import sys

import pytest

from benchmarks.fuzzing.__main__ import SUITES
from benchmarks.fuzzing.harness import Options
from benchmarks.fuzzing.harness import run as run_suite
from benchmarks.node_fuzz import CLIMBS, MUTATIONS, UID_LENGTH, run
from usvit.node.receiving.instance_store import is_uid

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
def test_the_receiver_stays_up_and_serves_others_while_it_is_attacked(tmp_path):
    found = run(3 * len(MUTATIONS), seed=1, threads=4, slow=0, folder=tmp_path)
    assert sum(found.sent.values()) == 3 * len(MUTATIONS) and found.restarts == 0
    assert found.good_stored == found.good_sent > 0
    assert found.stored_rows >= found.good_stored
    assert (found.partial_files, found.outside) == (0, [])
    assert found.memory_kb[2] - found.memory_kb[0] < 50_000
    log = (tmp_path / "node.log").read_text() + (tmp_path / "node" / "audit.jsonl").read_text()
    assert "Traceback" not in log and "planted" not in log.lower()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
@pytest.mark.parametrize("suite", ["folders", "clocks"])
def test_hostile_exporters_and_clocks_lose_nothing(tmp_path, suite):
    cases = [*run_suite(SUITES[suite], tmp_path, Options(3, seed=1, seconds=60))]
    assert [case.last_line for case in cases if case.bad] == [] and len(cases) == 3


def test_the_texts_that_climb_are_no_uids():
    assert not [text for text in CLIMBS if len(text) > UID_LENGTH or is_uid(text.decode("latin-1"))]
