"""The HTTP server of a study: the page, its state, the answers and the pictures.

Nothing is served without a token. The link of a reader, and the one-time link of who runs the study, set a cookie that
only this origin may read and send (``HttpOnly``, ``SameSite=Strict``). Requests must name the server by an address that
was announced, so that no other page reaches it by DNS rebinding; those that change something must come from the page
itself. In a blinded stage no answer holds a label, a score, a file name or a patient.
"""

import hmac
import json
import secrets
import shlex
import threading
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from usvit.errors import UsvitError
from usvit.reviewing.answers import StudyAnswers
from usvit.reviewing.pictures import StudyPictures
from usvit.reviewing.progress import progress_of
from usvit.reviewing.reader_desk import OutOfDate, ReaderDesk, Shown

HOST = ""
"""Name of who runs the study, among the readers."""
_MOST_BYTES = 64_000
"""Size of the body of a request."""
_COOKIE_SECONDS = 180 * 24 * 3600
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_ENTER = '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>Review</title>'
_NO_TOKEN = "Open the link that you were given: it holds the token of this study.\n"


class ReviewServer:
    """A study, served over HTTP.

    Attributes:
        app: the ASGI application.
        one_time: token with which who runs the study enters once.
    """

    def __init__(
        self,
        answers: StudyAnswers,
        pictures: StudyPictures,
        origin: str,
        *,
        also: tuple[str, ...] = (),
        study: str = "STUDY.yaml",
    ):
        """Prepare the application.

        Args:
            answers: the open study.
            pictures: what encodes its images.
            origin: scheme, host and port that are announced, such as ``http://127.0.0.1:8750``.
            also: further origins by which the server may be called.
            study: the file of the study, for the command that exports it.
        """
        self.answers, self._pictures = answers, pictures
        self.origin, self._origins = origin, (origin, *also)
        self.one_time = secrets.token_urlsafe(24)
        self._spent, self._study = False, study
        arbiter = answers.settings.arbiter
        names = [*answers.settings.readers, *([arbiter] if arbiter else [])]
        self.desks = {name: ReaderDesk(answers, name) for name in names}
        self._locks = {name: threading.RLock() for name in self.desks}
        self.cookie = f"usvit-review-{origin.rpartition(':')[2]}"
        self._page = {
            one.name: one.read_bytes()
            for one in files("usvit.reviewing").joinpath("page").iterdir()
            if one.name.endswith(tuple(_TYPES))
        }
        routes = [
            Route("/enter", self._enter),
            Route("/", self._index),
            Route("/page/{name}", self._file),
            Route("/api/state", self._state),
            Route("/api/{action}", self._act, methods=["POST"]),
            Route("/image/{image}/{frame:int}.png", self._frame),
            Route("/map/{image}/{number:int}", self._map),
            Route("/mask/{image}", self._mask),
        ]
        self.app = _Guard(Starlette(routes=routes, exception_handlers={404: _not_found, 405: _not_found}), self)

    def link(self, reader: str) -> str:
        """Return the personal link of a reader."""
        return f"{self.origin}/enter?token={self.answers.secret_for('link', reader)}"

    @property
    def host_link(self) -> str:
        """The link of who runs the study, which works once."""
        return f"{self.origin}/enter?token={self.one_time}"

    def who(self, scope: Scope) -> str | None:
        """Return the reader of a request by its cookie, ``HOST``, or None."""
        value = ""
        for name, content in scope["headers"]:
            if name == b"cookie":
                try:
                    morsel = SimpleCookie(content.decode("latin-1")).get(self.cookie)
                except CookieError:
                    return None
                value = morsel.value if morsel else value
        known = (HOST, *self.desks)
        return next((one for one in known if _same(value, self.answers.secret_for("cookie", one))), None)

    def names_this_server(self, host: str) -> bool:
        """Return whether a ``Host`` header is one by which the server was announced."""
        return host.lower() in [origin.partition("//")[2] for origin in self._origins]

    def is_own(self, origin: str) -> bool:
        """Return whether an ``Origin`` header is that of the page."""
        return origin in self._origins

    # ---- pages

    async def _enter(self, request: Request) -> Response:
        token, who = request.query_params.get("token", ""), None
        if _same(token, self.one_time) and not self._spent:
            who, self._spent = HOST, True
            if len(self.desks) == 1:
                who = next(iter(self.desks))
        else:
            who = next((one for one in self.desks if _same(token, self.answers.secret_for("link", one))), None)
        if who is None:
            return PlainTextResponse("This link is not valid, or was used before.\n", 403)
        response = HTMLResponse(_ENTER)
        response.set_cookie(
            self.cookie,
            self.answers.secret_for("cookie", who),
            max_age=_COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=self.origin.startswith("https:"),
        )
        return response

    async def _index(self, request: Request) -> Response:
        return self._served("index.html")

    async def _file(self, request: Request) -> Response:
        return self._served(request.path_params["name"])

    def _served(self, name: str) -> Response:
        if name not in self._page:
            return PlainTextResponse("There is no such page.\n", 404)
        kind = _TYPES["." + name.rpartition(".")[2]]
        return Response(self._page[name], media_type=kind)

    # ---- state and answers

    async def _state(self, request: Request) -> Response:
        return await self._on_desk(request, lambda desk: None)

    async def _act(self, request: Request) -> Response:
        action = request.path_params["action"]
        try:
            content = json.loads(await request.body(), parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return _error("The request is not valid.", 400)
        if not isinstance(content, dict):
            return _error("The request is not valid.", 400)
        reading, seconds = content.get("task"), content.get("active_seconds", 0.0)
        is_number = isinstance(seconds, int | float) and abs(seconds) < 1e9
        if action != "undo" and (not isinstance(reading, int) or isinstance(reading, bool) or abs(reading) > 2**62):
            return _error("The request names no case.", 400)
        if action not in ("answer", "submit", "next", "undo") or not is_number:
            return _error("The request is not valid.", 400)
        reading = reading if isinstance(reading, int) else 0
        if action == "answer":
            question, value = content.get("question"), content.get("value")
            if not isinstance(question, str):
                return _error("The request names no question.", 400)
            return await self._on_desk(request, lambda desk: desk.answer(reading, question, value, seconds), saved=True)
        if action == "submit":
            return await self._on_desk(request, lambda desk: desk.submit(reading, seconds))
        if action == "next":
            return await self._on_desk(request, lambda desk: desk.leave_feedback(reading))
        return await self._on_desk(request, lambda desk: desk.undo())

    async def _on_desk(self, request: Request, act: Callable[[ReaderDesk], None], *, saved: bool = False) -> Response:
        """Do something at the desk of the reader, and answer the new state."""
        who = request.state.who
        if who == HOST:
            return JSONResponse(await run_in_threadpool(self._overview)) if request.method == "GET" else _error("", 403)

        def done() -> Any:
            with self._locks[who]:
                act(self.desks[who])
                return {"saved": True} if saved else self.desks[who].state()

        try:
            return JSONResponse(await run_in_threadpool(done))
        except OutOfDate as error:
            return _error(str(error), 409)
        except UsvitError as error:
            return _error(str(error), 422)

    def _overview(self) -> dict[str, Any]:
        settings, record = self.answers.settings, progress_of(self.answers)
        study = {"title": settings.title, "protocol": settings.protocol, "instructions": settings.instructions}
        readers = [{**one.content(), "link": self.link(one.name)} for one in record.readers]
        return {
            "role": "host",
            "study": study,
            "readers": readers,
            "export": f"usvit review export {shlex.quote(self._study)}",
        }

    # ---- pictures

    async def _frame(self, request: Request) -> Response:
        number = request.path_params["frame"]
        return await self._picture(request, lambda image: self._pictures.frame(image, number), number=number)

    async def _map(self, request: Request) -> Response:
        number = request.path_params["number"]
        return await self._picture(request, lambda image: self._pictures.map(image, number), what="map")

    async def _mask(self, request: Request) -> Response:
        return await self._picture(request, self._pictures.mask, what="mask")

    async def _picture(
        self, request: Request, make: Callable[[Any], bytes], *, what: Shown = "frame", number: int = 0
    ) -> Response:
        who, image = request.state.who, request.path_params["image"]

        def made() -> bytes | None:
            rows = self.answers.rows("SELECT * FROM images WHERE id = ?", image)
            if not rows or number >= rows[0]["n_frames"]:
                return None
            with self._locks[who]:
                allowed = self.desks[who].may_see(image, what)
            return make(rows[0]) if allowed else None

        try:
            content = None if who == HOST else await run_in_threadpool(made)
        except UsvitError as error:
            return _error(str(error), 410)
        if content is None:
            return PlainTextResponse("This picture is not shown now.\n", 403)
        return Response(content, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})


class _Guard:
    """Answers only requests of the page itself, with a valid cookie, and sets the headers of every answer."""

    def __init__(self, app: ASGIApp, server: ReviewServer):
        self._app, self._server = app, server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                names = {name.lower() for name, _ in message["headers"]}
                for name, value in _HEADERS.items():
                    if name.lower().encode() not in names:
                        message["headers"].append((name.lower().encode(), value.encode()))
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, guarded)
            return
        body = await _bounded(receive) if scope["method"] == "POST" else b""
        if body is None:
            await _error("The request is too large.", 413)(scope, receive, guarded)
            return
        await self._app(scope, _replayed(body, receive), guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        server = self._server
        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value.decode("latin-1"))
        hosts = headers.get(b"host", [])
        if len(hosts) != 1 or not server.names_this_server(hosts[0].strip()):
            return PlainTextResponse("Use the address that was announced.\n", 421)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET, HEAD and POST are served.\n", 405)
        if scope["path"] == "/enter" and scope["method"] == "GET":
            return None
        if any(site not in ("same-origin", "none") for site in headers.get(b"sec-fetch-site", [])):
            return PlainTextResponse("Other pages get nothing from here.\n", 403)
        if any(not server.is_own(origin) for origin in headers.get(b"origin", [])):
            return PlainTextResponse("Other pages get nothing from here.\n", 403)
        who = server.who(scope)
        if who is None:
            return PlainTextResponse(_NO_TOKEN, 403)
        if scope["method"] == "POST":
            kinds = [one.partition(";")[0].strip().lower() for one in headers.get(b"content-type", [])]
            if kinds != ["application/json"] or headers.get(b"x-usvit-review") != ["1"]:
                return PlainTextResponse("Only the page itself can change something.\n", 403)
        scope.setdefault("state", {})["who"] = who
        return None


async def _bounded(receive: Receive) -> bytes | None:
    """Return the body of a request; None if it is too large."""
    body = b""
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return body
        body += message.get("body", b"")
        if len(body) > _MOST_BYTES:
            return None
        if not message.get("more_body"):
            return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives the body once, and then what the client sends."""
    first = [True]

    async def replay() -> Any:
        if first:
            first.clear()
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay


def _same(first: str, second: str) -> bool:
    return bool(first) and hmac.compare_digest(first.encode("utf-8", "replace"), second.encode())


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _error(text: str, state: int) -> JSONResponse:
    return JSONResponse({"error": text}, state)


async def _not_found(request: Request, error: Exception) -> Response:
    return PlainTextResponse("There is no such page.\n", 404)
