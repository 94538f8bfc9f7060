"""The results of one revision of a study: report, captures and presentation states on the disk, then in the database.

A revision has one report, which lists all scored images of the study and names the report before it as its
predecessor, and a capture and a presentation state for each image that the revision has scored.
"""

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pydicom import dcmread

from usvit.errors import UsvitError
from usvit.files import insert, sha256_of_file
from usvit.node.config.settings import NodeConfig, NodeRule
from usvit.node.database import NodeDatabase, count
from usvit.node.receiving.instance_store import flush
from usvit.scoring import (
    ItemScorer,
    ItemScores,
    Predecessor,
    ReportedItem,
    ScoringItem,
    score_columns,
    write_rows,
    write_study_report,
)


class SeveralPatients(Exception):
    """The images of a study name different patients, so that no report is written."""


_DELIVERY_ORDER = ("sc", "gsps", "sr")
"""The report is sent last, so that everything is there when it is read."""


@dataclass(frozen=True)
class _Result:
    """One object on the disk."""

    kind: str
    path: str
    """Path below the folder of the node."""
    instance: int | None
    sop_instance_uid: str
    sop_class_uid: str
    series_uid: str
    study_uid: str
    sha256: str
    predecessor: str | None = None


class StudyResults:
    """Writes the results of a study, and records them.

    Args:
        config: configuration of the node.
        database: its database.
        study: row of the study.
        rule: the rule that decided on it.
        out: empty folder of the revision.
        scorer: the networks that scored it.
        alive: called between steps; it may raise to stop the work.
    """

    def __init__(
        self,
        config: NodeConfig,
        database: NodeDatabase,
        study: sqlite3.Row,
        rule: NodeRule,
        out: Path,
        scorer: ItemScorer,
        alive: Callable[[], None],
    ):
        self._config, self._database, self._study, self._rule = config, database, study, rule
        self._out, self._scorer, self._alive = out, scorer, alive
        self._keep = rule.identity == "keep"
        self._started = datetime.fromisoformat(study["started_at"])
        self._results: list[_Result] = []
        self._missing: list[tuple[int | None, str, str]] = []
        """(instance, kind, code of ``PRODUCT_FAILURES``)."""

    @property
    def hashes(self) -> list[dict[str, str]]:
        """Kind and SHA-256 of each result, for the audit log."""
        return [{"kind": one.kind, "sha256": one.sha256} for one in self._results]

    def write(self, images: Sequence[sqlite3.Row], items: Sequence[ScoringItem], scores: ItemScores) -> None:
        """Write the tables and the objects.

        Args:
            images: rows of the instances that were scored.
            items: the same as items.
            scores: their scores.

        Raises:
            UsvitError: the disk is full or cannot be written.
            SeveralPatients: the images name different patients.
        """
        ensemble = self._scorer.ensemble
        rows = [row for index in sorted(scores.rows) for row in scores.rows[index]]
        sides = any(row.get("side") for row in rows)
        columns = score_columns(
            ensemble.classes, ensemble.positive, sides=sides, weights=ensemble.attends, concepts=ensemble.concept_names
        )
        write_rows(self._out / "scores.csv", columns, rows)
        self._write_for_images(images, items, scores)
        self._alive()
        if "sr" in self._rule.outputs and scores.rows:
            self._write_report(images, items, scores)
        self._results.sort(key=lambda one: _DELIVERY_ORDER.index(one.kind))
        for folder in (self._out / "dicom", self._out, self._out.parent, self._out.parent.parent):
            if folder.is_dir():
                flush(folder)

    def record(self, connection: sqlite3.Connection, now: float) -> int:
        """Add results and deliveries in an open transaction, and return the number of deliveries."""
        study, revision = self._study["id"], self._study["revision"]
        state = "dry_run" if self._config.send.dry_run else "waiting"
        for one in self._results:
            columns = {
                "study_id": study,
                "revision": revision,
                "instance_id": one.instance,
                "kind": one.kind,
                "sop_instance_uid": one.sop_instance_uid,
                "sop_class_uid": one.sop_class_uid,
                "series_uid": one.series_uid,
                "result_study_uid": one.study_uid,
                "path": one.path,
                "sha256": one.sha256,
                "predecessor_uid": one.predecessor,
                "created_at": now,
            }
            result = insert(connection, "results", columns)
            connection.executemany(
                "INSERT INTO deliveries (result_id, peer, state, next_at) VALUES (?, ?, ?, ?)",
                [(result, peer, state, now) for peer in self._rule.send_to],
            )
            count(connection, f"results_{one.kind}")
        connection.executemany(
            "INSERT INTO missing_results VALUES (?, ?, ?, ?, ?)",
            [(study, revision, *missing) for missing in self._missing],
        )
        return len(self._results) * len(self._rule.send_to)

    def _write_for_images(
        self, images: Sequence[sqlite3.Row], items: Sequence[ScoringItem], scores: ItemScores
    ) -> None:
        wanted = frozenset(self._rule.outputs) - {"sr"}
        if not wanted or not scores.rows:
            return
        made = self._scorer.products(
            items,
            scores,
            out=self._out,
            wanted=wanted,
            frames=self._rule.frames,
            keep_ids=self._keep,
            pictures=self._rule.pictures,
            started=self._started,
            revision=self._study["revision"],
        )
        for index, entries in made.items():
            for kind, path, code in entries:
                self._add(kind, path, code, images[index]["id"])

    def _write_report(self, images: Sequence[sqlite3.Row], items: Sequence[ScoringItem], scores: ItemScores) -> None:
        sources = [
            ReportedItem(items[index], tuple(rows), len(scores.failures.get(index, ())))
            for index, rows in sorted(scores.rows.items())
        ]
        earlier, n_gone = self._earlier({one["id"] for one in images})
        order = self._scorer.order(
            self._out,
            frozenset({"sr"}),
            self._rule.frames,
            self._keep,
            self._rule.pictures,
            self._started,
            self._study["revision"],
        )
        before = self._predecessor()
        (failed,) = self._database.rows(
            "SELECT count(*) FROM instances WHERE study_id = ? AND state = 'failed'", (self._study["id"],)
        )[0]
        n_missing = failed + n_gone + len(images) - len(scores.rows)
        made = self._scorer.call(
            write_study_report,
            order,
            str(self._study["pseudonym"]),
            (*earlier, *sources),
            () if before is None else (before,),
            n_missing,
            frames=self._rule.frames,
        )
        if isinstance(made, str):  # the disk is full
            raise UsvitError(made)
        if getattr(made, "error_code", None) == "several_patients":
            raise SeveralPatients
        path, code = getattr(made, "path", None), getattr(made, "error_code", None) or getattr(made, "code", None)
        self._add("sr", path, code, None, None if before is None else before.sop_instance_uid)

    def _earlier(self, without: set[int]) -> tuple[list[ReportedItem], int]:
        """Return the images of earlier revisions whose files are still there, and the number of the others."""
        found, n_gone = [], 0
        rows = self._database.rows(
            "SELECT * FROM instances WHERE study_id = ? AND state IN ('scored', 'expired') AND revision IS NOT NULL "
            "ORDER BY id",
            (self._study["id"],),
        )
        for one in rows:
            if one["id"] in without:
                continue
            if one["state"] == "expired" or one["path"] is None:
                n_gone += 1
                continue
            scores: list[dict[str, object]] = [
                json.loads(row["data"])
                for row in self._database.rows(
                    "SELECT data FROM scores WHERE instance_id = ? ORDER BY frame", (one["id"],)
                )
            ]
            (n_failed,) = self._database.rows("SELECT count(*) FROM failures WHERE instance_id = ?", (one["id"],))[0]
            item = ScoringItem(Path(one["path"]).name, str(self._config.folder / one["path"]))
            found.append(ReportedItem(item, tuple(scores), n_failed))
        return found, n_gone

    def _predecessor(self) -> Predecessor | None:
        """Return the report of the last revision that has one; a report belongs to one study, de-identified or not."""
        row = self._database.one(
            "SELECT * FROM results WHERE study_id = ? AND kind = 'sr' ORDER BY revision DESC LIMIT 1",
            (self._study["id"],),
        )
        if row is None or (row["result_study_uid"] == self._study["study_uid"]) != self._keep:
            return None
        return Predecessor(row["result_study_uid"], row["series_uid"], row["sop_instance_uid"], row["sop_class_uid"])

    def _add(
        self, kind: str, path: str | None, code: str | None, instance: int | None, predecessor: str | None = None
    ) -> None:
        if path is None:
            self._missing.append((instance, kind, code or "not_written"))
            return
        file = self._out / path
        data = dcmread(file, stop_before_pixels=True, specific_tags=["StudyInstanceUID", "SeriesInstanceUID"])
        self._results.append(
            _Result(
                kind=kind,
                path=file.relative_to(self._config.folder).as_posix(),
                instance=instance,
                sop_instance_uid=str(data.file_meta.MediaStorageSOPInstanceUID),
                sop_class_uid=str(data.file_meta.MediaStorageSOPClassUID),
                series_uid=str(data.SeriesInstanceUID),
                study_uid=str(data.StudyInstanceUID),
                sha256=sha256_of_file(file),
                predecessor=predecessor,
            )
        )
