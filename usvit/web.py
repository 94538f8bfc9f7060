"""The policy for HTTP answers: limited size and time, and no redirect to another server.

Every HTTP client of the package reads through the connections of ``bounded_connection``, whichever library it uses, so
that no server can fill the memory or the disk, keep a command waiting by sending a byte now and then, or lead it to
another server.
"""

import base64
import http.client
import io
import time
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from typing import IO, Any
from urllib.parse import unquote, urlsplit, urlunsplit

BYTES_PER_SECOND = 10_000.0
"""Lowest mean rate of an answer or a request, beyond its first seconds."""
_HEADER_BYTES = 1 << 16
_PIECE = 1 << 16


@dataclass(frozen=True)
class WebLimits:
    """What an answer may take."""

    max_bytes: int
    """Size of its body."""
    seconds: float
    """Time for request and answer, beyond that of their bytes at ``bytes_per_second``."""
    bytes_per_second: float = BYTES_PER_SECOND


class AnswerRefused(OSError):
    """An answer exceeds the limits, or leads to another server. The text is our own."""


class RedirectRefused(AnswerRefused):
    """An answer leads to another server."""


class _Budget:
    """Bytes and time of one exchange."""

    def __init__(self, limits: WebLimits):
        self._limits, self._n_bytes, self._start = limits, 0, time.monotonic()

    def seconds_left(self, most: float | None) -> float:
        """Return the seconds that the next step may take, at most ``most``.

        Raises:
            AnswerRefused: the time is over.
        """
        allowed = self._limits.seconds + self._n_bytes / self._limits.bytes_per_second
        left = self._start + allowed - time.monotonic()
        if left <= 0:
            raise AnswerRefused("the answer comes too slowly")
        return left if most is None else min(left, most)

    def take(self, n_bytes: int, *, received: bool = True) -> None:
        self._n_bytes += n_bytes
        if received and self._n_bytes > self._limits.max_bytes + _HEADER_BYTES:
            raise AnswerRefused(f"the answer has more than {self._limits.max_bytes:,} bytes")


class _BoundedReader(io.RawIOBase):
    """The bytes of an answer, as they come from the socket."""

    def __init__(self, raw: Any, connection: Any, budget: _Budget):
        self._raw, self._socket, self._budget = raw, connection, budget
        self._timeout = connection.gettimeout()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(self._budget.seconds_left(self._timeout))
        try:
            n_bytes = self._raw.readinto(buffer) or 0
        except TimeoutError:
            self._budget.seconds_left(None)  # tells whether the exchange or one step took too long
            raise
        self._budget.take(n_bytes)
        return n_bytes

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
            super().close()


def bounded_connection(base: Any, limits: WebLimits) -> Any:
    """Return a subclass of a connection whose requests and answers keep to limits.

    Args:
        base: ``http.client.HTTPConnection`` or a subclass, such as those of urllib3.
        limits: what each exchange may take. Beyond it, reads and writes raise ``AnswerRefused``.
    """

    class BoundedConnection(base):
        _budget: _Budget

        def connect(self) -> None:
            self._budget = _Budget(limits)  # before a proxy is asked for a tunnel
            super().connect()

        def putrequest(self, *args: Any, **options: Any) -> Any:
            self._budget = _Budget(limits)
            return super().putrequest(*args, **options)

        def send(self, data: Any) -> None:
            if not isinstance(data, bytes | bytearray | memoryview):
                super().send(data)
                return
            if self.sock is None and self.auto_open:
                self.connect()
            view, usual = memoryview(data), self.sock.gettimeout()
            for start in range(0, max(len(view), 1), _PIECE):
                self.sock.settimeout(self._budget.seconds_left(usual))
                super().send(view[start : start + _PIECE])
                self._budget.take(len(view[start : start + _PIECE]), received=False)
            self.sock.settimeout(usual)
            self._budget = _Budget(limits)  # of the answer, or of the next part of the request

        def response_class(self, sock: Any, *args: Any, **options: Any) -> http.client.HTTPResponse:
            answer = http.client.HTTPResponse(sock, *args, **options)
            answer.fp = io.BufferedReader(_BoundedReader(answer.fp.detach(), sock, self._budget))
            return answer

    return BoundedConnection


def open_url(
    url: str, limits: WebLimits, *, headers: Mapping[str, str] | None = None, method: str = "GET", timeout: float
) -> http.client.HTTPResponse:
    """Open an address; redirects are followed on the same server only.

    Args:
        url: the address, possibly with ``name:password@``.
        limits: what the answer may take.
        headers: further headers of the request.
        method: method of the request.
        timeout: seconds without data after which the connection counts as broken.

    Raises:
        RedirectRefused: the answer leads to another server.
        OSError: the server cannot be reached (``urllib.error.URLError``), or answers with an error (``HTTPError``).
    """

    class Http(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(bounded_connection(http.client.HTTPConnection, limits), request)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
            connection = bounded_connection(http.client.HTTPSConnection, limits)
            return self.do_open(connection, request, context=self._context)  # type: ignore[attr-defined]

    parts, secret = urlsplit(url), dict[str, str]()
    user, at, server = parts.netloc.rpartition("@")
    if at:
        url = urlunsplit(parts._replace(netloc=server))
        secret["Authorization"] = f"Basic {base64.b64encode(unquote(user).encode()).decode()}"
    request = urllib.request.Request(url, headers={**secret, **(headers or {})}, method=method)
    opener = urllib.request.build_opener(Http, Https, _SameServer)
    answer: http.client.HTTPResponse = opener.open(request, timeout=timeout)
    return answer


def same_server(first: str, second: str) -> bool:
    """Return whether two addresses have the same scheme, host and port."""
    return _server(first) == _server(second)


def _server(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


class _SameServer(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        if not same_server(req.full_url, newurl):
            host = urlsplit(newurl).hostname
            raise RedirectRefused(f"the server leads to another one ({host}), and redirects to others are not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]
