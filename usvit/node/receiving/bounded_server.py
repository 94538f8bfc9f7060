"""A server of associations that bounds their number, and reads from them within limits.

A TLS handshake is made by the thread of its association, so that it does not keep others waiting.
"""

import socket
from collections.abc import Callable
from ipaddress import ip_address
from typing import Any, cast

from pynetdicom.transport import RequestHandler, ThreadedAssociationServer

from usvit.node.bounded_association import AssociationLimits, BoundedSocket
from usvit.node.config.settings import AllowedSender, ReceiveConfig

_SPARE = 8
"""Connections beyond ``max_associations``, which are told that there are too many; further ones are closed at once."""


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
        self.socket_class = BoundedSocket.of(limits_of(limits))
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
        if len(self.active_associations) >= self.limits.max_associations + _SPARE:
            self.refused("connections", "")
            return False
        return True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not print the traceback of a connection that failed; it would name the peer."""


def limits_of(settings: ReceiveConfig) -> AssociationLimits:
    """Return the limits of associations that others open."""
    return AssociationLimits(
        settings.max_instance_mb << 20, settings.idle_seconds, settings.max_pdu_kb, settings.min_bytes_per_second
    )


def may_send(allow: tuple[AllowedSender, ...], ae_title: str, address: str) -> bool:
    """Return whether an entry of the allow-list fits both the AE title and the address of a peer."""
    return any(one.ae_title in (None, ae_title) and _address_fits(one, address) for one in allow)


def _address_fits(one: AllowedSender, address: str) -> bool:
    return one.network is None or ip_address(address.partition("%")[0]) in one.network
