"""What a reader sees and may do: stages, answers, undo, sessions, arbitration."""

import sqlite3
import time

import pytest

from tests.reviewing.studies import Reader, give_scores, opened, served, write_study

DAY = 86_400


@pytest.fixture
def sequential(tmp_path, monkeypatch):
    """A study of four cases with scores, and a training case."""
    monkeypatch.setattr("usvit.reviewing.settings.SourceSettings.has_model", True)
    study = write_study(tmp_path, n=5, design="sequential", training=1, readers=["A", "B"])
    with opened(study) as answers:
        give_scores(answers, {f"Novakova-{k}.png": 0.875 for k in range(5)})
    return study


def test_the_model_is_shown_only_in_the_aided_stage_with_the_answers_before(sequential):
    with served(sequential) as server:
        reader = Reader(server, "A")
        reader.read(), reader.read(), reader.post("next", task=reader.state["task"]["id"])
        task = reader.state["task"]
        assert task["stage"] == "unaided" and task["aid"] is None and task["earlier"] == []
        task = reader.read(malignancy=20)["task"]
        assert task["stage"] == "aided" and task["aid"]["score"] == 0.875
        assert task["earlier"] == [{"label": "Without the model", "answers": {"birads": "5", "malignancy": 20}}]


def test_a_training_case_ends_with_its_reference_class(sequential):
    with served(sequential) as server:
        reader = Reader(server, "A")
        assert reader.state["task"]["training"] and reader.read()["task"]["phase"] == "answer"
        task = reader.read()["task"]
        assert task["phase"] == "feedback" and task["feedback"]["truth"] in ("benign", "malignant")
        assert reader.answer("malignancy", 3).status_code == 409  # the reader knows it now
        after = reader.post("next", task=task["id"]).json()
        assert after["task"]["id"] != task["id"] and not after["task"]["training"] and not after["can_undo"]


def test_undo_never_goes_back_behind_what_was_disclosed(sequential):
    with served(sequential) as server:
        reader = Reader(server, "A")
        reader.read(), reader.read(), reader.post("next", task=reader.state["task"]["id"])
        assert not reader.read()["can_undo"]  # the model is shown for the same case
        assert reader.post("undo").status_code == 422
        state = reader.read(malignancy=70)
        assert state["can_undo"] and state["task"]["stage"] == "unaided"
        again = reader.post("undo").json()["task"]
        assert again["stage"] == "aided" and again["answers"]["malignancy"] == 70
        assert reader.answer("malignancy", 90).status_code == 200 and reader.submit().status_code == 200


def test_answers_are_kept_before_a_case_is_finished(tmp_path):
    study = write_study(tmp_path)
    with served(study) as server:
        reader = Reader(server, "A")
        task = reader.state["task"]["id"]
        assert reader.answer("malignancy", 12).json() == {"saved": True}
        assert reader.submit().status_code == 422  # BI-RADS is missing
    with served(study) as server:
        reader = Reader(server, "A")
        assert reader.state["task"]["id"] == task and reader.state["task"]["answers"] == {"malignancy": 12}
        assert reader.answer("malignancy", None).status_code == 200
        assert reader.state["task"]["answers"] == {}


QUESTIONS = [
    {"name": "one", "choices": ["a", "b"]},
    {"name": "some", "choices": ["a", "b"], "multiple": True},
    {"name": "scale", "kind": "scale", "low": 1, "high": 5},
    {"name": "birads", "kind": "birads"},
    {"name": "words", "kind": "text"},
    {"name": "point", "kind": "point"},
    {"name": "box", "kind": "box"},
]
POINT = {"image": 0, "frame": 0, "x": 1.5, "y": 2}
BOX = {**POINT, "width": 3, "height": 4}
RIGHT = [
    *(("one", "b"), ("some", ["a", "b"]), ("some", []), ("scale", 1), ("scale", 4.5), ("birads", "4c")),
    *(("words", "ä" * 2000), ("point", POINT), ("box", BOX)),
]
WRONG = [
    *(("one", "c"), ("one", ["a"]), ("one", 1), ("one", {"a": 1}), ("some", "a"), ("some", ["a", "a"])),
    *(("some", [["a"]]), ("scale", 0.9), ("scale", 5.1), ("scale", True), ("scale", "3"), ("scale", 10**400)),
    *(("birads", "4"), ("birads", 4), ("words", "x" * 2001), ("words", 1), ("point", BOX), ("box", POINT)),
    *(("point", {**POINT, "image": 1}), ("point", {**POINT, "image": 0.5}), ("point", {**POINT, "x": -1})),
    *(("point", {**POINT, "frame": 1}), ("box", {**BOX, "width": "3"}), ("nothing", "a")),
]


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    study = write_study(tmp_path_factory.mktemp("asked"), questions=QUESTIONS)
    with served(study) as server:
        yield Reader(server, "A")


@pytest.mark.parametrize(("question", "value"), RIGHT)
def test_an_answer_is_kept_as_it_was_given(asked, question, value):
    assert asked.answer(question, value).status_code == 200
    assert asked.state["task"]["answers"][question] == value


@pytest.mark.parametrize(("question", "value"), WRONG, ids=str)
def test_what_is_no_answer_is_refused_and_nothing_changes(asked, question, value):
    before = asked.state["task"]["answers"]
    refused = asked.answer(question, value)
    assert refused.status_code == 422 and refused.json()["error"]
    assert asked.state["task"]["answers"] == before


def test_a_second_window_cannot_answer_what_the_first_has_finished(tmp_path):
    with served(write_study(tmp_path)) as server:
        first, second = Reader(server, "A"), Reader(server, "A")
        task = second.state["task"]["id"]
        first.read()
        assert second.answer("malignancy", 1, task).status_code == 409
        assert second.post("submit", task=task, active_seconds=0).status_code == 409


def test_time_is_what_the_page_counts_but_never_more_than_has_passed(tmp_path):
    study = write_study(tmp_path)
    with served(study) as server:
        reader = Reader(server, "A")
        task = reader.state["task"]["id"]
        time.sleep(0.05)
        for seconds in (0.04, 0.01, -5):
            reader.post("answer", task=task, question="malignancy", value=1, active_seconds=seconds)
            assert reader.state["task"]["active_seconds"] == 0.04
        reader.post("answer", task=task, question="malignancy", value=1, active_seconds=1e6)
        assert 0.05 <= reader.state["task"]["active_seconds"] < 60


def test_a_reader_gets_only_the_pictures_of_the_current_and_the_next_cases(tmp_path):
    with served(write_study(tmp_path, n=9)) as server:
        reader, state = Reader(server, "A"), None
        images = [row["id"] for row in server.answers.rows("SELECT id FROM images")]
        state = reader.state
        allowed = {one["id"] for one in (*state["task"]["images"], *state["upcoming"])}
        assert len(allowed) == 4
        for image in images:
            assert reader.client.get(f"/image/{image}/0.png").status_code == (200 if image in allowed else 403)


def test_the_second_session_opens_after_the_wash_out(tmp_path, monkeypatch):
    monkeypatch.setattr("usvit.reviewing.settings.SourceSettings.has_model", True)
    study = write_study(tmp_path, n=2, design="crossover", washout_days=28)
    with served(study) as server:
        reader = Reader(server, "A")
        image = reader.state["task"]["images"][0]["id"]
        reader.read()
        state = reader.read()
        assert state["task"] is None and not state["finished"] and state["opens_at"] and not state["upcoming"]
        assert state["progress"] == {"done": 2, "total": 4, "session": 2, "sessions": 2}
        assert reader.client.get(f"/image/{image}/0.png").status_code == 403
    with opened(study) as answers, answers.database.transaction() as connection:
        connection.execute("UPDATE readings SET answered_at = answered_at - ?", (28 * DAY,))
    with served(study) as server:
        reader = Reader(server, "A")
        reader.read()
        assert reader.read()["finished"]


def test_an_arbiter_decides_where_the_readers_differ_and_sees_both(tmp_path):
    study = write_study(tmp_path, n=3, protocol="labelling", readers=["A", "B"], arbiter="C")
    with served(study) as server:
        a, b, c = (Reader(server, name) for name in "ABC")
        assert c.state["task"] is None and not c.state["finished"]
        for _ in range(3):
            a.read(**{"class": "benign"})
        disputed = b.state["task"]["images"][0]["id"]
        b.read(**{"class": "malignant"})
        assert c.state["task"]["images"][0]["id"] == disputed  # at once, while B reads on
        earlier = [one["answers"]["class"] for one in c.state["task"]["earlier"]]
        assert sorted(earlier) == ["benign", "malignant"]
        for _ in range(2):
            b.read(**{"class": "benign"})
        assert c.read(**{"class": "malignant"})["finished"] and c.state["progress"]["total"] == 1


def test_a_new_reader_joins_and_none_can_leave(tmp_path):
    study = write_study(tmp_path, readers=["A"])
    with served(study) as server:
        Reader(server, "A").read()
    write_study(tmp_path, readers=["A", "B"])
    with served(study) as server:
        assert Reader(server, "B").state["progress"]["done"] == 0
        assert Reader(server, "A").state["progress"]["done"] == 1
    write_study(tmp_path, readers=["B"])
    with pytest.raises(Exception, match="has the reader A, whom its file does not name any more"), opened(study):
        pass


def test_everything_that_happened_is_in_the_log(tmp_path):
    study = write_study(tmp_path)
    with served(study) as server:
        reader = Reader(server, "A")
        reader.read(malignancy=10), reader.post("undo"), reader.answer("malignancy", 20), reader.submit()
    with sqlite3.connect(tmp_path / "review-study" / "review.sqlite") as database:
        events = database.execute("SELECT event, value FROM events WHERE question IS NOT 'birads'").fetchall()
    assert events == [("answer", "10"), ("finish", None), ("undo", None), ("answer", "20"), ("finish", None)]


def test_undo_of_an_arbiter_opens_the_case_that_was_decided_last(tmp_path):
    study = write_study(tmp_path, n=4, protocol="labelling", readers=["A", "B"], arbiter="C")
    with served(study) as server:
        a, b, c = (Reader(server, name) for name in "ABC")
        for _ in range(4):
            a.read(**{"class": "benign"})
        decided = []
        for _ in range(4):  # B reads in the opposite order of A, and C decides each case as soon as it is disputed
            b.read(**{"class": "malignant"})
            decided.append(c.state["task"]["id"])
            c.read(**{"class": "malignant"})
        assert decided != sorted(decided)
        assert c.post("undo").json()["task"]["id"] == decided[-1]
