"""STOW-RS: stores DICOM files in an archive that speaks DICOMweb (PS3.18 10.5)."""

from types import TracebackType
from typing import Any, Self

import requests
from pydicom import Dataset, dcmread

from usvit.node.config.settings import PeerConfig
from usvit.node.sending.answers import DUPLICATE, Answer, Outgoing, PeerUnavailable
from usvit.node.sending.dicomweb import dicomweb_client, dicomweb_session, http_status, unavailable

ANSWER_BYTES = 4_000_000
"""Largest answer to one object; those of archives have some hundred bytes."""
_BUSY = (408, 425, 429)
_WORDS = {
    400: "it reports a bad request",
    401: "it does not accept the token or password",
    403: "it does not authorise the sender",
    404: "there is no DICOMweb service at this address",
    409: "it refuses the object",
    413: "it reports that the object is too large",
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
        self._session = dicomweb_session(peer, ANSWER_BYTES)
        self._client = dicomweb_client(peer, self._session)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.close()

    def send(self, outgoing: Outgoing) -> Answer:
        """Send a file and wait for the answer.

        Raises:
            PeerUnavailable: the archive cannot be reached, is busy or fails, or no answer came in time. It may have
                stored the object.
            OSError: the file cannot be read.
        """
        try:
            data = dcmread(outgoing.path)
        except OSError:
            raise
        except Exception as error:  # pydicom raises many types for damaged files
            return Answer(None, error=f"the file cannot be sent ({type(error).__name__})")
        try:
            found = self._client.store_instances([data])
        except requests.HTTPError as error:
            return _refusal(error)
        except requests.RequestException as error:
            raise unavailable(error) from error
        except Exception as error:  # an answer of any form
            raise PeerUnavailable(f"its answer cannot be read ({type(error).__name__})") from error
        return _answer(found)


def _refusal(error: requests.HTTPError) -> Answer:
    status = http_status(error)
    if status < 400:
        raise unavailable(error) from error
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
