"""STOW-RS: stores DICOM files in an archive that speaks DICOMweb (PS3.18 10.5)."""

import ipaddress
import logging
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import requests
from dicomweb_client.api import DICOMwebClient
from pydicom import Dataset, dcmread
from requests.adapters import HTTPAdapter
from requests.auth import AuthBase

from usvit.config.node import PeerConfig
from usvit.errors import UsvitError
from usvit.files import read_bytes
from usvit.node.sending.answers import DUPLICATE, Answer, Outgoing, PeerUnavailable

_SECRET_BYTES = 16_384
_BUSY = (408, 425, 429)
_WORDS = {
    400: "it calls the request wrong",
    401: "it does not accept the token or password",
    403: "it does not authorise the sender",
    404: "there is no DICOMweb service at this address",
    409: "it refuses the object",
    413: "it calls the object too large",
    415: "it does not accept the kind of object",
}


class StowClient:
    """A connection to an archive; a context manager with the interface of ``StoreScu``.

    Args:
        peer: an archive with ``dicomweb``.

    Raises:
        UsvitError: the token or password cannot be read, or would cross a network in the clear.
    """

    def __init__(self, peer: PeerConfig):
        self._session = requests.Session()
        self._client = dicomweb_client(peer, self._session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def send(self, one: Outgoing) -> Answer:
        """Send a file and wait for the answer.

        Raises:
            PeerUnavailable: the archive cannot be reached, is busy or fails, or no answer came in time. It may have
                stored the object.
            OSError: the file cannot be read.
        """
        try:
            data = dcmread(one.path)
        except OSError:
            raise
        except Exception as error:  # pydicom raises many types for damaged files
            return Answer(None, error=f"the file cannot be sent ({type(error).__name__})")
        try:
            found = self._client.store_instances([data])
        except requests.HTTPError as error:
            return _refusal(error)
        except requests.exceptions.SSLError as error:
            raise PeerUnavailable("TLS with it fails: its certificate is not valid, or not signed by 'ca'") from error
        except requests.Timeout as error:
            raise PeerUnavailable("it did not answer in time") from error
        except requests.RequestException as error:
            raise PeerUnavailable("it cannot be reached") from error
        except Exception as error:  # an answer of any form
            raise PeerUnavailable(f"its answer cannot be read ({type(error).__name__})") from error
        return _answer(found)


def dicomweb_client(peer: PeerConfig, session: requests.Session) -> DICOMwebClient:
    """Return a client of an archive, which tries each request once.

    The environment is not looked at: its proxies could lead out of the hospital, and a ``.netrc`` would replace the
    token.

    Raises:
        UsvitError: the token or password cannot be read, or would cross a network in the clear.
    """
    assert peer.dicomweb is not None
    for name in ("dicomweb_client", "urllib3", "retrying"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)  # they log addresses with UIDs
    session.trust_env = False
    for scheme in ("http://", "https://"):
        session.mount(scheme, _PlainStars())
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
    client = DICOMwebClient(peer.dicomweb.rstrip("/"), session=session, timeout=peer.timeout_seconds)
    client.set_http_retry_params(retry=False)
    return client


class _PlainStars(HTTPAdapter):
    """Leaves ``*`` in an address as it is, which RFC 3986 allows: Orthanc's plug-in 1.7 does not decode ``%2A``."""

    def send(self, request: requests.PreparedRequest, *args: Any, **options: Any) -> requests.Response:
        request.url = (request.url or "").replace("%2A", "*")
        return super().send(request, *args, **options)


class _BearerToken(AuthBase):
    """Adds the token to requests; redirects to another host lose it."""

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


def _refusal(error: requests.HTTPError) -> Answer:
    status = http_status(error)
    if status >= 500 or status in _BUSY:
        raise PeerUnavailable(f"it fails or is busy (HTTP {status})") from error
    if status in (401, 403, 404):
        raise PeerUnavailable(f"{_WORDS[status]} (HTTP {status})") from error
    return Answer(status, error=f"{_WORDS.get(status, 'it refuses the object')} (HTTP {status})")


def _answer(found: Dataset) -> Answer:
    """Return what the answer to one object says (PS3.18 10.5.3)."""
    for item in found.get("FailedSOPSequence") or []:
        reason = _number(item, "FailureReason")
        answer = Answer.of_status(reason or 0xC000)
        stored_before = answer.status == DUPLICATE
        return answer if answer.error or stored_before else Answer(reason, error="it refuses the object")
    for item in found.get("ReferencedSOPSequence") or []:
        reason = _number(item, "WarningReason")
        if reason is not None:
            return Answer(reason, warning=True)
    return Answer(0)


def _number(item: Dataset, keyword: str) -> int | None:
    value: Any = item.get(keyword)
    return value if isinstance(value, int) else None
