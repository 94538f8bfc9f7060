"""Checks of a configuration against the machine, before anything listens. Each mistake is one paragraph."""

import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import TEXT_BYTES, Unreadable, open_regular, read_text
from usvit.node.config.settings import NodeConfig, NodeTlsConfig, PeerConfig
from usvit.node.rules import meets
from usvit.pseudonyms import Pseudonyms
from usvit.scoring import parse_frames, parse_rule


def check_before_start(config: NodeConfig) -> None:
    """Check everything that does not need the models to be loaded.

    Raises:
        UsvitError: the first mistake, with what to do about it.
    """
    check_rules(config)
    for name, model in config.models.items():
        with _named(f"models.{name}"):
            parse_rule(model.operating_point)
        if not model.path.exists():
            raise UsvitError(f"The model {model.path} (models.{name}.path) does not exist. Correct the path.")
        if model.calibration is not None and not model.calibration.is_file():
            raise UsvitError(f"The calibration {model.calibration} (models.{name}.calibration) does not exist.")
    for number, folder in enumerate(config.folders):
        if not folder.path.is_dir():
            raise UsvitError(f"The folder {folder.path} (folders.{number}.path) does not exist. Make it.")
        if config.folder.resolve().is_relative_to(folder.path.resolve()):
            raise UsvitError(
                f"The folder of the node {config.folder} lies in the watched folder {folder.path}, so that the node "
                "would take in its own files. Choose another place for one of them."
            )
        if not os.access(folder.path, os.R_OK | os.X_OK | (0 if folder.keep else os.W_OK)):
            raise UsvitError(
                f"Files in {folder.path} (folders.{number}) cannot be read and removed. Give the user of the service "
                "access, or set 'keep: true'."
            )
    if config.key is not None:
        Pseudonyms.of_key(config.key)
    for name, peer in config.peers.items():
        check_peer_files(name, peer)
    if config.receive is not None:
        if config.receive.tls is not None:
            check_tls("receive.tls", config.receive.tls)
        check_port("receive", config.receive.host, config.receive.port)
    if config.status is not None:
        check_port("status", config.status.host, config.status.port)


def check_rules(config: NodeConfig) -> None:
    """Check the parts of rules that the schema cannot.

    Raises:
        UsvitError: a frame policy is unknown, or a rule can never match because nobody with its AE title may send.
    """
    titles = [one.ae_title for one in config.receive.allow] if config.receive is not None else []
    for rule in config.rules:
        with _named(f"the rule '{rule.name}'"):
            parse_frames(rule.frames)
        pattern = rule.when.calling_ae
        if pattern is None or None in titles or set(pattern) == {"*"}:
            continue
        alone = type(rule.when)(calling_ae=pattern)
        if not any(meets(alone, {"calling_ae": title}) for title in titles if title is not None):
            raise UsvitError(
                f"The rule '{rule.name}' can never match: its calling_ae '{pattern}' fits no AE title of "
                "receive.allow. Correct the pattern, or allow the sender."
            )


def check_port(section: str, host: str, port: int) -> None:
    """Raise an error if the node could not listen at an address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            trial.bind(address)
    except socket.gaierror as error:
        raise UsvitError(f"{section}.host '{host}' is not known. Give the address of a network card.") from error
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            why = f"another program listens at port {port} (is the node running already?)"
        elif error.errno == errno.EACCES:
            why = f"only a privileged user can use a port below 1024, such as {port}"
        elif error.errno == errno.EADDRNOTAVAIL:
            why = f"{host} is not an address of this machine"
        else:
            why = os.strerror(error.errno or 0)
        raise UsvitError(f"The node cannot listen at {host}:{port} ({section}): {why}. Choose another.") from error


def check_peer_files(name: str, peer: PeerConfig) -> None:
    """Raise an error if a file of a peer cannot be used."""
    for key in ("token_file", "user_file"):
        path: Path | None = getattr(peer, key)
        if path is None:
            continue
        try:
            empty = not read_text(path, follow=True).strip()
        except Unreadable as error:
            raise UsvitError(f"The file {path} (peers.{name}.{key}) cannot be read. Correct the path.") from error
        if empty:
            raise UsvitError(f"The file {path} (peers.{name}.{key}) is empty. Write the secret into it.")
    if peer.ca is not None:
        _load_ca(f"peers.{name}.ca", peer.ca)
    if peer.tls is not None:
        check_tls(f"peers.{name}.tls", peer.tls)


def check_tls(section: str, tls: NodeTlsConfig) -> None:
    """Raise an error if a certificate, its key or the authorities cannot be used, or the certificate has expired."""
    if tls.ca is not None:
        _load_ca(f"{section}.ca", tls.ca)
    if tls.certificate is None or tls.private_key is None:
        return
    for key in ("certificate", "private_key"):
        path: Path = getattr(tls, key)
        try:
            open_regular(path, TEXT_BYTES).close()  # OpenSSL would wait for a FIFO, or read a file of any size
        except OSError as error:
            raise UsvitError(
                f"The file {path} ({section}.{key}) is missing or cannot be read. Correct the path."
            ) from error
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        server.load_cert_chain(tls.certificate, tls.private_key, password="")
    except (ssl.SSLError, ValueError) as error:
        raise UsvitError(
            f"The certificate {tls.certificate} and the key {tls.private_key} ({section}) cannot be used: they are not "
            "PEM files, do not belong together, or the key needs a pass phrase."
        ) from error
    if certificate_end(tls.certificate, tls.private_key) is None:
        raise UsvitError(
            f"The certificate {tls.certificate} ({section}.certificate) has expired or is not valid yet. Get a new "
            "one, or correct the clock."
        )


def certificate_end(certificate: Path, private_key: Path) -> float | None:
    """Return the time at which a certificate expires, in seconds since 1970; None if it is not valid now.

    It is asked in a TLS handshake in memory, in which the certificate is trusted as such.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, private_key, password="")
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)]
    try:
        for _ in range(5):
            for side in sides:
                with contextlib.suppress(ssl.SSLWantReadError):
                    side.do_handshake()
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in (9, 10):  # X509_V_ERR_CERT_NOT_YET_VALID, X509_V_ERR_CERT_HAS_EXPIRED
            return None
        raise
    found = sides[0].getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(found["notAfter"])))


def _load_ca(section: str, path: Path) -> None:
    try:
        open_regular(path, TEXT_BYTES).close()
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except (OSError, ssl.SSLError) as error:
        raise UsvitError(f"The file {path} ({section}) is missing or contains no PEM certificate.") from error


@contextlib.contextmanager
def _named(what: str) -> Iterator[None]:
    try:
        yield
    except UsvitError as error:
        raise UsvitError(f"In {what}: {error}") from error
