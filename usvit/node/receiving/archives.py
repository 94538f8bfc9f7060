"""Archives from which ``usvit node pull`` fetches: DICOMweb services, and AEs with C-FIND and C-GET or C-MOVE."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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

from usvit.config.node import PeerConfig
from usvit.node.receiving.instance_store import InstanceStore, Outcome, is_uid
from usvit.node.receiving.sop_classes import TRANSFER_SYNTAXES
from usvit.node.receiving.storage_scp import STATUSES
from usvit.node.sending import PeerUnavailable, associate, dicomweb_client, end, http_status
from usvit.scoring import IMAGE_CLASSES

_PENDING = (0xFF00, 0xFF01)


@dataclass(frozen=True)
class ArchivedInstance:
    """An instance of the archive."""

    study: str
    series: str
    instance: str
    sop_class: str


class WebArchive:
    """An archive with QIDO-RS and WADO-RS."""

    def __init__(self, peer: PeerConfig):
        self._session = requests.Session()
        self._client = dicomweb_client(peer, self._session)

    def __enter__(self) -> "WebArchive":
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    def studies(self, wanted: dict[str, str]) -> list[str]:
        with _web_errors():
            found = self._client.search_for_studies(search_filters=wanted, get_remaining=True)
        return list(dict.fromkeys(filter(is_uid, (_value(one, "0020000D") for one in found))))

    def instances(self, study: str) -> Iterator[ArchivedInstance]:
        with _web_errors():
            found = self._client.search_for_instances(study, fields=["00080016", "0020000E"], get_remaining=True)
        for one in found:
            uids = _value(one, "0020000E"), _value(one, "00080018")
            if all(map(is_uid, uids)):
                yield ArchivedInstance(study, *uids, _value(one, "00080016"))

    def instance(self, one: ArchivedInstance) -> Dataset | None:
        try:
            with _web_errors():
                return self._client.retrieve_instance(one.study, one.series, one.instance)
        except _RefusedRequest:
            return None


class _RefusedRequest(PeerUnavailable):
    """The archive answers, and does not do what it is asked for."""


@contextmanager
def _web_errors() -> Iterator[None]:
    try:
        yield
    except requests.HTTPError as error:
        status = http_status(error)
        kind = PeerUnavailable if status >= 500 or status in (401, 403, 408, 429) else _RefusedRequest
        raise kind(f"it refuses the request (HTTP {status})") from error
    except requests.RequestException as error:
        raise PeerUnavailable("it cannot be reached, or did not answer in time") from error
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
        found = self._find("STUDY", {"StudyInstanceUID": "", **wanted})
        return list(dict.fromkeys(filter(is_uid, (_text(one, "StudyInstanceUID") for one in found))))

    def instances(self, study: str) -> Iterator[ArchivedInstance]:
        for row in self._find("SERIES", {"StudyInstanceUID": study, "SeriesInstanceUID": ""}):
            series = _text(row, "SeriesInstanceUID")
            if not is_uid(series):
                continue
            keys = {"StudyInstanceUID": study, "SeriesInstanceUID": series, "SOPInstanceUID": "", "SOPClassUID": ""}
            for one in self._find("IMAGE", keys):
                uid = _text(one, "SOPInstanceUID")
                if is_uid(uid):
                    yield ArchivedInstance(study, series, uid, _text(one, "SOPClassUID"))

    def get(self, part: list[ArchivedInstance], store: InstanceStore) -> dict[str, Outcome] | None:
        """Fetch instances of one series by C-GET; None if the archive does not support it."""
        outcomes: dict[str, Outcome] = {}

        def on_store(event: evt.Event) -> int:
            request: Any = event.request
            sop_class, uid = str(request.AffectedSOPClassUID), str(request.AffectedSOPInstanceUID)
            partial = store.partial()
            partial.write_bytes(event.encoded_dataset())
            outcomes[uid] = store.take(partial, source="cget", announced=(sop_class, uid)).outcome
            return STATUSES[outcomes[uid]]

        classes = sorted({one.sop_class for one in part} - {""}) or sorted(IMAGE_CLASSES)
        contexts = [build_context(StudyRootQueryRetrieveInformationModelGet)]
        contexts += [build_context(sop_class, list(TRANSFER_SYNTAXES)) for sop_class in classes]
        roles = [build_role(sop_class, scp_role=True) for sop_class in classes]
        try:
            association = associate(self._peer, contexts, self._calling, [(evt.EVT_C_STORE, on_store)], roles)
        except PeerUnavailable as error:
            if "none of the SOP classes" in str(error):
                return None
            raise
        try:
            accepted = {str(context.abstract_syntax) for context in association.accepted_contexts}
            if StudyRootQueryRetrieveInformationModelGet not in accepted or len(accepted) == 1:
                return None
            for status, _ in association.send_c_get(_image_keys(part), StudyRootQueryRetrieveInformationModelGet):
                if "Status" not in status:
                    raise PeerUnavailable("it ended the association, or did not answer in time")
        finally:
            end(association)
        return outcomes

    def move(self, part: list[ArchivedInstance], destination: str) -> None:
        """Let the archive send instances of one series to ``destination``."""
        contexts = [build_context(StudyRootQueryRetrieveInformationModelMove)]
        association = associate(self._peer, contexts, self._calling)
        try:
            for status, _ in association.send_c_move(
                _image_keys(part), destination, StudyRootQueryRetrieveInformationModelMove
            ):
                if "Status" not in status:
                    raise PeerUnavailable("it ended the association, or did not answer in time")
                if status.Status == 0xA801:
                    raise PeerUnavailable(f"it does not know the AE title {destination} as a destination of C-MOVE")
        finally:
            end(association)

    def _find(self, level: str, keys: dict[str, str]) -> list[Dataset]:
        assert self._finding is not None
        identifier = Dataset()
        identifier.SpecificCharacterSet = "ISO_IR 192"
        identifier.QueryRetrieveLevel = level
        for keyword, value in keys.items():
            setattr(identifier, keyword, value)
        if not self._finding.is_established:
            raise PeerUnavailable("the association has ended")
        found = []
        for status, row in self._finding.send_c_find(identifier, StudyRootQueryRetrieveInformationModelFind):
            if "Status" not in status:
                raise PeerUnavailable("it ended the association, or did not answer in time")
            if status.Status in _PENDING and row is not None:
                found.append(row)
            elif status.Status not in (0x0000, *_PENDING):
                raise PeerUnavailable(f"it refuses the search (0x{status.Status:04X})")
        return found


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
