"""Peers that redirect, never end, or send a byte now and then, over HTTP and over DICOM; loopback only.

The suite ``peers`` and the tests start them; nothing of the package knows them.
"""

import contextlib
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

CHUNK = b"x" * (1 << 16)
"""Content of answers that never end."""
FIND_CLASS = "1.2.840.10008.5.1.4.1.2.2.1"


@contextlib.contextmanager
def serving(handle: Callable[[socket.socket, threading.Event], None]) -> Iterator[int]:
    """Answer each connection by ``handle`` in a thread until the block ends, and yield the port."""
    over = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with contextlib.suppress(OSError):
                handle(self.request, over)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        allow_reuse_address = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            over.set()
            server.shutdown()


def _request(connection: socket.socket) -> bytes:
    """Read a request up to the end of its header, and what of its body has come."""
    found = b""
    while b"\r\n\r\n" not in found and (chunk := connection.recv(1 << 16)):
        found += chunk
    return found


def http_peer(kind: str, location: str = "", content_type: str = "application/dicom+json") -> Callable[..., None]:
    """Return a handler of HTTP requests that misbehaves.

    Args:
        kind: ``redirect``, ``endless`` (chunked), ``endless_header``, ``drip`` (a byte every 0.2 s), ``drip_header``,
            ``bomb`` (compressed), ``pages`` (the same page again and again), ``lies`` (a Content-Length that is not
            true) or ``silent``.
        location: target of the redirect.
        content_type: kind of the answer.
    """
    import gzip

    bomb = gzip.compress(b"[" + b" " * 50_000_000 + b"]")
    page = b'[{"0020000D": {"vr": "UI", "Value": ["1.2.3"]}, "00080018": {"vr": "UI", "Value": ["1.2.3.4"]}}]'

    def handle(connection: socket.socket, over: threading.Event) -> None:
        if not _request(connection):
            return
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\n".encode()
        if kind == "redirect":
            connection.sendall(f"HTTP/1.1 307 X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode())
        elif kind == "endless":
            connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
            while not over.is_set():
                connection.sendall(b"%x\r\n%b\r\n" % (len(CHUNK), CHUNK))
        elif kind == "endless_header":
            connection.sendall(head)
            while not over.is_set():
                connection.sendall(b"X-A: " + b"y" * 1000 + b"\r\n")
        elif kind in ("drip", "drip_header"):
            connection.sendall(head + (b"Content-Length: 100000\r\n\r\n" if kind == "drip" else b"X-A: "))
            while not over.wait(0.2):
                connection.sendall(b" ")
        elif kind == "bomb":
            connection.sendall(head + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(bomb), bomb))
        elif kind == "pages":
            connection.sendall(head + b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(page), page))
        elif kind == "lies":
            connection.sendall(head + b"Content-Length: 1000000000000\r\n\r\n[")
        else:
            over.wait()

    return handle


def dicom_peer(kind: str) -> Callable[..., None]:
    """Return a handler of associations that accepts them, and misbehaves after the first message.

    Args:
        kind: ``endless`` (matches of C-FIND), ``fragments`` (one message that never ends), ``drip`` (a PDU of which a
            byte comes every 0.2 s), ``slow_matches`` (one every 0.4 s), ``huge`` (a PDU of 4 GB), ``silent``.
    """

    def handle(connection: socket.socket, over: threading.Event) -> None:
        _accept(connection)
        connection.recv(1 << 16)
        if kind == "endless":
            one = b"".join(_find_response(0xFF00))
            while not over.is_set():
                connection.sendall(one * 50)
        elif kind == "slow_matches":
            while not over.wait(0.4):
                connection.sendall(b"".join(_find_response(0xFF00)))
        elif kind == "fragments":
            command, _ = _find_response(0xFF00)
            connection.sendall(command)
            fragment = _pdata(b"\0" * 16_000, 0)
            while not over.is_set():
                connection.sendall(fragment)
        elif kind == "drip":
            connection.sendall(struct.pack(">BBL", 4, 0, 10_000))
            while not over.wait(0.2):
                connection.sendall(b"\0")
        elif kind == "huge":
            connection.sendall(struct.pack(">BBL", 4, 0, 0xFFFFFFF0))
            while not over.is_set():
                connection.sendall(CHUNK)
        else:
            over.wait()

    return handle


def _accept(connection: socket.socket) -> None:
    """Accept the first presentation context of an A-ASSOCIATE-RQ in implicit VR little endian."""
    from pynetdicom.pdu import A_ASSOCIATE_AC, A_ASSOCIATE_RQ

    head = connection.recv(6, socket.MSG_WAITALL)
    if len(head) < 6:  # the client only looks whether somebody listens
        raise ConnectionResetError
    body = connection.recv(struct.unpack(">L", head[2:])[0], socket.MSG_WAITALL)
    request = A_ASSOCIATE_RQ()
    request.decode(head + body)
    asked: Any = request.to_primitive()
    for one in asked.presentation_context_definition_list:
        one.result = 0
        one.transfer_syntax = ["1.2.840.10008.1.2"]
    asked.presentation_context_definition_results_list = asked.presentation_context_definition_list
    asked.result, asked.result_source = 0, 1
    answer = A_ASSOCIATE_AC()
    answer.from_primitive(asked)
    connection.sendall(answer.encode())


def _pdata(content: bytes, flags: int) -> bytes:
    """Return a P-DATA-TF of one fragment in presentation context 1; flag 1: of a command, 2: the last one."""
    item = struct.pack(">LBB", len(content) + 2, 1, flags) + content
    return struct.pack(">BBL", 4, 0, len(item)) + item


def _find_response(status: int) -> tuple[bytes, bytes]:
    """Return the command and the data set of a C-FIND-RSP with one match."""
    uid = f"1.2.3.{time.monotonic_ns()}".encode()
    uid += b"\0" * (len(uid) % 2)
    sop_class = FIND_CLASS.encode() + b"\0" * (len(FIND_CLASS) % 2)
    elements = [
        struct.pack("<HHL", 0, 0x0002, len(sop_class)) + sop_class,
        struct.pack("<HHLH", 0, 0x0100, 2, 0x8020),
        struct.pack("<HHLH", 0, 0x0120, 2, 1),
        struct.pack("<HHLH", 0, 0x0800, 2, 1),
        struct.pack("<HHLH", 0, 0x0900, 2, status),
    ]
    command = b"".join(elements)
    command = struct.pack("<HHLL", 0, 0, 4, len(command)) + command
    data = struct.pack("<HHL", 0x0020, 0x000D, len(uid)) + uid
    return _pdata(command, 3), _pdata(data, 2)
