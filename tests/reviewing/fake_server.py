"""A server of made-up cases, which speaks as the server of ``usvit review`` does: for tests of the page alone."""

import io
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import uvicorn
from PIL import Image
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

import usvit

PAGE = Path(usvit.__file__).parent / "reviewing" / "page"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
WIDTH, HEIGHT, SPACING = 320, 240, 0.1


def question(name: str, kind: str, label: str = "", required: bool = True, **rest: Any) -> dict[str, Any]:
    empty = {"choices": [], "multiple": False, "low": 0, "high": 100, "step": 1, "help": ""}
    return {**empty, "name": name, "kind": kind, "label": label or name, "required": required, **rest}


def choices(*values: str) -> list[dict[str, str]]:
    return [{"value": value.lower(), "label": value} for value in values]


CATEGORIES = ("0", "1", "2", "3", "4a", "4b", "4c", "5", "6")
EVERY_KIND = [
    question("verdict", "choice", "Is the lesion malignant?", choices=choices("Benign", "Malignant", "Unsure")),
    question("birads", "birads", "BI-RADS category", choices=[{"value": c, "label": c} for c in CATEGORIES]),
    question("chance", "scale", "How likely is malignancy?", help="0 is surely benign, 100 is surely malignant."),
    question("signs", "choice", "Signs", False, multiple=True, choices=choices("Shadow", "Halo", "Calcification")),
    question("centre", "point", "Centre of the lesion", False),
    question("lesion", "box", "Box around the lesion", False),
    question("remark", "text", "Remark", False),
]
SCALE = [question("chance", "scale", "How likely is malignancy?")]
AID = {
    "model": "vit_b32, BUSI",
    "score": 0.83,
    "positive": "malignant",
    "decision": "malignant",
    "threshold": 0.5,
    "pictures": [{"image": 0, "url": "map/a/0", "label": "attention"}],
}
MASKS = [{"image": 0, "url": "mask/a", "label": "lesion mask"}]


def image(name: str, frames: int = 1, spacing: float | None = SPACING, label: str = "") -> dict[str, Any]:
    size = {"width": WIDTH, "height": HEIGHT}
    rate = 40.0 if frames > 1 else None
    return {"id": name, "frames": frames, **size, "spacing_mm": spacing, "label": label, "frame_ms": rate}


def task(images: list[dict[str, Any]], questions: list[dict[str, Any]], **rest: Any) -> dict[str, Any]:
    """A task of an unaided stage; the server numbers it."""
    stage = {"stage": "unaided", "stage_label": "Without the model", "training": False, "phase": "answer"}
    empty = {"answers": {}, "earlier": [], "aid": None, "masks": [], "feedback": None, "active_seconds": 0.0}
    return {**stage, **empty, "images": images, "questions": questions, **rest}


def picture(name: str, frame: int) -> bytes:
    """Speckle with a dark ellipse that moves from frame to frame."""
    rng = np.random.default_rng([*name.encode(), frame])
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    inside = ((x - 130 - 6 * frame) / 60) ** 2 + ((y - 120) / 40) ** 2 < 1
    grey = rng.rayleigh(np.where(inside, 18, 60))
    return png(np.repeat(np.clip(grey, 0, 255).astype(np.uint8)[..., None], 3, axis=2))


def overlay() -> bytes:
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    heat = np.exp(-(((x - 130) / 50) ** 2) - ((y - 120) / 35) ** 2)
    return png(np.stack([255 * heat, 80 * heat, 0 * heat, 255 * heat], axis=2).astype(np.uint8))


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


class FakeServer:
    """Its cases and what it was asked are public, so that a test sets and reads them."""

    def __init__(self) -> None:
        routes = [
            Route("/", lambda request: FileResponse(PAGE / "index.html")),
            Route("/page/{name}", lambda request: FileResponse(PAGE / request.path_params["name"])),
            Route("/api/state", lambda request: JSONResponse(self.state())),
            Route("/api/{action}", self.act, methods=["POST"]),
            Route("/image/{name}/{frame:int}.png", self.image),
            Route("/map/a/0", lambda request: Response(overlay(), media_type="image/png")),
            Route("/mask/a", lambda request: Response(overlay(), media_type="image/png")),
        ]
        self.app = Starlette(routes=routes)
        self.begin([])

    def begin(self, tasks: list[dict[str, Any]], **state: Any) -> None:
        """Start a study of these tasks; ``state`` replaces keys of the state."""
        self.tasks = [{**one, "id": 100 + n, "number": n + 1} for n, one in enumerate(tasks)]
        self.current, self.special = 0, state
        self.saved: list[tuple[int, str, Any]] = []
        self.seconds: list[float] = []
        self.asked: list[str] = []
        self.failures: list[int] = []  # statuses that the next POSTs answer

    def state(self) -> dict[str, Any]:
        n, tasks = self.current, self.tasks
        upcoming = [{key: one[key] for key in ("id", "frames")} for later in tasks[n + 1 :] for one in later["images"]]
        state = {
            "role": "reader",
            "study": {"title": "A study of ellipses", "protocol": "reader_study", "instructions": ""},
            "reader": "R1",
            "progress": {"done": n, "total": len(tasks), "session": 1, "sessions": 1},
            "task": tasks[n] if n < len(tasks) else None,
            "finished": n >= len(tasks),
            "opens_at": None,
            "can_undo": n > 0,
            "upcoming": upcoming,
        }
        return {**state, **self.special}

    async def act(self, request: Request) -> Response:
        action, body = request.path_params["action"], await request.json()
        self.asked.append(f"/api/{action}")
        if request.headers.get("X-Usvit-Review") != "1":
            return JSONResponse({"error": "The header is missing."}, 403)
        if self.failures:
            return JSONResponse({"error": "This server fails as the test wants it."}, self.failures.pop(0))
        if action == "undo":
            self.current -= 1
            return JSONResponse(self.state())
        current = self.tasks[self.current]
        if body["task"] != current["id"]:
            return JSONResponse({"error": "Another window has gone on."}, 409)
        if action == "answer":
            self.saved.append((body["task"], body["question"], body["value"]))
            self.seconds.append(body["active_seconds"])
            current["answers"] = {**current["answers"], body["question"]: body["value"]}
            return JSONResponse({"saved": True})
        if action == "submit" and current["training"]:
            current.update(phase="feedback", feedback={"truth": "malignant"})
        else:
            self.current += 1
        return JSONResponse(self.state())

    def image(self, request: Request) -> Response:
        name, frame = request.path_params["name"], request.path_params["frame"]
        self.asked.append(request.url.path)
        caching = {"Cache-Control": "private, max-age=3600"}
        return Response(picture(name, frame), media_type="image/png", headers=caching)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        async def with_policy(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"content-security-policy", POLICY.encode())]
            await send(message)

        if scope["type"] == "http" and scope["path"].startswith(("/map", "/mask")):
            self.asked.append(scope["path"])
        await self.app(scope, receive, with_policy)

    def start(self) -> str:
        """Serve in a thread; return the address."""
        self.server = uvicorn.Server(uvicorn.Config(self, port=0, log_level="error", lifespan="off"))
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        while not self.server.started:
            time.sleep(0.01)
        return f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}/"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(10)
