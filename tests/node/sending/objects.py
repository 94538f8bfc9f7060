"""DICOM objects as ``usvit score`` writes them, in small, and a node's database that holds them."""

import hashlib
import time
from functools import cache
from pathlib import Path

import pydicom
from pydicom.uid import ComprehensiveSRStorage, ExplicitVRLittleEndian, generate_uid

from tests.data.conftest import speckle, write_dicom
from usvit.files import insert
from usvit.node.config.settings import NodeConfig, PeerConfig, SendConfig
from usvit.node.database import NodeDatabase

CAPTURE = "1.2.840.10008.5.1.4.1.1.7"
STATE = "1.2.840.10008.5.1.4.1.1.11.1"
REPORT = str(ComprehensiveSRStorage)
CLASSES = {"sc": CAPTURE, "gsps": STATE, "sr": REPORT}


@cache
def uid_of(name: str) -> str:
    return str(generate_uid(prefix=None, entropy_srcs=[name]))


def write_object(path: Path, name: str, kind: str = "sr", study: str = "study") -> str:
    """A small object of the SOP class; its UID."""
    pixels = speckle(1, 32, 32) if kind == "sc" else None
    tags = {"SOPInstanceUID": uid_of(name), "StudyInstanceUID": uid_of(study), "SeriesInstanceUID": uid_of(study + "s")}
    write_dicom(path, pixels, **tags, SOPClassUID=CLASSES[kind], PatientName="Doe^Jane")
    return uid_of(name)


def config_of(folder: Path, peer: PeerConfig, **send) -> NodeConfig:
    """A node with one peer and times of milliseconds."""
    times = {"first_retry_seconds": 0.05, "longest_retry_minutes": 0.005, **send}
    return NodeConfig.model_validate(
        {
            "folder": folder,
            "models": {"main": {"path": folder / "model"}},
            "rules": [{"name": "all", "model": "main", "send_to": ["pacs"]}],
            "peers": {"pacs": peer},
            "send": SendConfig(**times),
        }
    )


def ae(port: int, **more) -> PeerConfig:
    return PeerConfig(**{"ae_title": "ARCHIVE", "host": "127.0.0.1", "port": port, "timeout_seconds": 5.0, **more})


class Queue:
    """A node's folder with results that wait for delivery."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.database = folder, NodeDatabase(folder / "node.sqlite", create=True)

    def add(self, study: str, *kinds: str, state: str = "waiting") -> list[str]:
        """Add results of a study to the queue; their SOP instance UIDs."""
        uids = []
        for number, kind in enumerate(kinds):
            name = f"{study}-{number}"
            path = self.folder / "results" / study / f"{number}-{kind}.dcm"
            uids.append(write_object(path, name, kind, study))
            with self.database.transaction() as connection:
                connection.execute(
                    "INSERT OR IGNORE INTO studies (study_uid, pseudonym, state, first_at, last_at) "
                    "VALUES (?, ?, 'done', 0, 0)",
                    (uid_of(study), f"p-{study}"),
                )
                (study_id,) = connection.execute(
                    "SELECT id FROM studies WHERE study_uid = ?", (uid_of(study),)
                ).fetchone()
                columns = {
                    **{"study_id": study_id, "revision": 1, "kind": kind, "sop_instance_uid": uids[-1]},
                    **{"sop_class_uid": CLASSES[kind], "series_uid": "1.2", "result_study_uid": uid_of(study)},
                    **{"path": path.relative_to(self.folder).as_posix(), "created_at": time.time()},
                    **{"sha256": hashlib.sha256(path.read_bytes()).hexdigest()},
                }
                result = insert(connection, "results", columns)
                insert(connection, "deliveries", {"result_id": result, "peer": "pacs", "state": state, "next_at": 0})
        return uids

    def states(self) -> list[str]:
        return [row["state"] for row in self.database.rows("SELECT state FROM deliveries ORDER BY id")]

    def events(self) -> list[str]:
        return [row["event"] for row in self.database.rows("SELECT event FROM audit_events ORDER BY id")]

    def audit(self) -> str:
        return "\n".join(row["event"] + row["data"] for row in self.database.rows("SELECT * FROM audit_events"))


def syntax_of(path: Path) -> str:
    return str(pydicom.dcmread(path, stop_before_pixels=True).file_meta.TransferSyntaxUID)


assert str(ExplicitVRLittleEndian)
