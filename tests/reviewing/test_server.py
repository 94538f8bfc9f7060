"""The server gives nothing away: without a token, to other pages, or in a blinded stage."""

import io
import json
import random

import numpy as np
import pydicom
import pytest
from PIL import Image
from starlette.testclient import TestClient

from tests.data.conftest import write_dicom
from tests.reviewing.studies import ORIGIN, POST, Reader, give_scores, opened, served, write_images, write_study

PATHS = ["/", "/api/state", "/page/main.js", "/page/review.css", "/image/x/0.png", "/map/x/0", "/mask/x", "/x"]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served(write_study(tmp_path_factory.mktemp("study"), readers=["A", "B"])) as server:
        yield server


@pytest.mark.parametrize("path", PATHS)
def test_nothing_is_served_without_a_token(server, path):
    client = TestClient(server.app, base_url=ORIGIN)
    for headers in ({}, {"Cookie": f"{server.cookie}=x"}, {"Cookie": f"{server.cookie}="}, {"Cookie": "\x00=;;"}):
        answer = client.get(path, headers=headers)
        assert answer.status_code == 403 and "token" in answer.text


def test_the_link_of_who_runs_the_study_works_once(server):
    client = TestClient(server.app, base_url=ORIGIN)
    link = server.host_link
    answer = client.get(link)
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 200 and "HttpOnly" in cookie and "SameSite=strict" in cookie
    state = client.get("/api/state").json()
    assert state["role"] == "host" and [one["name"] for one in state["readers"]] == ["A", "B"]
    assert client.post("/api/undo", json={}, headers=POST).status_code == 403
    assert TestClient(server.app, base_url=ORIGIN).get(link).status_code == 403


def test_a_token_of_one_reader_is_not_that_of_another(server):
    links = {server.link(name) for name in ("A", "B")}
    assert len(links) == 2
    assert TestClient(server.app, base_url=ORIGIN).get(f"{ORIGIN}/enter?token=").status_code == 403


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8750", "127.0.0.1", "127.0.0.1:1", "", "127.0.0.1:8750.x"]
)
def test_a_request_by_another_name_is_refused(server, host):
    reader = Reader(server, "A")
    assert reader.client.get("/api/state", headers={"Host": host}).status_code == 421
    assert reader.client.get("/api/state", headers={"Host": "localhost:8750"}).status_code in (200, 421)


OTHERS = [
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
]


@pytest.mark.parametrize("headers", OTHERS, ids=str)
def test_another_page_can_neither_read_nor_post(server, headers):
    reader = Reader(server, "A")
    before = reader.state
    image = before["task"]["images"][0]["id"]
    for path in ("/api/state", f"/image/{image}/0.png", "/"):
        answer = reader.client.get(path, headers=headers)
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    body = {"task": before["task"]["id"], "question": "malignancy", "value": 1, "active_seconds": 0}
    assert reader.client.post("/api/answer", json=body, headers={**POST, **headers}).status_code == 403
    assert reader.state["task"]["answers"] == {}


def test_a_form_of_another_page_cannot_post(server):
    reader = Reader(server, "A")
    for headers in ({}, {"X-Usvit-Review": "1", "Content-Type": "text/plain"}, {"Content-Type": "application/json"}):
        assert reader.client.post("/api/undo", content=b"{}", headers=headers).status_code == 403
    assert reader.client.put("/api/undo", json={}, headers=POST).status_code == 405
    assert reader.client.options("/api/undo").status_code == 405


def test_every_answer_forbids_scripts_of_others_frames_and_caches(server):
    for answer in (Reader(server, "A").client.get("/"), TestClient(server.app, base_url=ORIGIN).get("/")):
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "path",
    ["/page/../settings.py", "/page/..%2fsettings.py", "/page/%2e%2e/plugin.py", "/page//etc/passwd"],
)
def test_no_path_leads_out_of_the_page(server, path):
    answer = Reader(server, "A").client.get(path)
    assert answer.status_code in (403, 404) and "import" not in answer.text


BODIES = [b"", b"[]", b"{", b"1", b"\xff", b'{"task": 1e999}', b'{"task": NaN}', b'{"task": true}', b'{"task": "1"}']
BODIES += [b'{"task": ' + b"[" * 20_000 + b"}", b'{"task": 1' + b"0" * 400 + b"}", b'{"task": 1, "question": {}}']


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body[:20]))
@pytest.mark.parametrize("action", ["answer", "submit", "next"])
def test_a_malformed_request_gets_a_sentence(server, action, body):
    headers = {**POST, "Content-Type": "application/json"}
    answer = Reader(server, "A").client.post(f"/api/{action}", content=body, headers=headers)
    assert answer.status_code in (400, 409, 422) and answer.json()["error"]


def test_a_large_request_is_refused(server):
    answer = Reader(server, "A").post("answer", task=1, question="malignancy", value="x" * 100_000)
    assert answer.status_code == 413


def test_fuzzed_requests_neither_fail_nor_leak(server):
    rng = random.Random(0)
    reader, stranger = Reader(server, "A"), TestClient(server.app, base_url=ORIGIN, raise_server_exceptions=True)
    parts = [
        "",
        "api",
        "image",
        "map",
        "mask",
        "page",
        "enter",
        "state",
        "answer",
        "0.png",
        "..",
        "%00",
        "ž",
        "9" * 30,
        "-1",
    ]
    parts += [row["id"] for row in server.answers.rows("SELECT id FROM images")]
    values = [None, 1, -1, "x", [], {}, "malignancy", 1e300, True, "\ud800"]
    for number in range(2_000):
        path = "/" + "/".join(rng.choice(parts) for _ in range(rng.randint(1, 4)))
        client = reader.client if number % 2 else stranger
        if number % 4 < 2:
            answer = client.get(path, params={"token": str(rng.choice(values[:-1]))} if number % 3 == 0 else None)
        else:
            body = {name: rng.choice(values) for name in ("task", "question", "value", "active_seconds")}
            content = json.dumps(body).encode()
            answer = client.post(path, content=content, headers={**POST, "Content-Type": "application/json"})
        assert answer.status_code < 500, (path, answer.text)
        assert "Novakova" not in answer.text and "Traceback" not in answer.text
        assert client is reader.client or answer.status_code in (403, 405), path


def test_a_blinded_stage_sends_no_label_score_file_or_patient(tmp_path, monkeypatch):
    """Reads every byte of a whole study in which the model is not shown."""
    monkeypatch.setattr("usvit.reviewing.settings.SourceSettings.has_model", True)
    images = write_images(tmp_path)
    for k, picture in enumerate(sorted(images.glob("*.png"))):
        pixels = np.array(Image.open(picture))
        write_dicom(
            images / f"IM{k}.dcm",
            np.repeat(pixels[:, :, None], 3, axis=2),
            PatientName="Novakova^Jana",
            PatientID="Novakova-7",
        )
        picture.unlink()
    labels = [f"IM{k}.dcm,{('benign', 'malignant')[k % 2]}" for k in range(6)]
    study = write_study(tmp_path, design="sequential", readers=["A"])
    for picture in images.glob("*.png"):
        picture.unlink()
    (tmp_path / "labels.csv").write_text("\n".join(["path,label", *labels]) + "\n")
    with opened(study) as answers:
        give_scores(answers, {f"IM{k}.dcm": 0.8125 for k in range(6)})
    sent = {"unaided": b"", "aided": b""}
    with served(study) as server:
        reader = Reader(server, "A")
        while (state := reader.state)["task"]:
            task = state["task"]
            own = [one["id"] for one in (*task["images"], *state["upcoming"])]
            paths = ["/", "/api/state", "/page/main.js", *(f"/image/{one}/0.png" for one in own)]
            paths += [f"/{what}/{one}" for one in own for what in ("mask", "map")]
            answers_ = [reader.client.get(path) for path in paths]
            assert all(one.status_code == 200 for one in answers_[: 3 + len(own)])
            sent[task["stage"]] += b"".join(one.content + str(one.headers).encode() for one in answers_)
            reader.read()
    assert b"0.8125" in sent["aided"] and b"malignant" in sent["aided"]
    for secret in (b"Novakova", b"Jana", b"IM0", b"IM5", b".dcm", b"0.8125", b"benign", str(tmp_path).encode()):
        assert secret not in sent["unaided"].replace(b"malignant?", b""), secret
    pages = sent["unaided"].replace(b"not malignant", b"").replace(b"certainly malignant", b"")
    assert b'"malignant"' not in pages


def test_pixels_are_served_without_loss(server):
    reader = Reader(server, "A")
    image = reader.state["task"]["images"][0]["id"]
    row = server.answers.rows("SELECT * FROM images WHERE id = ?", image)[0]
    shown = np.array(Image.open(io.BytesIO(reader.client.get(f"/image/{image}/0.png").content)))
    source = json.loads(row["item"])[1]
    assert (shown == np.array(Image.open(source))).all() and shown.shape == (row["height"], row["width"])


def test_text_around_the_tissue_region_is_not_sent(tmp_path):
    folder = tmp_path / "images"
    folder.mkdir()
    pixels = np.full((200, 300, 3), 255, dtype=np.uint8)
    path = write_dicom(folder / "IM1", pixels) or folder / "IM1"
    data = pydicom.dcmread(path)
    region = pydicom.Dataset()
    region.RegionSpatialFormat, region.RegionDataType, region.RegionFlags = 1, 1, 0
    region.RegionLocationMinX0, region.RegionLocationMinY0 = 40, 50
    region.RegionLocationMaxX1, region.RegionLocationMaxY1 = 239, 179
    region.PhysicalUnitsXDirection = region.PhysicalUnitsYDirection = 3
    region.PhysicalDeltaX = region.PhysicalDeltaY = 0.01
    data.SequenceOfUltrasoundRegions = [region]
    data.save_as(path)
    (tmp_path / "study.yaml").write_text("source: {images: [images]}\n")
    with served(tmp_path / "study.yaml") as server:
        (image,) = Reader(server, "reader").state["task"]["images"]
        assert (image["width"], image["height"]) == (200, 130) and image["spacing_mm"] == pytest.approx(0.1)
