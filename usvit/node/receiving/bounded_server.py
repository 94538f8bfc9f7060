"""A server of associations that bounds what a peer can make it hold: bytes of a PDU, time for it, connections.

pynetdicom reads as many bytes as the length of a PDU claims, for as long as the peer likes, and a TLS handshake keeps
it from accepting other connections. Here a PDU has a largest size and a time limit, and a handshake is made by the
thread of its association.
"""

import socket
import time
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, cast

from pynetdicom.transport import AssociationSocket, RequestHandler, ThreadedAssociationServer

from usvit.config.node import AllowedSender, ReceiveConfig

OVERHEAD = 1 << 16
"""Bytes that a PDU may have beyond the agreed size: requests of associations with many presentation contexts."""
SPARE = 8
"""Connections beyond ``max_associations``, which are told that there are too many; further ones are closed at once."""


class BoundedSocket(AssociationSocket):
    """The socket of an association, which refuses PDUs that are too large or arrive too slowly."""

    limits: ReceiveConfig

    def recv(self, nr_bytes: int) -> bytearray:
        """Read bytes of a PDU; fewer if the peer closes the connection.

        Raises:
            OSError: the PDU is too large, or does not arrive in time. pynetdicom then closes the connection.
        """
        connection = cast(socket.socket, self.socket)
        if nr_bytes > self.limits.max_pdu_kb * 1024 + OVERHEAD:
            raise OSError("the PDU is too large")
        rate = self.limits.min_bytes_per_second
        end = time.monotonic() + self.limits.idle_seconds + (nr_bytes / rate if rate else 0.0)
        found = bytearray(nr_bytes)
        view, done = memoryview(found), 0
        while done < nr_bytes:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError("the PDU arrives too slowly")
            connection.settimeout(left)
            count = connection.recv_into(view[done:])
            if not count:
                break
            done += count
        view.release()
        del found[done:]
        connection.settimeout(self.limits.idle_seconds)  # of the answers
        return found


class _BoundedHandler(RequestHandler):
    def _create_association(self) -> Any:
        association = super()._create_association()
        association.dul.socket.__class__ = cast(BoundedServer, self.server).socket_class
        return association


class BoundedServer(ThreadedAssociationServer):
    """Accepts connections from allowed addresses, up to a number of them, each in a thread of its own."""

    daemon_threads = True
    request_queue_size = 64
    limits: ReceiveConfig
    refused: Callable[[str, str], None]
    """Called with a reason and an AE title ("" if unknown) if a connection is refused."""

    def __init__(
        self,
        ae: Any,
        address: Any,
        ae_title: str,
        contexts: Any,
        ssl_context: Any = None,
        *,
        limits: ReceiveConfig,
        refused: Callable[[str, str], None],
        evt_handlers: Any = None,
    ):
        """Listen at the address; other arguments are those of ``AssociationServer``."""
        self.limits, self.refused = limits, refused
        self.socket_class = type("LimitedSocket", (BoundedSocket,), {"limits": limits})
        super().__init__(ae, address, ae_title, contexts, ssl_context, evt_handlers, _BoundedHandler)

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        """Accept a connection; a TLS handshake is left to the thread that reads from it."""
        client, address = cast(socket.socket, self.socket).accept()
        if self.ssl_context:
            client.settimeout(self.limits.idle_seconds)
            client = self.ssl_context.wrap_socket(client, server_side=True, do_handshake_on_connect=False)
        return client, address

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Return False for an address that nobody may send from, and if there are too many connections."""
        if not any(_address_fits(one, client_address[0]) for one in self.limits.allow):
            self.refused("address", "")
            return False
        if len(self.active_associations) >= self.limits.max_associations + SPARE:
            self.refused("connections", "")
            return False
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not print the traceback of a connection that failed; it would name the peer."""


def may_send(allow: tuple[AllowedSender, ...], ae_title: str, address: str) -> bool:
    """Return whether an entry of the allow-list fits both the AE title and the address of a peer."""
    return any(one.ae_title in (None, ae_title) and _address_fits(one, address) for one in allow)


def _address_fits(one: AllowedSender, address: str) -> bool:
    return one.network is None or ip_address(address.partition("%")[0]) in one.network
