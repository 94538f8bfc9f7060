import sqlite3
import subprocess
import sys

import pytest

from usvit.errors import UsvitError
from usvit.scoring.items import Failure, ScoringItem
from usvit.scoring.journal import FINISHED, PENDING, SCORED, Batch, open_journal


def found(*names):
    return [(f"id-{name}", ScoringItem(name, f"/export/{name}")) for name in names]


def seqs(journal, state=PENDING):
    return [seq for seq, _ in journal.waiting(state)]


def row(seq, frame, thumbnail=None):
    return (seq, frame, {"item_id": f"row-{seq}", "frame": frame, "prob_a": 0.1}, thumbnail)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "journal.sqlite"


def test_items_come_back_in_the_order_in_which_they_were_found_whatever_their_number(path):
    journal = open_journal(path)
    journal.register(found(*(f"{number * 7919 % 1000:03d}" for number in range(1000))))
    waiting = list(journal.waiting(PENDING))
    assert [seq for seq, _ in waiting] == list(range(1000))
    assert [item.name for _, item in waiting[:3]] == ["000", "919", "838"]
    assert waiting[1][1].location == "/export/919"
    journal.close()


def test_a_second_process_goes_on_where_the_first_was_killed(path):
    journal = open_journal(path)
    journal.register(found("a", "b", "c", "d"))
    failure = (1, Failure("empty"), {"path": "", "reason": "it holds no bytes"})
    journal.commit(Batch(rows=[row(0, 0), row(2, 0)], failures=[failure], ended=[0, 1]))
    # No close: the process is gone.
    again = open_journal(path)
    again.register(found("a", "b", "c", "d"))
    assert again.counts() == {"items": 4, "done": 2, "frames": 2}
    assert seqs(again) == [2, 3]
    assert again.frames_done(2) == {0} and again.frames_done(3) == set()
    again.commit(Batch(rows=[row(2, 1), row(3, 0)], ended=[2, 3]))
    assert [(one["item_id"], one["frame"]) for one in again.rows()] == [
        ("row-0", 0),
        ("row-2", 0),
        ("row-2", 1),
        ("row-3", 0),
    ]
    assert list(again.failures()) == [
        {"item_id": "id-b", "frame": None, "code": "empty", "path": "", "reason": "it holds no bytes"}
    ]
    assert seqs(again) == [] and seqs(again, SCORED) == [0, 1, 2, 3]


def test_files_that_came_since_are_appended_and_those_that_went_are_told(path):
    open_journal(path).register(found("b", "c"))
    again = open_journal(path)
    again.register(found("a", "c"))
    assert [(seq, item.name) for seq, item in again.waiting(PENDING)] == [(1, "c"), (2, "a")]
    assert again.vanished(PENDING) == [0]


def test_an_item_that_vanished_after_it_was_scored_is_handed_out_as_not_found(path):
    journal = open_journal(path)
    journal.register(found("a", "b"))
    journal.commit(Batch(rows=[row(0, 0), row(1, 0)], ended=[0, 1]))
    again = open_journal(path)
    again.register(found("b"))
    again.note_gone(again.vanished(SCORED))
    assert [(seq, item.problem) for seq, item in again.waiting(SCORED)] == [(0, "not_found"), (1, None)]


def test_a_batch_is_added_wholly_or_not_at_all(path):
    journal = open_journal(path)
    journal.register(found("a"))
    with pytest.raises(sqlite3.IntegrityError):
        journal.commit(Batch(rows=[row(0, 0), row(0, 0)], ended=[0]))
    assert journal.counts() == {"items": 1, "done": 0, "frames": 0}


def test_products_finish_an_item(path):
    journal = open_journal(path)
    journal.register(found("a", "b"))
    journal.commit(Batch(rows=[row(0, 0, b"jpeg"), row(1, 0)], ended=[0, 1]))
    journal.add_products(0, [("sr", "dicom/a.dcm", None), ("sc", None, "crashed")])
    assert seqs(journal, SCORED) == [1] and seqs(journal, FINISHED) == [0]
    assert [one["kind"] for one in journal.products()] == ["sc", "sr"]
    assert list(journal.thumbnails()) == [("id-a", 0, b"jpeg")]
    assert journal.rows_of(1) == [{"item_id": "row-1", "frame": 0, "prob_a": 0.1}]


def test_a_name_that_is_no_utf8_comes_back(path):
    name = b"caf\xe9".decode("utf-8", "surrogateescape")
    journal = open_journal(path)
    journal.register([("x", ScoringItem(name, f"/export/{name}"))])
    assert next(journal.waiting(PENDING))[1].name == name


def test_where_files_lie_is_never_in_the_journal(path):
    journal = open_journal(path)
    journal.register([("pseudonym", ScoringItem("Jane Doe", "/export/Jane Doe"))])
    journal.commit(Batch(rows=[row(0, 0)], ended=[0]))
    assert not [
        file for file in path.parent.iterdir() if b"Jane" in file.read_bytes() or b"export" in file.read_bytes()
    ]


@pytest.mark.slow
def test_a_killed_process_leaves_what_it_committed(path):
    program = (
        "import os, sys; from pathlib import Path; from usvit.scoring.journal import *; "
        "from usvit.scoring.items import ScoringItem\n"
        "j = open_journal(Path(sys.argv[1])); j.register([(str(k), ScoringItem(str(k), 'x')) for k in range(9)])\n"
        "for k in range(9):\n"
        "    j.commit(Batch(rows=[(k, 0, {'k': k}, None)], ended=[k]))\n"
        "    if k == 4: os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(path)]).returncode == -9
    assert [one["k"] for one in open_journal(path).rows()] == [0, 1, 2, 3, 4]


def test_a_full_disk_is_told_and_what_was_committed_is_kept(small_disk):
    path = small_disk / "journal.sqlite"
    journal = open_journal(path)
    journal.register(found("a", "b"))
    journal.commit(Batch(rows=[row(0, 0)], ended=[0]))
    with pytest.raises(UsvitError, match="No space left"):
        journal.commit(Batch(rows=[row(1, 0, bytes(3_000_000))], ended=[1]))
    assert journal.counts() == {"items": 2, "done": 1, "frames": 1}


def test_a_damaged_journal_is_told(path):
    path.write_bytes(b"no database" * 1000)
    with pytest.raises(UsvitError, match="choose another --out"):
        open_journal(path)
