"""The read-only status page of a node: ``/``, ``/metrics`` for Prometheus and ``/healthz``.

It runs in threads of the supervisor. It answers GET and HEAD of these three paths and nothing else, and shows counts,
states, names of the configuration and pseudonyms. Only requests that name this machine in their ``Host`` header are
answered, so that a web page that somebody opens in a browser cannot read the status by DNS rebinding.
"""

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from usvit.errors import UsvitError
from usvit.node.config.settings import NodeConfig
from usvit.node.page import node_page
from usvit.node.records import NodeStatusRecord
from usvit.node.watching.prometheus import CONTENT_TYPE, prometheus_text
from usvit.node.watching.status import read_status

_REQUEST_SECONDS = 5.0
"""Time in which a request must have arrived, and in which its answer must be taken."""
_MOST_CONNECTIONS = 32
"""Connections at the same time. One more ends the oldest, which has had the time for many requests."""
_FRESH_SECONDS = 1.0
"""Time for which a status is shown again instead of being read from the database."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Connection": "close",
}


@contextmanager
def status_page(config: NodeConfig) -> Iterator[tuple[str, int]]:
    """Serve the status page while the block runs, and yield its address and port.

    Raises:
        UsvitError: the port is in use.
    """
    assert config.status is not None
    try:
        server = _Server(config)
    except OSError as error:
        raise UsvitError(
            f"The status page cannot listen at {config.status.host}:{config.status.port} (status.port). Choose another."
        ) from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True, name="status")
    thread.start()
    try:
        yield server.server_address[0], server.server_address[1]  # type: ignore[misc]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, config: NodeConfig):
        assert config.status is not None
        self.config = config
        self._open: dict[int, socket.socket] = {}
        """Connections, oldest first."""
        self._connections = threading.Lock()
        self._lock = threading.Lock()
        self._status: NodeStatusRecord | None = None
        self._read_at = 0.0
        family, _, _, _, address = socket.getaddrinfo(config.status.host, config.status.port, type=socket.SOCK_STREAM)[
            0
        ]
        self.address_family = family
        super().__init__(address[:2], _Handler)  # type: ignore[arg-type]

    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = "usvit", self.server_address[1]  # without a look-up of the name

    def status(self) -> NodeStatusRecord:
        """Return the status, at most ``_FRESH_SECONDS`` old."""
        with self._lock:
            if self._status is None or time.monotonic() - self._read_at > _FRESH_SECONDS:
                self._status = read_status(self.config.folder, self.config)
                self._read_at = time.monotonic()
            return self._status

    def process_request(self, request: Any, client_address: Any) -> None:
        """Make room for the connection: idle ones must not keep a monitor from its answer."""
        with self._connections:
            while len(self._open) >= _MOST_CONNECTIONS:
                _cut(self._open.pop(next(iter(self._open))))
            self._open[id(request)] = request
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        end = threading.Timer(2 * _REQUEST_SECONDS, _cut, (request,))
        end.daemon = True
        end.start()
        try:
            super().process_request_thread(request, client_address)
        finally:
            end.cancel()
            with self._connections:
                self._open.pop(id(request), None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that goes away is no event, and a log must not quote requests."""


def _cut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _REQUEST_SECONDS
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "usvit", ""

    def do_GET(self) -> None:
        if not self._names_this_machine():
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "Use the address of this machine.\n")
            return
        try:
            if self.path == "/":
                self._answer(HTTPStatus.OK, node_page(self.server.status()), "text/html; charset=utf-8")
            elif self.path == "/metrics":
                self._answer(HTTPStatus.OK, prometheus_text(self.server.status()), CONTENT_TYPE)
            elif self.path == "/healthz":
                sick = [one.name for one in self.server.status().processes if not one.alive]
                state = HTTPStatus.SERVICE_UNAVAILABLE if sick else HTTPStatus.OK
                self._answer(state, f"not running: {', '.join(sick)}\n" if sick else "ok\n")
            else:
                self._answer(HTTPStatus.NOT_FOUND, "There are /, /metrics and /healthz.\n")
        except (UsvitError, OSError):
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, "The status cannot be read.\n")

    do_HEAD = do_GET

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer an error in our own words; the request is not quoted."""
        if code == HTTPStatus.NOT_IMPLEMENTED:  # the name of http.server for a method that is not served
            code = HTTPStatus.METHOD_NOT_ALLOWED
        self._answer(HTTPStatus(code), "Only GET and HEAD are served.\n" if code == 405 else "Bad request.\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a request may hold anything."""

    def _names_this_machine(self) -> bool:
        hosts = self.headers.get_all("Host", [])
        if len(hosts) != 1:
            return False
        host = hosts[0].strip().lower()
        name = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        assert self.server.config.status is not None
        if name in ("localhost", socket.gethostname().lower(), self.server.config.status.host.lower()):
            return True
        try:
            ipaddress.ip_address(name)  # an address is resolved by nobody
        except ValueError:
            return False
        return True

    def _answer(self, state: HTTPStatus, body: str | bytes, kind: str = "text/plain; charset=utf-8") -> None:
        content = body.encode() if isinstance(body, str) else body
        self.close_connection = True
        self.send_response(state)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if state == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
