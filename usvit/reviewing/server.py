"""The HTTP server of a study: the page, its state, the answers and the pictures.

Nothing is served without a token. The link of a reader, and the one-time link of who runs the study, set a cookie that
only this origin may read and send (``HttpOnly``, ``SameSite=Strict``). Requests must name the server by an address that
was announced, so that no other page reaches it by DNS rebinding; those that change something must come from the page
itself. In a blinded stage no answer holds a label, a score, a file name or a patient.
"""

import json
import secrets
import threading
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from usvit.errors import UsvitError
from usvit.reviewing.answers import StudyAnswers
from usvit.reviewing.guard import (
    PageGuard,
    cookie_of,
    entered,
    error_answer,
    not_found,
    page_answer,
    page_files,
    refuse_constant,
    refused_token,
    same_secret,
)
from usvit.reviewing.pictures import StudyPictures
from usvit.reviewing.progress import progress_of
from usvit.reviewing.reader_desk import OutOfDate, ReaderDesk, Shown
from usvit.reviewing.states import HostReader, HostState, study_words

HOST = ""
"""Name of who runs the study, among the readers."""
_NO_TOKEN = "Open the link that you were given: it holds the token of this study.\n"


class ReviewServer:
    """A study, served over HTTP.

    Attributes:
        app: the ASGI application.
        export_command: command that the page of who runs the study shows.
        one_time: token with which who runs the study enters once.
    """

    def __init__(self, answers: StudyAnswers, pictures: StudyPictures, origin: str, *, also: tuple[str, ...] = ()):
        """Prepare the application.

        Args:
            answers: the open study.
            pictures: what encodes its images.
            origin: scheme, host and port that are announced, such as ``http://127.0.0.1:8750``.
            also: further origins by which the server may be called.
        """
        self.answers, self._pictures = answers, pictures
        self.origin, self._origins = origin, (origin, *also)
        self.one_time = secrets.token_urlsafe(24)
        self._spent = False
        self.export_command = "usvit review export STUDY.yaml"
        arbiter = answers.settings.arbiter
        names = [*answers.settings.readers, *([arbiter] if arbiter else [])]
        self.desks = {name: ReaderDesk(answers, name) for name in names}
        self._locks = {name: threading.RLock() for name in self.desks}
        self.cookie = f"usvit-review-{origin.rpartition(':')[2]}"
        self._page = page_files("usvit.reviewing")
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
        app = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_found})
        self.app = PageGuard(app, self._origins, self.who, advice=_NO_TOKEN)

    def link(self, reader: str) -> str:
        """Return the personal link of a reader."""
        return f"{self.origin}/enter?token={self.answers.secret_for('link', reader)}"

    @property
    def host_link(self) -> str:
        """The link of who runs the study, which works once."""
        return f"{self.origin}/enter?token={self.one_time}"

    def who(self, scope: Scope) -> str | None:
        """Return the reader of a request by its cookie, ``HOST``, or None."""
        value = cookie_of(scope, self.cookie)
        known = (HOST, *self.desks)
        return next((one for one in known if same_secret(value, self.answers.secret_for("cookie", one))), None)

    # ---- pages

    async def _enter(self, request: Request) -> Response:
        token, who = request.query_params.get("token", ""), None
        if same_secret(token, self.one_time) and not self._spent:
            who, self._spent = HOST, True
            if len(self.desks) == 1:
                who = next(iter(self.desks))
        else:
            who = next((one for one in self.desks if same_secret(token, self.answers.secret_for("link", one))), None)
        if who is None:
            return refused_token()
        value = self.answers.secret_for("cookie", who)
        return entered(self.cookie, value, secure=self.origin.startswith("https:"))

    async def _index(self, request: Request) -> Response:
        return page_answer(self._page, "index.html")

    async def _file(self, request: Request) -> Response:
        return page_answer(self._page, request.path_params["name"])

    # ---- state and answers

    async def _state(self, request: Request) -> Response:
        return await self._on_desk(request, lambda desk: None)

    async def _act(self, request: Request) -> Response:
        action = request.path_params["action"]
        try:
            content = json.loads(await request.body(), parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            return error_answer("The request is not valid.", 400)
        if not isinstance(content, dict):
            return error_answer("The request is not valid.", 400)
        reading, seconds = content.get("task"), content.get("active_seconds", 0.0)
        is_number = isinstance(seconds, int | float) and abs(seconds) < 1e9
        if action != "undo" and (not isinstance(reading, int) or isinstance(reading, bool) or abs(reading) > 2**62):
            return error_answer("The request names no case.", 400)
        if action not in ("answer", "submit", "next", "undo") or not is_number:
            return error_answer("The request is not valid.", 400)
        reading = reading if isinstance(reading, int) else 0
        if action == "answer":
            question, value = content.get("question"), content.get("value")
            if not isinstance(question, str):
                return error_answer("The request names no question.", 400)
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
            return (
                JSONResponse((await run_in_threadpool(self._overview)).content())
                if request.method == "GET"
                else error_answer("", 403)
            )

        def done() -> Any:
            with self._locks[who]:
                act(self.desks[who])
                return {"saved": True} if saved else self.desks[who].state().content()

        try:
            return JSONResponse(await run_in_threadpool(done))
        except OutOfDate as error:
            return error_answer(str(error), 409)
        except UsvitError as error:
            return error_answer(str(error), 422)

    def _overview(self) -> HostState:
        settings, record = self.answers.settings, progress_of(self.answers)
        readers = [HostReader(**one.content(), link=self.link(one.name)) for one in record.readers]
        return HostState(study=study_words(settings), readers=readers, export=self.export_command)

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
            return error_answer(str(error), 410)
        if content is None:
            return PlainTextResponse("This picture is not shown now.\n", 403)
        return Response(content, media_type="image/png", headers={"Cache-Control": "private, max-age=3600"})
