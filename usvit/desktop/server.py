"""The HTTP server of ``usvit app``: the page, what it shows, what it does, and the pages and tables of the results.

It has the same guard as ``usvit review``: a one-time link sets a cookie, and only the page itself can ask or act.
"""

import json
import secrets
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from usvit.desktop.folders import folder_at, list_folder
from usvit.desktop.work import MOST_LABEL_BYTES, AppWork
from usvit.errors import UsvitError
from usvit.records import Record
from usvit.reviewing import (
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

_UPLOAD = "/api/upload"
_XLSX = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_DOCUMENT = {"Content-Security-Policy": "sandbox allow-scripts allow-modals allow-downloads; frame-ancestors 'none'"}
"""Pages of results have a policy of their own, and reach nothing of this server."""
_NO_TOKEN = "Start usvit app again and use the page that it opens: its link holds the token.\n"


class AppServer:
    """The page of ``usvit app``, served over HTTP.

    Attributes:
        app: the ASGI application.
    """

    def __init__(self, work: AppWork, origin: str, *, also: tuple[str, ...] = (), close: Callable[[], None]):
        """Prepare the application.

        Args:
            work: what the page does.
            origin: scheme, host and port that are announced.
            also: further origins by which the server may be called.
            close: ends the server.
        """
        self._work, self._close, self._origin = work, close, origin
        self._one_time, self._secret, self._spent = secrets.token_urlsafe(24), secrets.token_urlsafe(24), False
        self.cookie = f"usvit-app-{origin.rpartition(':')[2]}"
        self._page = page_files("usvit.reviewing", "usvit.desktop")
        routes = [
            Route("/enter", self._enter),
            Route("/", self._index),
            Route("/page/{name}", self._file),
            Route("/api/state", self._state),
            Route("/api/cases", self._cases),
            Route(_UPLOAD, self._upload, methods=["POST"]),
            Route("/api/{action}", self._act, methods=["POST"]),
            Route("/results/{name}.html", self._document),
            Route("/results/{name}.xlsx", self._workbook),
        ]
        app = Starlette(routes=routes, exception_handlers={404: not_found, 405: not_found})
        guard = {"advice": _NO_TOKEN, "uploads": {_UPLOAD: MOST_LABEL_BYTES}}
        self.app = PageGuard(app, (origin, *also), self._who, **guard)  # type: ignore[arg-type]

    @property
    def link(self) -> str:
        """The link that opens the page, which works once."""
        return f"{self._origin}/enter?token={self._one_time}"

    def _who(self, scope: Scope) -> str | None:
        return "user" if same_secret(cookie_of(scope, self.cookie), self._secret) else None

    async def _enter(self, request: Request) -> Response:
        if self._spent or not same_secret(request.query_params.get("token", ""), self._one_time):
            return refused_token()
        self._spent = True
        return entered(self.cookie, self._secret, secure=False)

    async def _index(self, request: Request) -> Response:
        return page_answer(self._page, "app.html")

    async def _file(self, request: Request) -> Response:
        return page_answer(self._page, request.path_params["name"])

    async def _state(self, request: Request) -> Response:
        return await _answered(self._work.state)

    async def _cases(self, request: Request) -> Response:
        return await _answered(lambda: self._work.results().cases())

    async def _upload(self, request: Request) -> Response:
        content, name = await request.body(), request.query_params.get("name", "")
        return await self._done(lambda: self._work.keep_labels(name, content))

    async def _act(self, request: Request) -> Response:
        try:
            content = json.loads(await request.body(), parse_constant=refuse_constant)
        except (ValueError, RecursionError):
            return error_answer("The request is not valid.", 400)
        if not isinstance(content, dict):
            return error_answer("The request is not valid.", 400)
        action, work = request.path_params["action"], self._work
        if action == "folders":
            return await _answered(lambda: list_folder(folder_at(_text(content, "path") or "~")))
        actions: dict[str, Callable[[], None]] = {
            "images": lambda: work.choose_images(_text(content, "path")),
            "models": lambda: work.look_for_models(_text(content, "path")),
            "model": lambda: work.choose_model(_text(content, "path")),
            "results": lambda: work.choose_results(_text(content, "path")),
            "labels": lambda: work.describe_labels(
                _text(content, "label"),
                _text(content, "image"),
                _text(content, "words"),
                content.get("drop_seen") is True,
            ),
            "start": lambda: work.start(_text(content, "step")),
            "stop": work.steps.stop,
            "read": work.read,
            "stop-reading": work.reading.stop,
            "close": self._close,
        }
        if action not in actions:
            return error_answer("There is no such action.", 404)
        return await self._done(actions[action])

    async def _done(self, act: Callable[[], None]) -> Response:
        """Do something, and answer the new state."""

        def done() -> Record:
            act()
            return self._work.state()

        return await _answered(done)

    async def _document(self, request: Request) -> Response:
        try:
            pages = await run_in_threadpool(lambda: self._work.results().documents())
        except UsvitError:
            pages = {}
        path = pages.get(request.path_params["name"])
        return await not_found(request, KeyError()) if path is None else FileResponse(path, headers=_DOCUMENT)

    async def _workbook(self, request: Request) -> Response:
        name = request.path_params["name"]
        try:
            content = await run_in_threadpool(lambda: self._work.results().workbook(name))
        except UsvitError as error:
            return error_answer(str(error), 422)
        if content is None:
            return await not_found(request, KeyError())
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}.xlsx"}
        return Response(content, media_type=_XLSX, headers=headers)


async def _answered(make: Callable[[], Record]) -> Response:
    try:
        return JSONResponse((await run_in_threadpool(make)).content())
    except UsvitError as error:
        return error_answer(str(error), 422)


def _text(content: dict[str, Any], name: str) -> str:
    value = content.get(name, "")
    if not isinstance(value, str) or len(value) > 4096:
        raise UsvitError(f"The request has no valid {name}.")
    return value
