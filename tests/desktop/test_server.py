"""The page of ``usvit app`` is served to who holds its token alone, and names in one sentence what is wrong."""

import re
import time

import pytest
from PIL import Image
from starlette.testclient import TestClient

from tests.reports.conftest import fake_run
from usvit.desktop.runner import StepRunner
from usvit.desktop.server import AppServer
from usvit.desktop.settings import AppSettings
from usvit.desktop.steps import AppStep, LabelChoice, command
from usvit.desktop.work import AppWork
from usvit.errors import UsvitError

ORIGIN = "http://127.0.0.1:8760"
HEADERS = {"X-Usvit-Review": "1"}


@pytest.fixture
def closed():
    return []


@pytest.fixture
def server(tmp_path, monkeypatch, closed):
    monkeypatch.chdir(tmp_path)
    images = tmp_path / "images"
    images.mkdir()
    for name in ("a.png", "b.png"):
        Image.new("L", (64, 64), 90).save(images / name)
    work = AppWork(AppSettings(results=tmp_path / "results"))
    yield AppServer(work, ORIGIN, close=lambda: closed.append(True))
    work.close()


@pytest.fixture
def client(server):
    client = TestClient(server.app, base_url=ORIGIN)
    assert client.get(server.link).status_code == 200
    return client


def post(client, action, **body):
    return client.post(f"/api/{action}", json=body, headers=HEADERS)


def sentence(answer):
    assert answer.status_code == 422, answer.text
    return answer.json()["error"]


@pytest.mark.parametrize("path", ["/", "/page/app.js", "/api/state", "/api/cases", "/results/scores.html", "/x"])
def test_nothing_is_served_without_the_token_and_its_link_works_once(server, path):
    stranger = TestClient(server.app, base_url=ORIGIN)
    assert stranger.get(path).status_code == 403
    link = server.link
    assert stranger.get(link).status_code == 200
    assert TestClient(server.app, base_url=ORIGIN).get(link).status_code == 403


def test_another_page_can_neither_read_nor_act(client, closed):
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {"Host": "evil.example"}):
        assert client.get("/api/state", headers=headers).status_code in (403, 421)
        assert client.post("/api/close", json={}, headers={**HEADERS, **headers}).status_code in (403, 421)
    assert client.post("/api/close", json={}).status_code == 403 and closed == []
    assert post(client, "close").status_code == 200 and closed == [True]


def test_folders_are_listed_by_name_without_files_and_hidden_folders(client, tmp_path):
    (tmp_path / ".secret").mkdir()
    found = post(client, "folders", path=str(tmp_path)).json()
    assert [one["name"] for one in found["folders"]] == ["images"] and found["parent"] == str(tmp_path.parent)
    assert "a.png" not in post(client, "folders", path=str(tmp_path / "images")).text
    assert "cannot be opened" in sentence(post(client, "folders", path=str(tmp_path / "none")))
    assert "whole path" in sentence(post(client, "folders", path="images"))
    assert "whole path" in sentence(post(client, "folders", path="/a\0b"))


def test_images_and_a_model_are_found_and_the_command_is_shown(client, tmp_path):
    run = fake_run(tmp_path / "runs" / "x", n=60)
    found = post(client, "images", path=str(tmp_path / "images")).json()["images"]
    assert (found["n_files"], found["kinds"]) == (2, [{"ending": "png", "n": 2}])
    models = post(client, "models", path=str(tmp_path / "runs")).json()["models"]
    assert [one["path"] for one in models] == [str(run)]
    state = post(client, "model", path=str(run)).json()
    out = tmp_path / "results" / "images-x"
    assert state["out"] == str(out) and not out.exists()
    words = ("score", "--model", run, "--input", tmp_path / "images", "--out", out / "scores", "--link")
    assert state["commands"]["score"] == command(*words, out / "files.csv")
    assert "holds no finished model" in sentence(post(client, "model", path=str(tmp_path / "images")))
    assert "inside the folder of the images" in sentence(post(client, "results", path=str(tmp_path / "images" / "r")))
    assert "Score the images first" in sentence(post(client, "read"))


def test_a_table_of_diagnoses_stays_in_the_folder_of_results(client, tmp_path):
    run = fake_run(tmp_path / "x", n=60)
    kind = {"Content-Type": "application/octet-stream", **HEADERS}
    assert "first" in sentence(client.post("/api/upload?name=a.csv", content=b"path,label", headers=kind))
    post(client, "images", path=str(tmp_path / "images"))
    post(client, "model", path=str(run))
    for name in ("../../a.csv", "..\\a.csv", "a.csv"):
        answer = client.post("/api/upload", params={"name": name}, content=b"path,label", headers=kind)
        assert answer.json()["labels"]["name"] == "a.csv"
    labels = tmp_path / "results" / "images-x" / "labels"
    assert [one.name for one in labels.iterdir()] == ["a.csv"]
    assert client.post("/api/upload", params={"name": "a.csv"}, content=b"x", headers=kind).json()["labels"][
        "name"
    ] == ("a-2.csv")
    assert "is empty" in sentence(client.post("/api/upload", params={"name": "a.csv"}, content=b"", headers=kind))
    assert client.post("/api/upload?name=a", content=b"0" * 50_000_001, headers=kind).status_code == 413


@pytest.mark.parametrize("name", ["..%2f..%2fsecret", "files", "x", "labels"])
def test_only_pages_and_tables_of_the_results_are_served(client, tmp_path, name):
    run = fake_run(tmp_path / "x", n=60)
    post(client, "images", path=str(tmp_path / "images"))
    post(client, "model", path=str(run))
    for ending in ("html", "xlsx"):
        assert client.get(f"/results/{name}.{ending}").status_code == 404


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"path": 1}', b'{"path": NaN}'])
def test_a_malformed_request_gets_a_sentence(client, body):
    headers = {**HEADERS, "Content-Type": "application/json"}
    for action in ("images", "start", "labels", "no-such-action"):
        answer = client.post(f"/api/{action}", content=body, headers=headers)
        assert answer.status_code in (400, 404, 422) and answer.json()["error"]


def test_words_of_other_tables_become_classes():
    choice = LabelChoice("t.csv", label="Befund", image="Datei", words="b=benign, m=malignant", drop_seen=True)
    table = choice.table()
    assert table.label_column == "Befund" and table.join == "path=Datei"
    assert dict(table.words) == {"b": "benign", "m": "malignant"}
    assert choice.options()[-3:] == ["--map", "m=malignant", "--drop-seen"]


def fail(channel, text):
    channel.start("counting", 3, "images")
    channel.update(3)
    raise UsvitError(text)


def wait(channel):
    time.sleep(60)


def crash(channel):
    raise KeyError("the name of a patient")


def ended(runner):
    for _ in range(600):
        if not runner.runs:
            return runner.report()
        time.sleep(0.05)
    raise AssertionError("the step does not end")


def test_errors_of_a_step_are_one_sentence_and_a_step_can_be_stopped():
    runner = StepRunner()
    runner.start(AppStep("test", "usvit x", fail, {"text": "The file x is no table."}))
    state = ended(runner)
    assert (state.state, state.error, state.command) == ("failed", "The file x is no table.", "usvit x")
    runner.start(AppStep("test", "usvit x", crash))
    error = ended(runner).error
    assert "bug" in error and "patient" not in error
    runner.start(AppStep("score", "usvit x", wait))
    with pytest.raises(UsvitError, match="Another step is running"):
        runner.start(AppStep("score", "usvit x", wait))
    runner.stop()
    assert ended(runner).state == "stopped"


def test_the_desktop_entry_starts_the_command():
    from tests.conftest import REPOSITORY

    text = (REPOSITORY / "deploy" / "usvit.desktop").read_text()
    assert text.startswith("[Desktop Entry]\n") and re.search(r"^Exec=usvit app$", text, re.MULTILINE)
