"""Checks of one peer: reachable, certificate, AE titles, C-ECHO, SOP classes; or its DICOMweb service."""

import email.utils
import os
import socket
import ssl
import time
from collections.abc import Collection
from typing import Any

from pydicom.uid import (
    ComprehensiveSRStorage,
    ExplicitVRLittleEndian,
    GrayscaleSoftcopyPresentationStateStorage,
    ImplicitVRLittleEndian,
    SecondaryCaptureImageStorage,
)

from usvit.node.bounded_association import AssociationLimits, client_handlers
from usvit.node.config.settings import NodeConfig, PeerConfig
from usvit.node.records import FindingLevel, NodeFinding
from usvit.node.sending import dicomweb_session, http_status, tls_of_peer

CLASSES = {
    "sr": ("structured reports", ComprehensiveSRStorage),
    "sc": ("Secondary Captures", SecondaryCaptureImageStorage),
    "gsps": ("presentation states", GrayscaleSoftcopyPresentationStateStorage),
}
"""Output -> (its name, SOP class)."""
MOST_SECONDS = 10.0
"""Longest wait for a peer, whatever its timeout_seconds."""


def check_peer(
    name: str, peer: PeerConfig, config: NodeConfig, outputs: Collection[str]
) -> tuple[list[NodeFinding], float | None]:
    """Ask a peer whether it would take results.

    Args:
        name: its name in the configuration.
        peer: its settings.
        config: configuration of the node.
        outputs: kinds of results that rules send to it.

    Returns:
        The findings, and how many seconds the clock of this machine is ahead of that of the peer; None if it does not
        tell its time.
    """
    check = f"peer {name}"
    if peer.dicomweb is not None:
        level, text, clock = _check_dicomweb(name, peer)
        return [NodeFinding.of(check, level, text)], clock
    trouble = _check_connection(name, peer)
    if trouble is not None:
        return [NodeFinding.of(check, "fault", trouble)], None
    return [NodeFinding.of(check, level, text) for level, text in _check_association(name, peer, config, outputs)], None


def _check_connection(name: str, peer: PeerConfig) -> str | None:
    """Return what is wrong with the connection, or the certificate of the peer; None if nothing is."""
    assert peer.host is not None and peer.port is not None
    where = f"{peer.host}:{peer.port}"
    timeout = min(peer.timeout_seconds, MOST_SECONDS)
    try:
        connection = socket.create_connection((peer.host, peer.port), timeout=timeout)
    except socket.gaierror:
        return f"The name {peer.host} is not known. Correct peers.{name}.host, or write its address."
    except TimeoutError:
        return f"Nobody answers at {where} within {timeout:.0f} s. Check peers.{name}.host and the firewall in between."
    except OSError as error:
        return (
            f"Nobody listens at {where} ({os.strerror(error.errno or 0)}). Start the peer, or correct "
            f"peers.{name}.port."
        )
    if peer.tls is None:
        connection.close()
        return None
    server_name = peer.tls.server_name or peer.host
    try:
        with connection, tls_of_peer(peer.tls).wrap_socket(connection, server_hostname=server_name) as secure:
            secure.settimeout(timeout)
            return None
    except ssl.SSLCertVerificationError as error:
        return _certificate_trouble(name, error, server_name)
    except (ssl.SSLError, OSError):
        return (
            f"The peer at {where} does not speak TLS, or refuses our certificate. Remove peers.{name}.tls, "
            "or correct its "
            "port and certificate."
        )


def _certificate_trouble(name: str, error: ssl.SSLCertVerificationError, server_name: str) -> str:
    if error.verify_code in (62, 64):  # X509_V_ERR_HOSTNAME_MISMATCH, X509_V_ERR_IP_ADDRESS_MISMATCH
        return (
            f"The certificate of the peer is not made out for {server_name}. Set "
            f"peers.{name}.tls.server_name to the name "
            "in it, or get the peer a certificate for this name."
        )
    if error.verify_code in (9, 10):
        return (
            "The certificate of the peer has expired or is not valid yet. Renew it at the peer, or correct the clock."
        )
    return (
        f"The certificate of the peer is not signed by the authorities in peers.{name}.tls.ca "
        f"({error.verify_message}). "
        "Write the certificate of its authority into this file."
    )


def _check_association(
    name: str, peer: PeerConfig, config: NodeConfig, outputs: Collection[str]
) -> list[tuple[FindingLevel, str]]:
    from pynetdicom import AE
    from pynetdicom.sop_class import StorageCommitmentPushModel, Verification  # type: ignore[attr-defined]

    assert peer.host is not None and peer.port is not None and peer.ae_title is not None
    title = config.receive.ae_title if config.receive is not None else "USVIT"
    ae = AE(ae_title=title)
    ae.acse_timeout = ae.dimse_timeout = ae.network_timeout = min(peer.timeout_seconds, MOST_SECONDS)
    ae.add_requested_context(Verification)
    for kind in sorted(outputs):
        ae.add_requested_context(CLASSES[kind][1], [ExplicitVRLittleEndian, ImplicitVRLittleEndian])
    if peer.storage_commitment:
        ae.add_requested_context(StorageCommitmentPushModel)
    tls: Any = None if peer.tls is None else (tls_of_peer(peer.tls), peer.tls.server_name or peer.host)
    limits = AssociationLimits(0, min(peer.timeout_seconds, MOST_SECONDS))
    association = ae.associate(
        peer.host, peer.port, ae_title=peer.ae_title, tls_args=tls, evt_handlers=client_handlers(limits)
    )
    if association.is_rejected:
        return [("fault", _rejection(name, peer, title, association.acceptor.primitive))]
    if not association.is_established:
        return [
            ("fault", f"The peer ended the association. Check whether a DICOM service listens at port {peer.port}.")
        ]
    try:
        accepted = {context.abstract_syntax for context in association.accepted_contexts}
        answer = association.send_c_echo() if Verification in accepted else None
    finally:
        association.release()
    found: list[tuple[FindingLevel, str]] = []
    if answer is None:
        found.append(("note", f"{peer.ae_title} does not support C-ECHO; it accepts associations."))
    elif not hasattr(answer, "Status") or answer.Status != 0:
        found.append(("fault", f"{peer.ae_title} does not answer C-ECHO with Success. See the log of the peer."))
    for kind in sorted(outputs):
        words, sop_class = CLASSES[kind]
        if sop_class not in accepted:
            found.append(
                (
                    "fault",
                    f"{peer.ae_title} does not accept {words} ({sop_class.name}). Allow the class at the "
                    "peer, or remove "
                    f"'{kind}' from the outputs of the rules that send to '{name}'.",
                )
            )
    if peer.storage_commitment and StorageCommitmentPushModel not in accepted:
        found.append(
            (
                "fault",
                f"{peer.ae_title} does not accept storage commitment: results would wait for it for ever. Set "
                f"peers.{name}.storage_commitment to false.",
            )
        )
    return found or [
        (
            "ok",
            f"{peer.ae_title} at {peer.host}:{peer.port} answers C-ECHO and accepts the results that are sent to it.",
        )
    ]


def _rejection(name: str, peer: PeerConfig, title: str, answer: Any) -> str:
    source, diagnostic = answer.result_source, answer.diagnostic
    if (source, diagnostic) == (1, 7):
        return f"The peer does not recognise its AE title {peer.ae_title}. Correct peers.{name}.ae_title."
    if (source, diagnostic) == (1, 3):
        return f"The peer does not know {title}. Enter this AE title and the address of this machine at the peer."
    if source == 3:
        return "The peer refuses for now: too many associations, or it is overloaded. Run the doctor again later."
    return (
        f"The peer refuses the association (source {source}, reason {diagnostic}). Check the AE titles {title} and "
        f"{peer.ae_title} at the peer."
    )


def _check_dicomweb(name: str, peer: PeerConfig) -> tuple[FindingLevel, str, float | None]:
    import requests

    assert peer.dicomweb is not None
    address = f"{peer.dicomweb.rstrip('/')}/studies"
    seconds = min(peer.timeout_seconds, MOST_SECONDS)
    with dicomweb_session(peer, 0, seconds) as session:  # the answer, which names a patient, is not read
        session.headers["Accept"] = "application/dicom+json"
        try:
            with session.get(
                address,
                params={"limit": 1},
                timeout=seconds,
                stream=True,
            ) as answer:
                return *_answered(name, peer, answer.status_code), _clock(answer.headers.get("Date"))
        except requests.HTTPError as error:
            return *_answered(name, peer, http_status(error)), None
        except requests.exceptions.SSLError:
            text = (
                "The certificate of the service is not signed by a known authority, or is for another name. "
                f"Correct peers.{name}.ca."
            )
        except requests.exceptions.Timeout:
            text = f"The service does not answer. Check peers.{name}.dicomweb and the firewall in between."
        except (requests.exceptions.RequestException, OSError):
            text = f"Nobody listens at {peer.dicomweb}. Start the service, or correct peers.{name}.dicomweb."
    return "fault", text, None


def _answered(name: str, peer: PeerConfig, status: int) -> tuple[FindingLevel, str]:
    if status in (200, 204):
        return "ok", f"{peer.dicomweb} answers queries. Whether it accepts results can be seen only when one is sent."
    if status in (401, 403):
        key = "user_file" if peer.user_file is not None else "token_file"
        return (
            "fault",
            f"The service refuses access (HTTP {status}). Correct peers.{name}.{key}, or our rights at the service.",
        )
    if status == 404:
        return (
            "fault",
            f"{peer.dicomweb} is not a DICOMweb service (HTTP 404). Correct the path in peers.{name}.dicomweb.",
        )
    if 300 <= status < 400:
        return "fault", f"The service moved (HTTP {status}). Write its new address into peers.{name}.dicomweb."
    return "fault", f"The service answers a query with HTTP {status}. See its log."


def _clock(date: str | None) -> float | None:
    try:
        return None if date is None else time.time() - email.utils.parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
