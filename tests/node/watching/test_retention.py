import pytest

from tests.node.watching.conftest import DAY, NOW
from usvit.node.watching import apply_retention

SENT = (("pacs", "sent", NOW), ("archive", "committed", NOW))


def test_images_of_a_finished_study_go_after_their_days_and_their_rows_stay(node):
    study = node.study(last_at=NOW)
    node.result(study, deliveries=SENT)
    assert apply_retention(node.config(), node.database, NOW + 6.9 * DAY).n_images == 0
    done = apply_retention(node.config(), node.database, NOW + 7.1 * DAY)
    assert (done.n_images, done.n_bytes) == (2, 2000)
    assert node.image_files() == [] and not list((node.folder / "incoming" / "ab").iterdir())
    rows = node.database.rows("SELECT path, state, attributes, sop_instance_uid FROM instances")
    assert {tuple(row)[:3] for row in rows} == {(None, "expired", "{}")}
    assert all(row["sop_instance_uid"] for row in rows)  # the same image is recognised later
    events = node.database.rows("SELECT event, data FROM audit_events")
    assert [row["event"] for row in events] == ["images_expired"]
    assert "MARY" not in str([tuple(row) for row in events]) and "1.2.840" not in str([tuple(row) for row in events])
    assert apply_retention(node.config(), node.database, NOW + 8 * DAY).n_images == 0


@pytest.mark.parametrize("state", ["open", "ready", "scoring"])
def test_images_that_are_not_scored_stay_whatever_their_age(node, state):
    node.study(state=state, image_state="stored")
    node.study(state="done", image_state="stored")  # arrived while the study was scored
    limits = {"retention": {"images_days": 0, "results_days": 0, "max_gb": 1e-9}}
    apply_retention(node.config(**limits), node.database, NOW + 1000 * DAY)
    assert len(node.image_files()) == 4 and node.states() == {"stored": 4}


@pytest.mark.parametrize("deliveries", [[("pacs", "waiting")], [("pacs", "gave_up")], [("archive", "sent", NOW)]])
def test_nothing_goes_before_it_has_arrived_or_is_committed_to(node, deliveries):
    study = node.study()
    path = node.result(study, deliveries=[("pacs", "sent", NOW)])
    other = node.result(study, kind="sc", deliveries=deliveries)
    limits = {"retention": {"images_days": 0, "results_days": 0, "max_gb": 1e-9}}
    apply_retention(node.config(**limits), node.database, NOW + 1000 * DAY)
    assert path.exists() and other.exists() and len(node.image_files()) == 2
    events = [row["event"] for row in node.database.rows("SELECT event FROM audit_events")]
    assert events == ["retention_over_limit"]


def test_results_go_after_their_days_from_the_last_arrival(node):
    study = node.study()
    path = node.result(study, deliveries=[("pacs", "sent", NOW), ("archive", "committed", NOW + 5 * DAY)])
    kept = node.result(node.study(), created_at=NOW + 20 * DAY)  # no peers: from the time at which it was made
    config = node.config()
    assert apply_retention(config, node.database, NOW + 34 * DAY).n_results == 0
    done = apply_retention(config, node.database, NOW + 36 * DAY)
    assert (done.n_results, done.n_bytes) == (1, 500)
    assert not path.exists() and kept.exists()
    assert [row["path"] is None for row in node.database.rows("SELECT path FROM results ORDER BY id")] == [True, False]


def test_over_the_limit_the_oldest_images_go_first_and_only_as_many_as_needed(node):
    for age in (3, 2, 1):
        node.study(last_at=NOW - age * DAY)
    done = apply_retention(node.config(retention={"max_gb": 4500 / 1e9}), node.database, NOW)
    assert done.n_images == 2 and len(node.image_files()) == 4
    (first,) = node.database.rows("SELECT state FROM instances WHERE study_id = 1 LIMIT 1")[0]
    assert first == "expired"


def test_over_the_limit_results_go_after_all_images(node):
    study = node.study()
    path = node.result(study, deliveries=SENT)
    apply_retention(node.config(retention={"max_gb": 100 / 1e9}), node.database, NOW + DAY)
    assert node.image_files() == [] and not path.exists()


def test_images_that_a_rule_leaves_alone_go_too(node):
    node.study(state="left_alone", image_state="ignored")
    assert apply_retention(node.config(), node.database, NOW + 8 * DAY).n_images == 2


def test_a_deletion_that_was_interrupted_is_finished(node):
    study = node.study()
    path = node.result(study, deliveries=SENT)
    folder = path.parents[1]
    trash = node.folder / "results" / ".expired"
    trash.mkdir()
    folder.rename(trash / "left")  # killed after the rename, before the commit
    done = apply_retention(node.config(), node.database, NOW + 40 * DAY)
    assert done.n_results == 1 and not trash.exists()


def test_that_the_folder_is_too_large_is_audited_once_an_hour(node, monkeypatch):
    node.study(state="open", image_state="stored")
    config = node.config(retention={"max_gb": 1e-9})
    import time

    now = time.time()
    for after in (0, 60, 120):
        apply_retention(config, node.database, now + after)
    apply_retention(config, node.database, now + 4000)
    assert [row["event"] for row in node.database.rows("SELECT event FROM audit_events")] == [
        "retention_over_limit"
    ] * 2
