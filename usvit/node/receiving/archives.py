"""Archives from which ``usvit node pull`` fetches: DICOMweb services, and AEs with C-FIND and C-GET or C-MOVE."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO

import requests
from pydicom import Dataset
from pynetdicom import evt
from pynetdicom.association import Association
from pynetdicom.presentation import build_context, build_role
from pynetdicom.sop_class import (  # type: ignore[attr-defined]
    StudyRootQueryRetrieveInformationModelFind,
    StudyRootQueryRetrieveInformationModelGet,
    StudyRootQueryRetrieveInformationModelMove,
)

from usvit.files import disk_errors
from usvit.node.config.settings import PeerConfig
from usvit.node.receiving.instance_store import InstanceStore, Outcome, is_uid
from usvit.node.receiving.sop_classes import TRANSFER_SYNTAXES
from usvit.node.receiving.storage_scp import STATUSES, receive_into, store_received
from usvit.node.sending import (
    PeerUnavailable,
    abandon,
    associate,
    bounded_answers,
    dicomweb_client,
    dicomweb_session,
    end,
    http_status,
    unavailable,
)
from usvit.plain_data import Json
from usvit.scoring import IMAGE_CLASSES

MOST_MATCHES = 100_000
"""Matches of one search."""
_SECONDS_EACH = 0.1
"""Time that each match may take, beyond ``timeout_seconds`` for all of them."""
PAGE_BYTES = 32_000_000
"""Largest page of an answer of QIDO-RS; a match has some hundred bytes."""
_PART_HEADER = 1 << 16
"""Bytes around an instance in an answer of WADO-RS."""
_CHUNK = 1 << 18
_PENDING = (0xFF00, 0xFF01)
Answer = Json
"""One data set of an answer in DICOM JSON: tag -> its value."""


@dataclass(frozen=True)
class ArchivedInstance:
    """An instance of the archive."""

    study: str
    series: str
    instance: str
    sop_class: str


class WebArchive:
    """An archive with QIDO-RS and WADO-RS.

    Args:
        peer: the archive.
        max_bytes: largest instance.
    """

    def __init__(self, peer: PeerConfig, max_bytes: int):
        assert peer.dicomweb is not None
        self._peer, self._base = peer, peer.dicomweb.rstrip("/")
        self._searching = dicomweb_session(peer, PAGE_BYTES)
        self._fetching = dicomweb_session(peer, max_bytes + _PART_HEADER)
        self._client = dicomweb_client(peer, self._searching)

    def __enter__(self) -> "WebArchive":
        return self

    def __exit__(self, *_: object) -> None:
        self._searching.close()
        self._fetching.close()

    def studies(self, wanted: dict[str, str]) -> list[str]:
        def page(offset: int) -> list[Answer]:
            return self._client.search_for_studies(search_filters=wanted, offset=offset)

        return list(self._rows(page, "0020000D"))

    def instances(self, study: str) -> Iterator[ArchivedInstance]:
        def page(offset: int) -> list[Answer]:
            return self._client.search_for_instances(study, fields=["00080016", "0020000E"], offset=offset)

        for uid, row in self._rows(page, "00080018").items():
            series = _value(row, "0020000E")
            if is_uid(series):
                yield ArchivedInstance(study, series, uid, _value(row, "00080016"))

    def instance(self, archived: ArchivedInstance, target: Path) -> bool:
        """Write the file of an instance as it comes; return False if the archive does not deliver it.

        Raises:
            PeerUnavailable: the archive cannot be reached, or its answer exceeds the limits.
            OSError: the file cannot be written.
        """
        address = f"{self._base}/studies/{archived.study}/series/{archived.series}/instances/{archived.instance}"
        accept = 'multipart/related; type="application/dicom"; transfer-syntax=*'
        try:
            with (
                _web_errors(),
                self._fetching.get(
                    address, headers={"Accept": accept}, stream=True, timeout=self._peer.timeout_seconds
                ) as answer,
            ):
                answer.raise_for_status()
                kind = answer.headers.get("Content-Type", "")
                with disk_errors(target), open(target, "xb") as file:
                    _write_first_part(answer.iter_content(_CHUNK), kind, file)
        except _RefusedRequest:
            return False
        return True

    def _rows(self, page: Callable[[int], list[Answer]], tag: str) -> dict[str, Answer]:
        """Return the rows of all pages by their UIDs; a page without a new one is the last."""

        def rows() -> Iterator[tuple[str, Answer]]:
            offset = 0
            while True:
                with _web_errors():
                    found = page(offset)
                    new = {uid: row for row in found if is_uid(uid := _value(row, tag)) and uid not in seen}
                if not new:
                    return
                yield from new.items()
                offset += len(found)

        seen: dict[str, Answer] = {}
        for uid, row in bounded_answers(rows(), MOST_MATCHES, self._peer.timeout_seconds, _SECONDS_EACH):
            seen[uid] = row
        return seen


def _write_first_part(chunks: Iterable[bytes], kind: str, file: BinaryIO) -> None:
    """Write the body of the first part of a multipart answer, or all of another answer, into a file as it comes.

    Args:
        chunks: content of the answer.
        kind: its Content-Type.
        file: receives the body.

    Raises:
        ValueError: the answer has no such part.
    """
    header = Message()
    header["Content-Type"] = kind
    if header.get_content_maintype() != "multipart":
        for chunk in chunks:
            file.write(chunk)
        return
    boundary = header.get_boundary()
    if not boundary:
        raise ValueError("the answer has no boundary")
    begin, end = f"--{boundary}".encode("latin-1"), f"\r\n--{boundary}".encode("latin-1")
    held, inside = b"", False
    for chunk in chunks:
        held += chunk
        if not inside:
            start = held.find(begin)
            body = -1 if start < 0 else held.find(b"\r\n\r\n", start)
            if body < 0:
                if len(held) > _PART_HEADER + len(chunk):
                    raise ValueError("the answer has no part")
                continue
            held, inside = held[body + 4 :], True
        if (stop := held.find(end)) >= 0:
            file.write(held[:stop])
            return
        done = max(0, len(held) - len(end))
        file.write(held[:done])
        held = held[done:]
    raise ValueError("the answer ends early")


class _RefusedRequest(PeerUnavailable):
    """The archive answers, and does not do what it is asked for."""


@contextmanager
def _web_errors() -> Iterator[None]:
    try:
        yield
    except requests.HTTPError as error:
        if (status := http_status(error)) < 400:
            raise unavailable(error) from error
        kind = PeerUnavailable if status >= 500 or status in (401, 403, 408, 429) else _RefusedRequest
        raise kind(f"it refuses the request (HTTP {status})") from error
    except requests.RequestException as error:
        raise unavailable(error) from error
    except (KeyError, ValueError, IndexError, TypeError) as error:  # an answer of any form
        raise _RefusedRequest("its answer cannot be read") from error


class DimseArchive:
    """An archive with C-FIND, and C-GET or C-MOVE, in the study root model."""

    def __init__(self, peer: PeerConfig, calling: str):
        self._peer, self._calling = peer, calling
        self._finding: Association | None = None

    def __enter__(self) -> "DimseArchive":
        logging.getLogger("pynetdicom").setLevel(logging.CRITICAL + 1)
        self._finding = associate(
            self._peer, [build_context(StudyRootQueryRetrieveInformationModelFind)], self._calling
        )
        return self

    def __exit__(self, *_: object) -> None:
        end(self._finding)

    def studies(self, wanted: dict[str, str]) -> list[str]:
        found = self._find("STUDY", {"StudyInstanceUID": "", **wanted}, "StudyInstanceUID")
        return list(dict.fromkeys(uid for (uid,) in found if is_uid(uid)))

    def instances(self, study: str) -> Iterator[ArchivedInstance]:
        keys = {"StudyInstanceUID": study, "SeriesInstanceUID": ""}
        for series in dict.fromkeys(uid for (uid,) in self._find("SERIES", keys, "SeriesInstanceUID") if is_uid(uid)):
            keys = {"StudyInstanceUID": study, "SeriesInstanceUID": series, "SOPInstanceUID": "", "SOPClassUID": ""}
            for uid, sop_class in list(self._find("IMAGE", keys, "SOPInstanceUID", "SOPClassUID")):
                if is_uid(uid):
                    yield ArchivedInstance(study, series, uid, sop_class)

    def get(self, part: list[ArchivedInstance], store: InstanceStore) -> dict[str, Outcome] | None:
        """Fetch instances of one series by C-GET; None if the archive does not support it."""
        outcomes: dict[str, Outcome] = {}
        wanted = {one.instance for one in part}

        def on_store(event: evt.Event) -> int:
            request: Any = event.request
            uid = str(request.AffectedSOPInstanceUID)
            if uid not in wanted:  # not asked for: an archive may not send what it likes
                return STATUSES[Outcome.MISMATCH]
            outcomes[uid] = store_received(event, store, source="cget")
            return STATUSES[outcomes[uid]]

        classes = sorted({one.sop_class for one in part} - {""}) or sorted(IMAGE_CLASSES)
        contexts = [build_context(StudyRootQueryRetrieveInformationModelGet)]
        contexts += [build_context(sop_class, list(TRANSFER_SYNTAXES)) for sop_class in classes]
        roles = [build_role(sop_class, scp_role=True) for sop_class in classes]
        with receive_into(store):
            try:
                association = associate(
                    self._peer, contexts, self._calling, [(evt.EVT_C_STORE, on_store)], roles, store.max_bytes
                )
            except PeerUnavailable as error:
                if "none of the SOP classes" in str(error):
                    return None
                raise
            try:
                accepted = {str(context.abstract_syntax) for context in association.accepted_contexts}
                if StudyRootQueryRetrieveInformationModelGet not in accepted or len(accepted) == 1:
                    return None
                answers = association.send_c_get(_image_keys(part), StudyRootQueryRetrieveInformationModelGet)
                self._go_through(answers, part)
            except PeerUnavailable:
                abandon(association)
                raise
            finally:
                end(association)
        return outcomes

    def move(self, part: list[ArchivedInstance], destination: str) -> None:
        """Let the archive send instances of one series to ``destination``."""
        contexts = [build_context(StudyRootQueryRetrieveInformationModelMove)]
        association = associate(self._peer, contexts, self._calling)
        try:
            self._go_through(
                association.send_c_move(_image_keys(part), destination, StudyRootQueryRetrieveInformationModelMove),
                part,
                {0xA801: f"it does not know the AE title {destination} as a destination of C-MOVE"},
            )
        except PeerUnavailable:
            abandon(association)
            raise
        finally:
            end(association)

    def _go_through(
        self, answers: Iterator[Any], part: list[ArchivedInstance], refusals: Mapping[int, str] = MappingProxyType({})
    ) -> None:
        """Read the answers to C-GET or C-MOVE: up to one or two for each instance, and one at the end."""
        seconds = self._peer.timeout_seconds * (len(part) + 1)
        for status, _ in bounded_answers(answers, 4 * len(part) + 16, seconds):
            if "Status" not in status:
                raise PeerUnavailable("it ended the association, or did not answer in time")
            if status.Status in refusals:
                raise PeerUnavailable(refusals[status.Status])

    def _find(self, level: str, keys: dict[str, str], *wanted: str) -> Iterator[tuple[str, ...]]:
        """Yield the wanted attributes of each match; of an identifier that a peer sends, nothing else is kept."""
        assert self._finding is not None
        identifier = Dataset()
        identifier.SpecificCharacterSet = "ISO_IR 192"
        identifier.QueryRetrieveLevel = level
        for keyword, value in keys.items():
            setattr(identifier, keyword, value)
        if not self._finding.is_established:
            raise PeerUnavailable("the association has ended")
        try:
            yield from self._matches(identifier, wanted)
        except PeerUnavailable:
            abandon(self._finding)
            raise

    def _matches(self, identifier: Dataset, wanted: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        assert self._finding is not None
        answers = self._finding.send_c_find(identifier, StudyRootQueryRetrieveInformationModelFind)
        for status, row in bounded_answers(answers, MOST_MATCHES, self._peer.timeout_seconds, _SECONDS_EACH):
            if "Status" not in status:
                raise PeerUnavailable("it ended the association, or did not answer in time")
            if status.Status in _PENDING and row is not None:
                yield tuple(_text(row, keyword) for keyword in wanted)
            elif status.Status not in (0x0000, *_PENDING):
                raise PeerUnavailable(f"it refuses the search (0x{status.Status:04X})")


def _image_keys(part: list[ArchivedInstance]) -> Dataset:
    data = Dataset()
    data.QueryRetrieveLevel = "IMAGE"
    data.StudyInstanceUID, data.SeriesInstanceUID = part[0].study, part[0].series
    data.SOPInstanceUID = [one.instance for one in part]
    return data


def _value(row: Mapping[str, Any], tag: str) -> str:
    values = (row.get(tag) or {}).get("Value") or [""]
    return str(values[0])


def _text(row: Dataset, keyword: str) -> str:
    try:
        return str(row.get(keyword) or "").strip(" \0")
    except Exception:  # pydicom converts on access
        return ""
