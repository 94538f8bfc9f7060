"""What guards a page that this machine serves: names, a cookie, a header of the page, and a policy for the browser.

Requests must name the server by an address that was announced, so that no other page reaches it by DNS rebinding. All
but the entrance need the cookie that a token sets; those that change something must come from the page itself.
"""

import hmac
from collections.abc import Callable, Collection, Mapping
from http.cookies import CookieError, SimpleCookie
from importlib.resources import files
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

_MOST_BYTES = 64_000
"""Size of the body of a request that is no upload."""
_COOKIE_SECONDS = 180 * 24 * 3600
_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
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
_ENTER = (
    '<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0;url=/"><title>usvit</title>'
    '<link rel="icon" href="/page/icon.svg">'
)


class PageGuard:
    """Answers only requests of the page itself, with a valid cookie, and sets the headers of every answer."""

    def __init__(
        self,
        app: ASGIApp,
        origins: Collection[str],
        who: Callable[[Scope], str | None],
        *,
        advice: str,
        uploads: Mapping[str, int] | None = None,
    ):
        """Wrap an application.

        Args:
            app: what answers the requests that pass; ``request.state.who`` is their user.
            origins: scheme, host and port of each address by which the server may be called.
            who: returns the user of a request by its cookie (``cookie_of``), or None.
            advice: what is said to a request without a valid cookie.
            uploads: path -> most bytes, of the paths that take files as ``application/octet-stream``.
        """
        self._app, self._origins, self._who = app, origins, who
        self._advice, self._uploads = advice, uploads or {}

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
        most = self._uploads.get(scope["path"], _MOST_BYTES)
        body = await _bounded(receive, most) if scope["method"] == "POST" else b""
        if body is None:
            await error_answer(f"The request is too large (limit {most:,} bytes).", 413)(scope, receive, guarded)
            return
        await self._app(scope, _replayed(body, receive), guarded)

    def _refusal(self, scope: Scope) -> Response | None:
        headers: dict[bytes, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name, []).append(value.decode("latin-1"))
        hosts = headers.get(b"host", [])
        names = [origin.partition("//")[2] for origin in self._origins]
        if len(hosts) != 1 or hosts[0].strip().lower() not in names:
            return PlainTextResponse("Use the address that was announced.\n", 421)
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET, HEAD and POST are served.\n", 405)
        if scope["path"] == "/enter" and scope["method"] == "GET":
            return None
        if any(site not in ("same-origin", "none") for site in headers.get(b"sec-fetch-site", [])):
            return PlainTextResponse("Other pages get nothing from here.\n", 403)
        if any(origin not in self._origins for origin in headers.get(b"origin", [])):
            return PlainTextResponse("Other pages get nothing from here.\n", 403)
        who = self._who(scope)
        if who is None:
            return PlainTextResponse(self._advice, 403)
        if scope["method"] == "POST":
            wanted = "application/octet-stream" if scope["path"] in self._uploads else "application/json"
            kinds = [one.partition(";")[0].strip().lower() for one in headers.get(b"content-type", [])]
            if kinds != [wanted] or headers.get(b"x-usvit-review") != ["1"]:
                return PlainTextResponse("Only the page itself can change something.\n", 403)
        scope.setdefault("state", {})["who"] = who
        return None


def cookie_of(scope: Scope, name: str) -> str:
    """Return the value of a cookie of a request; '' if it has none."""
    value = ""
    for header, content in scope["headers"]:
        if header == b"cookie":
            try:
                morsel = SimpleCookie(content.decode("latin-1")).get(name)
            except CookieError:
                return ""
            value = morsel.value if morsel else value
    return value


def entered(cookie: str, value: str, *, secure: bool) -> Response:
    """Return the answer to a valid token: it sets a cookie that only this origin may send, and leads to the page."""
    response = HTMLResponse(_ENTER)
    response.set_cookie(cookie, value, max_age=_COOKIE_SECONDS, httponly=True, samesite="strict", secure=secure)
    return response


def refused_token() -> Response:
    """Return the answer to a token that is not valid."""
    return PlainTextResponse("This link is not valid, or was used before.\n", 403)


def page_files(*packages: str) -> dict[str, bytes]:
    """Return the files in the folder ``page`` of packages, by name; of two with one name, the later one."""
    found = [one for package in packages for one in files(package).joinpath("page").iterdir()]
    return {one.name: one.read_bytes() for one in found if one.name.endswith(tuple(_TYPES))}


def page_answer(pages: Mapping[str, bytes], name: str) -> Response:
    """Return a file of the page."""
    if name not in pages:
        return PlainTextResponse("There is no such page.\n", 404)
    return Response(pages[name], media_type=_TYPES["." + name.rpartition(".")[2]])


def same_secret(first: str, second: str) -> bool:
    """Return whether two texts are equal and not empty, in a time that does not tell where they differ."""
    return bool(first) and hmac.compare_digest(first.encode("utf-8", "replace"), second.encode())


def error_answer(text: str, state: int) -> JSONResponse:
    """Return an error that the page shows."""
    return JSONResponse({"error": text}, state)


def refuse_constant(name: str) -> None:
    """Refuse NaN and infinite numbers, as ``parse_constant`` of ``json.loads``."""
    raise ValueError(f"{name} is not JSON")


async def not_found(request: Request, error: Exception) -> Response:
    """Answer a path that is not served."""
    return PlainTextResponse("There is no such page.\n", 404)


async def _bounded(receive: Receive, most: int) -> bytes | None:
    """Return the body of a request; None if it is too large."""
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(parts)
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return None
        if not message.get("more_body"):
            return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return a channel that gives the body once, and then what the client sends."""
    first = [True]

    async def replay() -> Any:
        if first:
            first.clear()
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return replay
