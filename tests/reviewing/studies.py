"""Studies of a few generated images, and a reader who answers over HTTP."""

import json
import urllib.error
import urllib.request
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import yaml
from PIL import Image
from starlette.testclient import TestClient

from usvit.progress import NO_PROGRESS
from usvit.reviewing.answers import StudyAnswers
from usvit.reviewing.pictures import StudyPictures
from usvit.reviewing.serve import open_study
from usvit.reviewing.server import ReviewServer
from usvit.reviewing.settings import load_review

ORIGIN = "http://127.0.0.1:8750"
POST = {"X-Usvit-Review": "1", "Origin": ORIGIN}


def write_images(folder: Path, n: int = 6) -> Path:
    """Write images named after a patient, and a table of their labels, of which every second one is malignant."""
    rng = np.random.default_rng(0)
    images = folder / "images"
    images.mkdir(parents=True, exist_ok=True)
    rows = ["path,label"]
    for k in range(n):
        grey = rng.integers(0, 255, (48, 64), dtype=np.uint8)
        Image.fromarray(grey).save(images / f"Novakova-{k}.png")
        rows.append(f"Novakova-{k}.png,{('benign', 'malignant')[k % 2]}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return images


def write_study(folder: Path, *, n: int = 6, **settings) -> Path:
    """Write images and the file of a study of them."""
    write_images(folder, n)
    source = {"images": ["images"], "labels": "labels.csv", **settings.pop("source", {})}
    (folder / "study.yaml").write_text(yaml.safe_dump({"readers": ["A"], **settings, "source": source}))
    return folder / "study.yaml"


@contextmanager
def opened(study: Path):
    """Begin or open a study, without serving it."""
    settings = load_review(study)
    settings.out.mkdir(exist_ok=True)  # in use, the lock of the folder makes it
    with closing(open_study(settings, NO_PROGRESS)) as answers:
        yield answers


@contextmanager
def served(study: Path):
    """Serve a study to clients in this process."""
    with opened(study) as answers, StudyPictures(answers.settings.source.crop) as pictures:
        yield ReviewServer(answers, pictures, ORIGIN)


def give_scores(answers: StudyAnswers, scores: dict[str, float]) -> None:
    """Let a model have scored the cases."""
    with answers.database.transaction() as connection:
        for name, score in scores.items():
            decision = "malignant" if score > 0.5 else "benign"
            connection.execute("UPDATE cases SET score = ?, decision = ? WHERE name = ?", (score, decision, name))


class Reader:
    """A reader at a server in this process."""

    def __init__(self, server: ReviewServer, name: str):
        self.client = TestClient(server.app, base_url=ORIGIN)
        assert self.client.get(server.link(name)).status_code == 200

    @property
    def state(self):
        return self.client.get("/api/state").json()

    def post(self, action: str, **content):
        return self.client.post(f"/api/{action}", json=content, headers=POST)

    def answer(self, question: str, value: object, task: int | None = None):
        task = self.state["task"]["id"] if task is None else task
        return self.post("answer", task=task, question=question, value=value, active_seconds=0)

    def submit(self):
        return self.post("submit", task=self.state["task"]["id"], active_seconds=0)

    def read(self, **values):
        """Answer all questions of the current reading and finish it; ``values`` by name, or the first choice."""
        task = self.state["task"]
        for one in task["questions"]:
            value = values.get(one["name"], one["choices"][-2]["value"] if one["choices"] else 50)
            if one["kind"] != "text":
                value = [value] if one["multiple"] and not isinstance(value, list) else value
                done = self.answer(one["name"], value, task["id"])
                assert done.status_code == 200, done.text
        done = self.submit()
        assert done.status_code == 200, done.text
        return done.json()


class RemoteReader:
    """A reader at a server in another process, who keeps trying while it is away."""

    def __init__(self, link: str):
        self.base = link.partition("/enter")[0]
        with urllib.request.urlopen(link) as answer:
            self.cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def get(self, path: str) -> bytes:
        request = urllib.request.Request(self.base + path, headers={"Cookie": self.cookie})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.read()

    def state(self):
        return json.loads(self.get("/api/state"))

    def post(self, action: str, **content):
        headers = {"Cookie": self.cookie, "Content-Type": "application/json", "X-Usvit-Review": "1"}
        request = urllib.request.Request(f"{self.base}/api/{action}", json.dumps(content).encode(), headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.loads(answer.read())
