"""``usvit node serve``: the supervisor of the processes of a node.

It checks the configuration, starts the scorers, the sender and the receiver, in this order, and starts a process again
that has died. It decides on studies, looks at watched folders, appends to the audit log, and deletes what is old. Every
step is a transaction of the database, so that the supervisor, too, may be killed at any time.
"""

import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.files import disk_errors, for_the_owner_alone, locked, write_text
from usvit.node.audit_log import NodeAuditLog
from usvit.node.checks import check_before_start
from usvit.node.child_process import ChildProcess, silence_libraries, stop_on_signals
from usvit.node.config.file import load_node_config
from usvit.node.config.settings import NodeConfig
from usvit.node.database import NodeDatabase, add_event
from usvit.node.receiving.folder_watcher import FolderWatcher
from usvit.node.receiving.instance_store import InstanceStore
from usvit.node.studies import complete_studies, replay

logger = logging.getLogger(__name__)

_TICK_SECONDS = 0.2
_RETENTION_SECONDS = 60.0
END_SECONDS = 30.0
"""Time that the processes have to end after SIGTERM, before they are killed."""


@checked_arguments
def serve_node(config: str | Path, *, stop: threading.Event | None = None) -> None:
    """Receive images, score studies and send the results back, until SIGTERM or SIGINT.

    Args:
        config: the configuration, a YAML file.
        stop: ends the service, too; None: signals alone do, and then this must be the main thread.

    Returns:
        When the service has ended; open associations and the current batch are finished first.

    Raises:
        UsvitError: the configuration or the machine does not allow the service to start; nothing has listened.

    Example:
        >>> import usvit
        >>> usvit.serve_node("node.yaml")  # doctest: +SKIP
    """
    settings = load_node_config(config)
    check_before_start(settings)
    with _folder_of(settings):
        frozen = settings.folder / "config.json"
        write_text(frozen, settings.model_dump_json(indent=2) + "\n", mode=0o600)
        silence_libraries()
        _Service(settings, frozen, stop or stop_on_signals()).run()


@checked_arguments
def replay_study(config: str | Path, study: str) -> str:
    """Let a study be decided, scored and sent again by the running node, as a new revision.

    Args:
        config: the configuration of the node.
        study: pseudonym or StudyInstanceUID of the study.

    Returns:
        The pseudonym of the study.

    Raises:
        UsvitError: there is no such study, it is being scored, or its images are deleted.

    Example:
        >>> import usvit
        >>> usvit.replay_study("node.yaml", "b2f1a9c05d3e7f41")  # doctest: +SKIP
        'b2f1a9c05d3e7f41'
    """
    database = NodeDatabase(load_node_config(config).database)
    try:
        return replay(database, study)
    finally:
        database.close()


class _Service:
    def __init__(self, config: NodeConfig, frozen: Path, stop: threading.Event):
        self._config, self._stop = config, stop
        self._database = NodeDatabase(config.database, create=True)
        self._database.set_clock()
        self._database.clamp_stamps(config.send.longest_retry_minutes * 60)
        self._audit = NodeAuditLog(config.folder / "audit.jsonl")
        store = InstanceStore.of(config, self._database, "supervisor")
        store.clear_partials()
        store.clear_leftovers()
        with self._database.transaction() as connection:  # the models and rules may be others than before
            connection.execute("UPDATE studies SET state = 'open', scorer = NULL WHERE state IN ('ready', 'scoring')")
        self._watchers = [FolderWatcher(one, store) for one in config.folders]
        self._scorers = [
            ChildProcess(f"scorer-{number}", "usvit.node.scoring_process:run_scorer", frozen, told)
            for number, told in enumerate(_scorer_arguments(config))
        ]
        self._others = []
        if any(rule.send_to for rule in config.rules):
            self._others.append(ChildProcess("sender", "usvit.node.sending:run_sender", frozen))
        if config.receive is not None:
            self._others.append(ChildProcess("receiver", "usvit.node.receiving.storage_scp:run_receiver", frozen))
        self._children = [*self._scorers, *self._others]
        self._last_retention = -_RETENTION_SECONDS

    def run(self) -> None:
        """Start everything, work until the service is stopped, and end everything.

        Raises:
            UsvitError: a process cannot start, such as a scorer whose model cannot be loaded.
        """
        try:
            for child in self._scorers:
                child.start()
            for child in self._scorers:
                child.wait_until_ready(self._stop)
            self._audit_event("service_started")
            with self._status_page():
                for child in self._others:
                    child.start()
                    if child.name == "receiver":
                        child.wait_until_ready(self._stop)
                self._write_processes()
                logger.info("The node is running. Stop it with Ctrl-C or SIGTERM.")
                while not self._stop.wait(_TICK_SECONDS):
                    self._tick()
        finally:
            self._end()

    def _tick(self) -> None:
        for child in self._children:
            if child.revive():
                logger.warning(f"The process {child.name} has ended, and is started again.")
                self._audit_event("process_restarted", process=child.name, starts=child.n_starts)
                self._write_processes()
        try:
            for watcher in self._watchers:
                watcher.look()
            complete_studies(self._config, self._database)
            self._audit.append(self._database)
            if time.monotonic() - self._last_retention >= _RETENTION_SECONDS:
                self._last_retention = time.monotonic()
                self._database.clamp_stamps(self._config.send.longest_retry_minutes * 60)
                self._apply_retention()
        except (OSError, sqlite3.OperationalError) as error:  # such as a full disk: the next round tries again
            logger.warning(f"The supervisor cannot work ({type(error).__name__}). It tries again.")
            self._stop.wait(1.0)

    def _apply_retention(self) -> None:
        from usvit.node.watching import apply_retention

        apply_retention(self._config, self._database)

    @contextmanager
    def _status_page(self) -> Iterator[None]:
        if self._config.status is None:
            yield
            return
        from usvit.node.watching import status_page

        with status_page(self._config):
            yield

    def _audit_event(self, event: str, **fields: object) -> None:
        with self._database.transaction() as connection:
            add_event(connection, event, **fields)

    def _write_processes(self) -> None:
        """Write the process ids, for ``usvit node status``."""
        pids = {"supervisor": os.getpid(), **{child.name: child.pid for child in self._children}}
        write_text(self._config.folder / "processes.json", json.dumps(pids) + "\n", mode=0o600)

    def _end(self) -> None:
        end = time.monotonic() + END_SECONDS
        for child in self._children:
            child.ask_to_stop()
        for child in self._children:
            child.end(end - time.monotonic())
        self._audit_event("service_stopped")
        self._audit.append(self._database)
        self._database.close()
        (self._config.folder / "processes.json").unlink(missing_ok=True)


@contextmanager
def _folder_of(config: NodeConfig) -> Iterator[None]:
    """Create the folder of the node and hold its lock, so that it has one service."""
    folder = config.folder
    with disk_errors(folder), for_the_owner_alone():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name == "posix" and folder.stat().st_mode & 0o077:
            raise UsvitError(
                f"Others on this machine may enter the folder {folder}, which holds images. Run: chmod 700 {folder}"
            )
    with (
        for_the_owner_alone(),
        locked(folder / "node.lock", f"Another service uses the folder {folder}. Stop it first."),
    ):
        yield


def _scorer_arguments(config: NodeConfig) -> list[str]:
    """Return the argument of each scorer: the models of one GPU, or all models without one, in one process."""
    used = {rule.model for rule in config.rules if rule.model is not None}
    groups: dict[int | None, list[str]] = {}
    for name, model in config.models.items():
        if name in used:
            groups.setdefault(model.gpu, []).append(name)
    return [
        json.dumps({"name": f"scorer-{number}", "models": models, "gpu": gpu})
        for number, (gpu, models) in enumerate(groups.items())
    ]
