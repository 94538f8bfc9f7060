"""A node's folder with a database that tests fill row by row."""

import time

import pytest

from usvit.node import NodeDatabase
from usvit.node.config.settings import NodeConfig
from usvit.pseudonyms import Pseudonyms

NOW = 1_800_000_000.0
DAY = 86400.0


class FilledNode:
    """A node whose studies, images, results and deliveries are written by hand, files included."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir(mode=0o700)
        self.database = NodeDatabase(folder / "node.sqlite", create=True)
        self.pseudonyms = Pseudonyms.of_key(folder / "pseudonym.key")
        self._n = 0

    def config(self, **changes):
        content = {
            "folder": str(self.folder),
            "receive": {"port": 11119, "allow": "any"},
            "models": {"main": {"path": str(self.folder)}},
            "rules": [{"name": "all", "model": "main", "send_to": ["pacs", "archive"]}],
            "peers": {
                "pacs": {"ae_title": "PACS", "host": "127.0.0.1", "port": 11118},
                "archive": {"ae_title": "ARCHIVE", "host": "127.0.0.1", "port": 11117, "storage_commitment": True},
            },
            "status": {"port": 18484},
        }
        return NodeConfig.model_validate(content | changes, strict=False)

    def study(self, state="done", last_at=NOW, n_images=2, image_state="scored", revision=1, done_at=None):
        self._n += 1
        uid = f"1.2.840.99.{self._n}"
        with self.database.transaction() as connection:
            study = connection.execute(
                "INSERT INTO studies (study_uid, pseudonym, state, first_at, last_at, revision, done_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (uid, self.pseudonyms.study(uid), state, last_at, last_at, revision, done_at or last_at),
            ).lastrowid
            for number in range(n_images):
                name = f"incoming/ab/{self._n:032d}/{number:032d}.dcm"
                path = self.folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"x" * 1000)
                connection.execute(
                    "INSERT INTO instances (sop_instance_uid, study_uid, series_uid, sop_class_uid, "
                    "transfer_syntax_uid, "
                    "path, file_sha256, dataset_sha256, n_bytes, calling_ae, source, received_at, study_id, state, "
                    "revision, attributes) VALUES (?, ?, '1.2', '1.3', '1.4', ?, '', '', 1000, 'SCANNER', "
                    "'dimse', ?, ?, "
                    "?, ?, ?)",
                    (
                        *(f"{uid}.{number}", uid, name, last_at, study, image_state),
                        *(revision, '{"study_description": "MARY"}'),
                    ),
                )
        return study

    def result(self, study, created_at=NOW, revision=1, kind="sr", deliveries=()):
        """Add one result of 500 bytes; ``deliveries`` are (peer, state) or (peer, state, done_at)."""
        self._n += 1
        (pseudonym,) = self.database.rows("SELECT pseudonym FROM studies WHERE id = ?", (study,))[0]
        name = f"results/{pseudonym}/{revision}/dicom/{self._n}-{kind}.dcm"
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"y" * 500)
        with self.database.transaction() as connection:
            columns = {
                "study_id": study,
                "revision": revision,
                "kind": kind,
                "sop_instance_uid": f"2.25.{self._n}",
                "sop_class_uid": "1.3",
                "series_uid": "1.2",
                "result_study_uid": "1.2",
                "path": name,
                "sha256": "",
                "created_at": created_at,
            }
            known = {row["name"] for row in connection.execute("PRAGMA table_info(results)")}
            columns = {key: value for key, value in columns.items() if key in known}
            result = connection.execute(
                f"INSERT INTO results ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                tuple(columns.values()),
            ).lastrowid
            for peer, state, *done_at in deliveries:
                connection.execute(
                    "INSERT INTO deliveries (result_id, peer, state, next_at, done_at) VALUES (?, ?, ?, 0, ?)",
                    (result, peer, state, *(done_at or [None])),
                )
        return path

    def image_files(self):
        return sorted(self.folder.glob("incoming/*/*/*.dcm"))

    def states(self):
        return dict(map(tuple, self.database.rows("SELECT state, count(*) FROM instances GROUP BY state")))


@pytest.fixture
def node(tmp_path):
    made = FilledNode(tmp_path / "node")
    yield made
    made.database.close()


@pytest.fixture
def now():
    return time.time()
