"""Limits on what the other side of an association can make this one hold: PDUs, messages, and the time for them.

pynetdicom reads as many bytes as the length of a PDU claims, joins as many fragments as a message has, and keeps as
many messages as arrive, for as long as the other side likes. The receiver and all clients use the limits of this file.
"""

import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from pynetdicom import evt
from pynetdicom.transport import AssociationSocket

OVERHEAD = 1 << 16
"""Bytes that a PDU may have beyond the agreed size: requests of associations with many presentation contexts."""
_SMALL = 1 << 20
"""Largest message without an image, in bytes."""


@dataclass(frozen=True)
class AssociationLimits:
    """What one association may take."""

    max_instance_bytes: int
    """Size of a message with an image."""
    idle_seconds: float
    """Time for a PDU or a message, beyond that of its bytes at ``min_bytes_per_second``."""
    max_pdu_kb: int = 128
    """Size of a PDU."""
    min_bytes_per_second: float = 1000.0
    """Lowest mean rate; 0 for none."""
    most_waiting: int = 4
    """Messages that may wait to be handled."""
    throttles: bool = False
    """Whether an association with more waiting messages is not read until there are fewer, instead of ended."""

    def seconds(self, n_bytes: int) -> float:
        """Return the time that ``n_bytes`` may take."""
        return self.idle_seconds + (n_bytes / self.min_bytes_per_second if self.min_bytes_per_second else 0.0)


class BoundedSocket(AssociationSocket):
    """The socket of an association, which refuses PDUs that are too large or arrive too slowly."""

    limits: AssociationLimits

    @classmethod
    def of(cls, limits: AssociationLimits) -> "type[BoundedSocket]":
        """Return the class with limits; it is set as the class of a socket that pynetdicom has made."""
        return type("LimitedSocket", (cls,), {"limits": limits})

    def recv(self, nr_bytes: int) -> bytearray:
        """Read bytes of a PDU; fewer if the peer closes the connection.

        Raises:
            OSError: the PDU is too large, or does not arrive in time. pynetdicom then closes the connection.
        """
        connection = cast(socket.socket, self.socket)
        if nr_bytes > self.limits.max_pdu_kb * 1024 + OVERHEAD:
            raise OSError("the PDU is too large")
        start = time.monotonic()
        found = bytearray(nr_bytes)
        view, done = memoryview(found), 0
        while done < nr_bytes:
            left = start + self.limits.seconds(done) - time.monotonic()
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


class BoundedMessages:
    """Ends an association whose message is too large or too slow, or that sends more than is handled.

    Args:
        limits: the limits.
        refused: called with a reason and the event before an association is ended.
    """

    def __init__(self, limits: AssociationLimits, refused: Callable[[str, evt.Event], None] | None = None):
        self._limits, self._refused = limits, refused

    @property
    def handlers(self) -> list[Any]:
        """Event handlers for pynetdicom."""
        return [
            (evt.EVT_ACCEPTED, self._on_accepted),
            (evt.EVT_DATA_RECV, self._on_data),
            (evt.EVT_DIMSE_RECV, self._on_message),
        ]

    def _on_accepted(self, event: evt.Event) -> None:
        event.assoc.usvit_arriving = _Arriving()  # type: ignore[attr-defined]

    def _on_data(self, event: evt.Event) -> None:
        association, limits = event.assoc, self._limits
        arriving: _Arriving | None = getattr(association, "usvit_arriving", None)
        if arriving is None:
            return
        if arriving.n_bytes == 0:
            arriving.since = time.monotonic()
        arriving.n_bytes += len(event.data)
        message = association.dimse.message
        holds_image = message is not None and message._data_set_file is not None
        largest = limits.max_instance_bytes if holds_image else _SMALL + (limits.max_pdu_kb << 10)
        slow = limits.min_bytes_per_second and time.monotonic() - arriving.since > limits.seconds(arriving.n_bytes)
        waiting = association.dimse.msg_queue.qsize() > limits.most_waiting and not self._throttled(association)
        if arriving.n_bytes > largest or slow or waiting:
            reason = "slow" if slow else "size" if arriving.n_bytes > largest else "no_waiting"
            if self._refused is not None:
                self._refused(reason, event)
            association.dul.event_queue.put("Evt19")  # invalid PDU: pynetdicom aborts the association

    def _throttled(self, association: Any) -> bool:
        """Wait until messages are handled; return False if they are not."""
        end = time.monotonic() + self._limits.idle_seconds
        while self._limits.throttles and time.monotonic() < end and not getattr(association, "usvit_ended", False):
            if association.dimse.msg_queue.qsize() <= self._limits.most_waiting:
                return True
            time.sleep(0.002)
        return False

    def _on_message(self, event: evt.Event) -> None:
        arriving: _Arriving | None = getattr(event.assoc, "usvit_arriving", None)
        if arriving is not None:
            arriving.n_bytes = 0


class _Arriving:
    """The message that arrives on an association."""

    def __init__(self) -> None:
        self.n_bytes, self.since = 0, 0.0


def client_handlers(limits: AssociationLimits) -> list[Any]:
    """Return event handlers that set the limits on an association that this side opens."""
    kind = BoundedSocket.of(limits)

    def on_open(event: evt.Event) -> None:
        event.assoc.dul.socket.__class__ = kind

    return [(evt.EVT_CONN_OPEN, on_open), *BoundedMessages(limits).handlers]
