"""The status page of a node, as its words and in a browser."""

import pytest

from usvit.node.page import node_page, size_in_words
from usvit.node.records import NodeStatusRecord

SCRIPT = "<script>alert(1)</script>"


def status(**changes):
    content = {
        "schema_version": "1.0",
        "usvit_version": "0.1.0",
        "time": "2026-11-24T12:00:00+00:00",
        "running": True,
        "processes": [{"name": "supervisor", "alive": True}, {"name": "receiver", "alive": False}],
        "instances": {"stored": 2, "scored": 12345, "failed": 1, "ignored": 0, "expired": 9},
        "studies": {"open": 1, "ready": 0, "scoring": 0, "done": 99, "left_alone": 0, "failed": 0},
        "results": {"sr": 99, "sc": 12345, "gsps": 0},
        "missing_results": 0,
        "commitments": {"waiting": 0, "complete": 1, "incomplete": 0, "expired": 0},
        "oldest_study_seconds": 75.0,
        "deliveries": [
            {
                **{"peer": "pacs", "waiting": 3, "sent": 5, "committed": 0, "gave_up": 2, "dry_run": 0},
                **{"oldest_waiting_seconds": 4000.0, "last_status": 42752, "last_error": SCRIPT},
            }
        ],
        "counters": {},
        "throughput": {"received_minute": 1, "received_hour": 2, "scored_minute": 3, "scored_hour": 4},
        "disk": {
            **{"free_bytes": 10**8, "total_bytes": 10**12, "min_free_bytes": 10**9},
            **{"images_bytes": 123456789, "results_bytes": 0, "max_bytes": None},
        },
        "problems": [
            {"time": "2026-11-24T11:59:59+00:00", "event": "study_failed", "study": "a" * 16, "detail": "reason x" * 40}
        ],
    }
    return NodeStatusRecord.model_validate(content | changes)


def test_what_is_wrong_stands_at_the_top():
    page = node_page(status())
    header = page[page.index("<header>") : page.index("</header>")]
    assert "Not running at the moment: receiver" in header
    assert "images are refused with 0xA700 until 1.0 GB are free" in header
    assert "2 results for pacs could not be delivered in time" in header
    assert "The service does not run" in node_page(status(running=False))
    quiet = node_page(
        status(processes=[], deliveries=[], problems=[], disk=status().disk.content() | {"free_bytes": 10**11})
    )
    assert 'class="warning"' not in quiet and "results stay in the folder of the node" in quiet


def test_numbers_have_units():
    assert [size_in_words(n) for n in (0, 999, 1000, 123456789, 10**15, None)] == [
        *("0 B", "999 B", "1.0 kB", "123 MB", "1000 TB", "–"),
    ]
    page = node_page(status())
    assert "12,345" in page and "1 h 06 min" in page and "A study could not be scored" in page


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_runs_over_its_edge_and_texts_do_nothing(visit, tmp_path, width):
    path = tmp_path / "node.html"
    path.write_text(node_page(status()))
    page = visit(path, width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert SCRIPT in page.locator("#queues").inner_text() and page.locator("script").count() == 0
