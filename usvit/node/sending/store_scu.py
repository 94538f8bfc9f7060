"""C-STORE as a service class user: sends DICOM files to an application entity, with or without TLS."""

import logging
import ssl
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

import pynetdicom
from pydicom import dcmread
from pydicom.uid import UID, ExplicitVRLittleEndian, ImplicitVRLittleEndian
from pynetdicom import AE, evt
from pynetdicom.association import Association
from pynetdicom.presentation import PresentationContext, build_context
from pynetdicom.sop_class import StorageCommitmentPushModel, Verification  # type: ignore[attr-defined]

from usvit.errors import UsvitError
from usvit.files import TEXT_BYTES, open_regular
from usvit.node.bounded_association import AssociationLimits, client_handlers
from usvit.node.config.settings import NodeTlsConfig, PeerConfig
from usvit.node.sending.answers import Answer, Outgoing, PeerUnavailable

_MOST_CONTEXTS = 127
"""Presentation contexts of one association (128, PS3.8 9.3.2), one of which is left to storage commitment."""
_MOST_WAITING = 200
"""Answers of an AE that may wait to be handled; more are left in the network."""
_PLAIN = (ExplicitVRLittleEndian, ImplicitVRLittleEndian)
_REJECTED = {
    (1, 1): "it rejects the association without a reason",
    (1, 2): "it does not support the application context",
    (1, 3): "it does not recognise the calling AE title",
    (1, 7): "it does not recognise the called AE title",
    (3, 1): "it is busy",
    (3, 2): "its limit of associations is reached",
}


class StoreScu:
    """An association with an AE; a context manager.

    It proposes only the SOP classes and transfer syntaxes of the files. Files in plain little endian may also be sent
    as implicit VR, which every AE must accept; the bytes of other files are sent as they are.

    Args:
        peer: an AE.
        files: the files that will be sent.
        calling: our AE title.
        commitment: also propose storage commitment.
        on_event_report: handles N-EVENT-REPORT on this association.

    Raises:
        PeerUnavailable: when the context is entered.
        UsvitError: a file of ``tls`` cannot be used.
    """

    def __init__(
        self,
        peer: PeerConfig,
        files: Iterable[Outgoing],
        *,
        calling: str = "USVIT",
        commitment: bool = False,
        on_event_report: Callable[[evt.Event], tuple[int, Any]] | None = None,
    ):
        self._peer, self._contexts, self._calling = peer, _contexts_of(files), calling
        if commitment:
            self._contexts.append(build_context(StorageCommitmentPushModel))
        self._handlers = [] if on_event_report is None else [(evt.EVT_N_EVENT_REPORT, on_event_report)]
        self._association: Association | None = None
        self._n_sent = 0

    def __enter__(self) -> Self:
        self._association = associate(self._peer, self._contexts, self._calling, self._handlers)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end(self._association)

    @property
    def association(self) -> Association:
        assert self._association is not None
        return self._association

    def send(self, outgoing: Outgoing) -> Answer:
        """Send a file and wait for the answer.

        Raises:
            PeerUnavailable: the association ended, or no answer came in time. The peer may have stored the object.
            OSError: the file cannot be read.
        """
        association = self.association
        if not association.is_established:
            raise PeerUnavailable("the association has ended")
        accepted = {
            str(context.transfer_syntax[0])
            for context in association.accepted_contexts
            if context.abstract_syntax == outgoing.sop_class_uid
        }
        self._n_sent = self._n_sent % 65535 + 1
        try:
            if outgoing.transfer_syntax_uid in accepted:
                found = association.send_c_store(outgoing.path, msg_id=self._n_sent)
            elif accepted and outgoing.transfer_syntax_uid in _PLAIN:
                found = association.send_c_store(dcmread(outgoing.path), msg_id=self._n_sent)
            else:
                name = UID(outgoing.sop_class_uid).name if UID(outgoing.sop_class_uid).is_valid else "this SOP class"
                return Answer(None, error=f"it does not accept {name} in the transfer syntax of the file")
        except (ValueError, AttributeError) as error:
            return Answer(None, error=f"the file cannot be sent ({type(error).__name__})")
        except RuntimeError as error:  # the association ended meanwhile
            raise PeerUnavailable("the association has ended") from error
        if "Status" not in found:
            raise PeerUnavailable("it ended the association, or did not answer in time")
        return Answer.of_status(int(found.Status))


def _contexts_of(files: Iterable[Outgoing]) -> list[PresentationContext]:
    """Return the presentation contexts for the files: one for each SOP class and transfer syntax.

    Those beyond ``_MOST_CONTEXTS`` are left out; ``fits_one_association`` tells how many files that many can carry.
    """
    pairs = dict.fromkeys((one.sop_class_uid, one.transfer_syntax_uid) for one in files)
    return [
        build_context(sop_class, list(dict.fromkeys([syntax, *_PLAIN])) if syntax in _PLAIN else [syntax])
        for sop_class, syntax in pairs
    ][:_MOST_CONTEXTS]


def fits_one_association(files: Sequence[Outgoing]) -> int:
    """Return the number of leading files for which one association has enough presentation contexts."""
    pairs = set()
    for number, one in enumerate(files):
        pairs.add((one.sop_class_uid, one.transfer_syntax_uid))
        if len(pairs) > _MOST_CONTEXTS:
            return number
    return len(files)


def associate(
    peer: PeerConfig,
    contexts: list[PresentationContext],
    calling: str,
    handlers: Sequence[Any] = (),
    roles: Sequence[Any] = (),
    max_instance_bytes: int = 0,
) -> Association:
    """Open an association with an AE.

    Args:
        peer: the AE.
        contexts: presentation contexts to propose.
        calling: our AE title.
        handlers: event handlers of pynetdicom.
        roles: role selections, for C-GET.
        max_instance_bytes: largest instance that the AE may send back, for C-GET.

    Raises:
        PeerUnavailable: it cannot be reached, or refuses.
        UsvitError: a file of ``tls`` cannot be used.
    """
    assert peer.host is not None and peer.port is not None and peer.ae_title is not None
    logging.getLogger("pynetdicom").setLevel(logging.CRITICAL + 1)  # it logs UIDs
    pynetdicom._config.STORE_SEND_CHUNKED_DATASET = True  # send the bytes of the file, and do not read all of it
    entity = AE(ae_title=calling)
    entity.acse_timeout = entity.dimse_timeout = entity.network_timeout = peer.timeout_seconds
    entity.connection_timeout = peer.timeout_seconds
    limits = AssociationLimits(max_instance_bytes, peer.timeout_seconds, most_waiting=_MOST_WAITING, throttles=True)
    tls = None if peer.tls is None else (tls_of_peer(peer.tls), peer.tls.server_name or peer.host)
    association = entity.associate(
        peer.host,
        peer.port,
        contexts=contexts,
        ae_title=peer.ae_title,
        evt_handlers=[*client_handlers(limits), *handlers],
        ext_neg=list(roles) or None,
        tls_args=tls,
    )
    if association.is_established:
        return association
    if association.is_rejected:
        reply = association.acceptor.primitive
        reason = (getattr(reply, "result_source", 0), getattr(reply, "diagnostic", 0))
        raise PeerUnavailable(_REJECTED.get(reason, "it rejects the association"))
    if association.acceptor.primitive is not None and not association.accepted_contexts:
        raise PeerUnavailable("it accepts none of the SOP classes")
    raise PeerUnavailable("it cannot be reached, or TLS with it fails" if tls else "it cannot be reached")


def end(association: Association | None) -> None:
    """Release an association, or abort it if that is not possible."""
    if association is None:
        return
    association.usvit_ended = True  # type: ignore[attr-defined]
    if association.is_established:
        association.release()
    if not (association.is_released or association.is_aborted):
        association.abort()


def abandon(association: Association) -> None:
    """Abort an association whose peer does not keep to the limits."""
    association.usvit_ended = True  # type: ignore[attr-defined]
    association.abort()


def echo(peer: PeerConfig, calling: str = "USVIT") -> None:
    """Send C-ECHO to an AE.

    Raises:
        PeerUnavailable: it does not answer with Success.
        UsvitError: a file of ``tls`` cannot be used.
    """
    association = associate(peer, [build_context(Verification)], calling)
    try:
        found = association.send_c_echo()
        if found.get("Status") != 0:
            raise PeerUnavailable("it does not answer C-ECHO")
    finally:
        end(association)


def tls_of_peer(settings: NodeTlsConfig) -> ssl.SSLContext:
    """Return the TLS context for an association; the certificate of the peer is always checked.

    Raises:
        UsvitError: a file is missing, or is no certificate or key.
    """
    try:
        for path in filter(None, (settings.ca, settings.certificate, settings.private_key)):
            open_regular(path, TEXT_BYTES).close()  # OpenSSL would wait for a FIFO, or read a file of any size
        context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=settings.ca)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if settings.certificate is not None:
            context.load_cert_chain(settings.certificate, settings.private_key, password=_no_pass_phrase)
    except OSError as error:  # ssl.SSLError is one
        named = ", ".join(str(one) for one in (settings.ca, settings.certificate, settings.private_key) if one)
        why = error.strerror if type(error) is not ssl.SSLError and error.strerror else "not valid PEM"
        raise UsvitError(
            f"TLS cannot be set up with the files {named}: {why}. Give certificates and a key as PEM, the key without "
            "a pass phrase."
        ) from error
    return context


def _no_pass_phrase() -> str:
    return ""  # instead of asking on the terminal
