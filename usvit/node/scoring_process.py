"""The scorer: a process that keeps models loaded and scores one study after the other.

A study is claimed, scored, and its results are written to the disk; then one transaction records scores, failures,
results and deliveries. A scorer that is killed before it leaves the study to be scored again. Its results then have the
same UIDs and bytes, since these depend only on the key, the images, the model, and the time and number of the revision.
"""

import errno
import json
import logging
import os
import shutil
import sqlite3
import threading
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import disk_errors, for_the_owner_alone
from usvit.node.child_process import report_ready
from usvit.node.config.settings import NodeConfig, NodeModelConfig, NodeRule
from usvit.node.database import NodeDatabase, add_event, count
from usvit.node.patients import stop_study
from usvit.node.receiving.instance_store import reopen_study
from usvit.node.study_results import SeveralPatients, StudyResults
from usvit.pseudonyms import Pseudonyms
from usvit.scoring import ItemScorer, ItemScores, ModelChoice, ScoringItem, natural

logger = logging.getLogger(__name__)

_MOST_ATTEMPTS = 10
"""Attempts after which a study whose scorer always dies is given up, so that others are served."""
POLL_SECONDS = 0.25
_PAUSE_SECONDS = 10.0
"""Time to wait if the disk is full."""


class _StoppedScoring(Exception):
    """The service stops; the study is scored later."""


def run_scorer(config: NodeConfig, stop: threading.Event, argument: str) -> None:
    """Score studies until ``stop`` is set; the main function of the process.

    Args:
        config: configuration of the node.
        stop: ends the process after the batch that is being scored.
        argument: JSON with the ``name`` of the scorer, its ``models``, and the ``gpu`` that it uses or null.

    Raises:
        UsvitError: a model cannot be loaded.
    """
    told = json.loads(argument)
    if told["gpu"] is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(told["gpu"])
    pseudonyms = Pseudonyms.of_key(config.key_path)
    database = NodeDatabase(config.database)
    _release_studies(database, told["name"])
    scorers = {name: open_scorer(config.models[name], pseudonyms) for name in told["models"]}
    try:
        report_ready()
        worker = _StudyScorer(config, database, pseudonyms, scorers, told["name"], stop)
        while not stop.is_set():
            study = worker.claim()
            if study is None:
                stop.wait(POLL_SECONDS)
            else:
                worker.work_on(study)
    finally:
        for scorer in scorers.values():
            scorer.__exit__(None, None, None)
        database.close()


def open_scorer(model: NodeModelConfig, pseudonyms: Pseudonyms) -> ItemScorer:
    """Load a model.

    Raises:
        UsvitError: it cannot be loaded.
    """
    return ItemScorer(ModelChoice((model.path,), model), pseudonyms)


def _release_studies(database: NodeDatabase, scorer: str) -> None:
    """Let studies be scored again that a process of this name was scoring when it died."""
    with database.transaction() as connection:
        connection.execute(
            "UPDATE studies SET state = 'ready', scorer = NULL WHERE state = 'scoring' AND scorer = ?", (scorer,)
        )


class _StudyScorer:
    def __init__(
        self,
        config: NodeConfig,
        database: NodeDatabase,
        pseudonyms: Pseudonyms,
        scorers: Mapping[str, ItemScorer],
        name: str,
        stop: threading.Event,
    ):
        self._config, self._database, self._pseudonyms = config, database, pseudonyms
        self._scorers, self._name, self._stop = scorers, name, stop
        self._rules = {rule.name: rule for rule in config.rules}

    def claim(self) -> sqlite3.Row | None:
        """Take the study that has waited longest; None if none waits.

        Studies whose scorer has died come after the others, which they would otherwise hold up.
        """
        models = ", ".join("?" * len(self._scorers))
        query = (
            f"SELECT id FROM studies WHERE state = 'ready' AND model IN ({models}) "
            "ORDER BY attempts, last_at, id LIMIT 1"
        )
        if self._database.one(query, tuple(self._scorers)) is None:  # without a lock: the usual case
            return None
        started = datetime.now().astimezone().replace(tzinfo=None).isoformat(timespec="seconds")
        with self._database.transaction() as connection:
            found = connection.execute(query, tuple(self._scorers)).fetchone()
            if found is None:
                return None
            connection.execute(
                "UPDATE studies SET state = 'scoring', scorer = ?, attempts = attempts + 1, "
                "started_at = coalesce(started_at, ?) WHERE id = ?",
                (self._name, started, found["id"]),
            )
            study: sqlite3.Row = connection.execute("SELECT * FROM studies WHERE id = ?", (found["id"],)).fetchone()
        return study

    def work_on(self, study: sqlite3.Row) -> None:
        """Score a claimed study, or give it back."""
        rule = self._rules.get(study["rule"] or "")
        if rule is None or rule.model not in self._scorers:  # the configuration has changed since: decide again
            self._set_back(study, "open")
            return
        if study["attempts"] > _MOST_ATTEMPTS:
            self._give_up(study, "crashed")
            return
        try:
            self._score(study, rule)
        except SeveralPatients:
            with self._database.transaction() as connection:
                stop_study(connection, study["id"], self._database.now())
        except _StoppedScoring:
            self._set_back(study, "ready", "attempts = attempts - 1")
        except UsvitError as error:
            cause = error.__cause__
            if isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT):
                logger.warning("The disk is full: the study is scored when there is room.")
                self._set_back(study, "ready", "attempts = attempts - 1")
                self._stop.wait(_PAUSE_SECONDS)
            else:  # such as a network whose outputs are not finite; the text names no file of a patient
                logger.warning(f"A study could not be scored: {error}")
                self._give_up(study, "model_error")

    def _score(self, study: sqlite3.Row, rule: NodeRule) -> None:
        assert rule.model is not None and study["started_at"] is not None
        scorer = self._scorers[rule.model]
        fingerprint = f"{scorer.ensemble.sha256} {self._config.models[rule.model].model_dump_json()} {rule.frames}"
        images = self._images(study, fingerprint)
        folder = self._config.folder / "incoming"
        items = [ScoringItem(Path(one["path"]).name, str(self._config.folder / one["path"])) for one in images]
        assert all(Path(item.location).is_relative_to(folder) for item in items)
        scores = scorer.score(items, rule.frames, self._go_on)
        out = self._config.folder / "results" / study["pseudonym"] / str(study["revision"])
        with for_the_owner_alone(), disk_errors(out):
            shutil.rmtree(out, ignore_errors=True)  # of an attempt that was interrupted, with fewer images perhaps
            out.mkdir(parents=True)
            results = StudyResults(self._config, self._database, study, rule, out, scorer, self._go_on)
            results.write(images, items, scores)
        self._commit(study, rule, images, scores, results, fingerprint)

    def _images(self, study: sqlite3.Row, fingerprint: str) -> list[sqlite3.Row]:
        """Return the images to score: new ones, and all if the model or its settings have changed since the last time.

        They are in the order in which ``usvit score`` finds the files of the folder.
        """
        rows = self._database.rows(
            "SELECT * FROM instances WHERE study_id = ? AND path IS NOT NULL AND state IN ('stored', 'scored')",
            (study["id"],),
        )
        same = study["settings"] == fingerprint
        wanted = [row for row in rows if row["state"] == "stored" or (row["state"] == "scored" and not same)]
        return sorted(wanted, key=lambda row: natural(Path(row["path"]).name))

    def _commit(
        self,
        study: sqlite3.Row,
        rule: NodeRule,
        images: list[sqlite3.Row],
        scores: ItemScores,
        results: StudyResults,
        fingerprint: str,
    ) -> None:
        now = self._database.now()
        with self._database.transaction() as connection:
            current = connection.execute("SELECT state, scorer FROM studies WHERE id = ?", (study["id"],)).fetchone()
            if current["state"] != "scoring" or current["scorer"] != self._name:
                return  # another process has taken it over
            for index, image in enumerate(images):
                _record(connection, image["id"], scores, index, study["revision"])
            n_deliveries = results.record(connection, now)
            connection.execute(
                "UPDATE studies SET state = 'done', done_at = ?, scorer = NULL, settings = ? WHERE id = ?",
                (now, fingerprint, study["id"]),
            )
            late = connection.execute(
                "SELECT count(*) FROM instances WHERE study_id = ? AND state = 'stored'", (study["id"],)
            ).fetchone()[0]
            n_scored, n_failed = len(scores.rows), len(images) - len(scores.rows)
            add_event(
                connection,
                "study_scored",
                study=study["pseudonym"],
                revision=study["revision"],
                rule=rule.name,
                model=rule.model,
                model_sha256=self._scorers[str(rule.model)].ensemble.sha256,
                scored=n_scored,
                failed=n_failed,
                results=results.hashes,
                deliveries=n_deliveries,
            )
            count(connection, "studies_scored")
            count(connection, "instances_scored", n_scored)
            count(connection, "instances_failed", n_failed)
            count(connection, "frames_scored", sum(map(len, scores.rows.values())))
            if late:  # images that arrived while the study was scored
                reopen_study(connection, study["id"])
                add_event(connection, "study_reopened", study=study["pseudonym"], revision=study["revision"] + 1)

    def _go_on(self) -> None:
        if self._stop.is_set():
            raise _StoppedScoring

    def _set_back(self, study: sqlite3.Row, state: str, also: str = "scorer = NULL") -> None:
        with self._database.transaction() as connection:
            connection.execute(
                f"UPDATE studies SET state = ?, scorer = NULL, {also} WHERE id = ? AND state = 'scoring'",
                (state, study["id"]),
            )

    def _give_up(self, study: sqlite3.Row, reason: str) -> None:
        code = "crashed"
        with self._database.transaction() as connection:
            state = connection.execute("SELECT state FROM studies WHERE id = ?", (study["id"],)).fetchone()["state"]
            if state != "scoring":  # stopped meanwhile, because an image of another patient has arrived
                return
            lost = [
                row["id"]
                for row in connection.execute(
                    "SELECT id FROM instances WHERE study_id = ? AND state = 'stored'", (study["id"],)
                )
            ]
            for number in lost:
                connection.execute("INSERT INTO failures VALUES (?, NULL, ?)", (number, code))
            connection.execute(
                "UPDATE instances SET state = 'failed', failure_code = ?, revision = ? WHERE study_id = ? AND "
                "state = 'stored'",
                (code, study["revision"], study["id"]),
            )
            connection.execute(
                "UPDATE studies SET state = 'failed', scorer = NULL, reason = ?, done_at = ? WHERE id = ?",
                (reason, self._database.now(), study["id"]),
            )
            add_event(connection, "study_failed", study=study["pseudonym"], reason=reason, images=len(lost))
            count(connection, "instances_failed", len(lost))


def _record(connection: sqlite3.Connection, instance: int, scores: ItemScores, index: int, revision: int) -> None:
    """Write the scores and failures of one instance in place of earlier ones."""
    rows, failures = scores.rows.get(index, []), scores.failures.get(index, [])
    connection.execute("DELETE FROM scores WHERE instance_id = ?", (instance,))
    connection.execute("DELETE FROM failures WHERE instance_id = ?", (instance,))
    connection.executemany(
        "INSERT INTO scores VALUES (?, ?, ?)",
        [(instance, row["frame"], json.dumps(row)) for row in rows],
    )
    connection.executemany("INSERT INTO failures VALUES (?, ?, ?)", [(instance, *one) for one in failures])
    code = None if rows else (failures[0][1] if failures else "no_pixels")
    connection.execute(
        "UPDATE instances SET state = ?, failure_code = ?, revision = ? WHERE id = ?",
        ("scored" if rows else "failed", code, revision, instance),
    )
