"""A real HTTP server on this machine that can be told to misbehave."""

import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Reply:
    """One answer: by default a well-behaved server's."""

    body: bytes = b""
    status: int = 200
    ranges: bool = True
    """Whether ``Range`` is understood."""
    announce: int | None = None
    """A Content-Length that is not true."""
    breaks_after: int | None = None
    """Bytes that are sent before the connection is cut."""
    etag: str | None = None
    location: str | None = None


@dataclass
class FileServer:
    """Answers each path by its list of replies, one a request; the last one again and again."""

    replies: dict[str, list[Reply]] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, str]]] = field(default_factory=list)
    port: int = 0

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def serve(self, path: str, *replies: Reply) -> str:
        self.replies[path] = list(replies)
        return self.url(path)

    def __enter__(self) -> "FileServer":
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.answer(self)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append((request.path, dict(request.headers)))
        queue = self.replies.get(request.path, [Reply(b"not here", status=404)])
        reply = queue.pop(0) if len(queue) > 1 else queue[0]
        body, status, begin = reply.body, reply.status, 0
        wanted = request.headers.get("Range")
        same = request.headers.get("If-Range") in (None, reply.etag)
        if status == 200 and wanted and reply.ranges and same:
            begin = int(wanted.removeprefix("bytes=").rstrip("-"))
            status = 206 if begin < len(body) else 416
        request.send_response(status)
        if status == 206:
            request.send_header("Content-Range", f"bytes {begin}-{len(body) - 1}/{len(body)}")
        if reply.etag:
            request.send_header("ETag", reply.etag)
        if reply.location:
            request.send_header("Location", reply.location)
        rest = body[begin:] if status != 416 else b""
        announced = len(rest) if reply.announce is None else reply.announce - begin
        request.send_header("Content-Length", str(announced))
        request.end_headers()
        request.wfile.write(rest if reply.breaks_after is None else rest[: reply.breaks_after])
