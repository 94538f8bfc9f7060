"""Access to archives that speak DICOMweb: certificates, secrets, and the limits of answers."""

import ipaddress
import logging
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
from dicomweb_client.api import DICOMwebClient
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from usvit.errors import UsvitError
from usvit.files import read_bytes
from usvit.node.config.settings import PeerConfig
from usvit.node.sending.answers import PeerUnavailable
from usvit.web import AnswerRefused, WebLimits, bounded_connection

_SECRET_BYTES = 16_384


def dicomweb_session(peer: PeerConfig, max_bytes: int, seconds: float | None = None) -> requests.Session:
    """Return a session with the certificates and the secret of an archive; its answers keep to ``usvit.web``.

    Redirects are not followed: a request names a patient, and another server would learn it. The environment is not
    looked at: its proxies could lead out of the hospital, and a ``.netrc`` would replace the token.

    Args:
        peer: an archive with ``dicomweb``.
        max_bytes: largest answer.
        seconds: longest time of an answer; None: ``timeout_seconds`` of the peer.

    Raises:
        UsvitError: the token or password cannot be read, or would cross a network in the clear.
    """
    assert peer.dicomweb is not None
    for name in ("dicomweb_client", "urllib3", "retrying"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # they log addresses with UIDs
    session = requests.Session()
    session.trust_env = False
    session.headers["Accept-Encoding"] = "identity"
    for scheme in ("http://", "https://"):
        session.mount(scheme, _BoundedAdapter(WebLimits(max_bytes, seconds or peer.timeout_seconds)))
    if peer.ca is not None:
        if not peer.ca.is_file():
            raise UsvitError(f"The file of certificates {peer.ca} does not exist. Correct 'ca'.")
        session.verify = str(peer.ca)
    if peer.token_file is not None or peer.user_file is not None:
        _refuse_in_the_clear(peer.dicomweb)
    if peer.token_file is not None:
        session.auth = _BearerToken(_secret(peer.token_file, "token"))
    elif peer.user_file is not None:
        name, colon, password = _secret(peer.user_file, "user").partition(":")
        if not colon:
            raise UsvitError(f"The file {peer.user_file} must hold name:password on one line.")
        session.auth = (name, password)
    return session


def dicomweb_client(peer: PeerConfig, session: requests.Session) -> DICOMwebClient:
    """Return a client of an archive, which tries each request once."""
    assert peer.dicomweb is not None
    client = DICOMwebClient(peer.dicomweb.rstrip("/"), session=session, timeout=peer.timeout_seconds)
    client.set_http_retry_params(retry=False)
    return client


class _BoundedAdapter(HTTPAdapter):
    """Sends requests over bounded connections, and refuses redirects and compressed answers.

    It leaves ``*`` in an address as it is, which RFC 3986 allows: Orthanc's plug-in 1.7 does not decode ``%2A``.
    """

    def __init__(self, limits: WebLimits):
        self._limits = limits
        super().__init__()

    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        pools: dict[str, Any] = self.poolmanager.pool_classes_by_scheme
        self.poolmanager.pool_classes_by_scheme = {
            scheme: type("Pool", (pool,), {"ConnectionCls": bounded_connection(pool.ConnectionCls, self._limits)})
            for scheme, pool in pools.items()
        }

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        request.url = (request.url or "").replace("%2A", "*")
        answer = super().send(request, *args, **options)
        encoding = answer.headers.get("Content-Encoding", "identity")
        if 300 <= answer.status_code < 400:
            answer.close()
            raise requests.HTTPError("the answer is a redirect", response=answer)
        if encoding.lower() != "identity":  # a few bytes can unpack to gigabytes
            answer.close()
            raise requests.exceptions.ContentDecodingError("the answer is compressed", response=answer)
        return answer


class _BearerToken(AuthBase):
    """Adds the token to requests."""

    def __init__(self, token: str):
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request

    def __repr__(self) -> str:
        return "_BearerToken(...)"


def _secret(path: Path, what: str) -> str:
    text = read_bytes(path, _SECRET_BYTES, follow=True, what=f"The {what} file").decode("ascii", "replace").strip()
    if not text or not text.isascii() or any(not " " < one <= "~" for one in text.replace(" ", "")) or "\n" in text:
        raise UsvitError(f"The {what} file {path} must hold one line of plain ASCII.")
    return text


def _refuse_in_the_clear(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme == "https":
        return
    host = parts.hostname or ""
    try:
        local = ipaddress.ip_address(host).is_loopback
    except ValueError:
        local = host == "localhost"
    if not local:
        raise UsvitError(
            f"The address {url} begins with http, and anybody on the network could read the token or password. Use "
            "https, or leave token_file and user_file out."
        )


def http_status(error: requests.HTTPError) -> int:
    """Return the status of HTTP; 500 if the error holds none."""
    return 500 if error.response is None else error.response.status_code


def unavailable(error: requests.RequestException) -> PeerUnavailable:
    """Return what a failed request says of the archive, in our own words."""
    if isinstance(error, requests.HTTPError) and http_status(error) < 400:
        return PeerUnavailable(
            f"it leads to another address (HTTP {http_status(error)}), which is not followed, because another server "
            "could learn who the patient is; correct the address of the service"
        )
    if isinstance(error, requests.exceptions.SSLError):
        return PeerUnavailable("TLS with it fails: its certificate is not valid, or not signed by 'ca'")
    if isinstance(error, requests.exceptions.ContentDecodingError):
        return PeerUnavailable("it compresses its answer, although it was asked not to")
    if (refusal := _refusal_in(error)) is not None:
        return PeerUnavailable(f"its answer is not read: {refusal}")
    if isinstance(error, requests.Timeout):
        return PeerUnavailable("it did not answer in time")
    return PeerUnavailable("it cannot be reached")


def _refusal_in(error: BaseException | None) -> AnswerRefused | None:
    """Return the limit that a request has exceeded; libraries wrap it in errors of their own."""
    for _ in range(10):
        if error is None or isinstance(error, AnswerRefused):
            return error
        inner = [one for one in error.args if isinstance(one, BaseException)]
        error = inner[-1] if inner else error.__cause__ or error.__context__
    return None
