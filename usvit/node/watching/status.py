"""The status of a node, read from its database in one consistent snapshot."""

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from usvit import __version__
from usvit.arguments import checked_arguments
from usvit.errors import UsvitError
from usvit.files import read_json
from usvit.node.config.file import load_node_config
from usvit.node.config.settings import NodeConfig
from usvit.node.database import NodeDatabase
from usvit.node.patients import CONFLICT
from usvit.node.records import (
    NodeDisk,
    NodePeerQueue,
    NodeProblem,
    NodeProcess,
    NodeStatusRecord,
    NodeThroughput,
    NodeWatch,
)
from usvit.records import WatchRecord, load_record

_INSTANCE_STATES = ("stored", "scored", "failed", "ignored", "expired")
_STUDY_STATES = ("open", "ready", "scoring", "done", "left_alone", "failed", CONFLICT)
_STUDY_STATE = f"CASE reason WHEN '{CONFLICT}' THEN reason ELSE state END"
KINDS = ("sr", "sc", "gsps")
DELIVERY_STATES = ("waiting", "sent", "committed", "gave_up", "dry_run")
_COMMITMENT_STATES = ("waiting", "complete", "incomplete", "expired")
ORDINARY = (
    "received",
    "instance_duplicate",
    "study_complete",
    "study_scored",
    "study_reopened",
    "study_replayed",
    "study_left_alone",
    "service_started",
    "service_stopped",
    "delivered",
    "commitment_requested",
    "commitment_complete",
    "images_expired",
    "results_expired",
)
"""Events of the audit log that tell of no problem. A new kind of event counts as a problem until it is listed here."""
_MOST_PROBLEMS = 20
_RECENT_EVENTS = 10_000
"""Number of events that are searched for problems."""


@checked_arguments
def node_status(config: str | Path) -> NodeStatusRecord:
    """Return what a node holds and does now, whether it runs or not.

    Args:
        config: the configuration of the node, a YAML file.

    Returns:
        Counts, queues, throughput, disk and the last problems; no name, id or UID of a patient.

    Raises:
        UsvitError: the configuration cannot be used, or the node has never run.

    Example:
        >>> import usvit
        >>> usvit.node_status("node.yaml").studies["done"]  # doctest: +SKIP
        50
    """
    settings = load_node_config(config)
    return read_status(settings.folder, settings)


def read_status(folder: Path, config: NodeConfig | None = None, now: float | None = None) -> NodeStatusRecord:
    """Return the status of the node in a folder.

    Args:
        folder: folder of the node.
        config: its configuration, from which limits and peers without deliveries are taken; None: without them.
        now: time in seconds since 1970; None: the clock.

    Raises:
        UsvitError: the folder holds no node, or its database cannot be used.
    """
    database = NodeDatabase(folder / "node.sqlite")
    try:
        at, now = (time.time(), database.now()) if now is None else (now, now)
        with _snapshot(database):
            return _status(database, folder, config, at, now)
    finally:
        database.close()


def folder_bytes(folder: Path) -> int:
    """Return the size of all files below a folder; files that disappear meanwhile do not count."""
    total, waiting = 0, [folder]
    while waiting:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(waiting.pop()) as entries:
            for one in entries:
                with contextlib.suppress(FileNotFoundError):
                    if one.is_dir(follow_symlinks=False):
                        waiting.append(Path(one.path))
                    else:
                        total += one.stat(follow_symlinks=False).st_size
    return total


@contextmanager
def _snapshot(database: NodeDatabase) -> Iterator[None]:
    """Let all queries of the block see the same moment."""
    database.connection.execute("BEGIN")
    try:
        yield
    finally:
        database.connection.execute("ROLLBACK")


def _status(database: NodeDatabase, folder: Path, config: NodeConfig | None, at: float, now: float) -> NodeStatusRecord:
    processes = _processes(folder)
    instances = dict.fromkeys(_INSTANCE_STATES, 0)
    images_bytes = 0
    for state, number, size in database.rows("SELECT state, count(*), sum(n_bytes) FROM instances GROUP BY state"):
        instances[state] = number
        images_bytes += 0 if state == "expired" else size
    (oldest,) = database.rows("SELECT min(first_at) FROM studies WHERE state IN ('open', 'ready', 'scoring')")[0]
    (missing,) = database.rows("SELECT count(*) FROM missing_results")[0]
    usage = shutil.disk_usage(folder)
    return NodeStatusRecord(
        usvit_version=__version__,
        time=datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds"),
        running=any(one.name == "supervisor" and one.alive for one in processes),
        processes=processes,
        instances=instances,
        studies=_counts(database, "studies", _STUDY_STATE, _STUDY_STATES),
        results=_counts(database, "results", "kind", KINDS),
        missing_results=missing,
        commitments=_counts(database, "commitments", "state", _COMMITMENT_STATES),
        oldest_study_seconds=None if oldest is None else max(0.0, now - oldest),
        deliveries=_deliveries(database, config, now),
        counters=dict(map(tuple, database.rows("SELECT name, value FROM counters ORDER BY name"))),
        throughput=_throughput(database, now),
        disk=NodeDisk(
            free_bytes=usage.free,
            total_bytes=usage.total,
            min_free_bytes=int(config.receive.min_free_gb * 1e9) if config and config.receive else None,
            images_bytes=images_bytes,
            results_bytes=folder_bytes(folder / "results"),
            max_bytes=int(config.retention.max_gb * 1e9) if config and config.retention.max_gb else None,
        ),
        problems=_problems(database),
        watch=_watched(folder / "watch" / "watch.json"),
    )


def _watched(file: Path) -> NodeWatch | None:
    """Return the last verdict of ``usvit watch``; None if it was not run on this node."""
    if not file.is_file():
        return None
    try:
        found = load_record(file, WatchRecord)
    except UsvitError as error:
        return NodeWatch(time=None, verdict="unreadable", reasons=[str(error)])
    return NodeWatch(time=found.time, verdict=found.verdict, reasons=found.reasons)


def _counts(database: NodeDatabase, table: str, column: str, names: tuple[str, ...]) -> dict[str, int]:
    rows = database.rows(f"SELECT {column}, count(*) FROM {table} GROUP BY 1")
    return dict.fromkeys(names, 0) | dict(map(tuple, rows))


def _deliveries(database: NodeDatabase, config: NodeConfig | None, now: float) -> list[NodePeerQueue]:
    """Return the queue of each peer, those of the configuration first."""
    counts = {name: dict.fromkeys(DELIVERY_STATES, 0) for name in (config.peers if config else ())}
    for peer, state, number in database.rows("SELECT peer, state, count(*) FROM deliveries GROUP BY peer, state"):
        counts.setdefault(peer, dict.fromkeys(DELIVERY_STATES, 0))[state] = number
    queues = []
    for peer, by_state in counts.items():
        (oldest,) = database.rows(
            "SELECT min(results.created_at) FROM deliveries JOIN results ON results.id = result_id "
            "WHERE peer = ? AND deliveries.state = 'waiting'",
            (peer,),
        )[0]
        failed = database.one(
            "SELECT last_status, last_error FROM deliveries WHERE peer = ? AND state = 'waiting' AND attempts > 0 "
            "AND last_error IS NOT NULL ORDER BY next_at DESC LIMIT 1",
            (peer,),
        )
        queue = NodePeerQueue(
            peer=peer,
            waiting=by_state["waiting"],
            sent=by_state["sent"],
            committed=by_state["committed"],
            gave_up=by_state["gave_up"],
            dry_run=by_state["dry_run"],
            oldest_waiting_seconds=None if oldest is None else max(0.0, now - oldest),
            last_status=None if failed is None else failed["last_status"],
            last_error=None if failed is None else failed["last_error"],
        )
        queues.append(queue)
    return queues


def _throughput(database: NodeDatabase, now: float) -> NodeThroughput:
    found = {}
    for name, seconds in (("minute", 60), ("hour", 3600)):
        found[f"received_{name}"] = 0
        (found[f"scored_{name}"],) = database.rows(
            "SELECT count(*) FROM studies JOIN instances ON study_id = studies.id AND instances.state = 'scored' "
            "AND instances.revision = studies.revision WHERE studies.state = 'done' AND done_at > ?",
            (now - seconds,),
        )[0]
    received = database.connection.execute("SELECT received_at FROM instances ORDER BY id DESC")
    for (at,) in received:  # ids ascend with time, so that only the last hour is read
        if at <= now - 3600:
            break
        found["received_hour"] += 1
        found["received_minute"] += at > now - 60
    received.close()
    return NodeThroughput(**found)


def _problems(database: NodeDatabase) -> list[NodeProblem]:
    """Return the last events of the audit log that tell of a problem."""
    (last,) = database.rows("SELECT coalesce(max(id), 0) FROM audit_events")[0]
    marks = ", ".join("?" * len(ORDINARY))
    rows = database.rows(
        f"SELECT time, event, data FROM audit_events WHERE id > ? AND event NOT IN ({marks}) ORDER BY id DESC LIMIT ?",
        (last - _RECENT_EVENTS, *ORDINARY, _MOST_PROBLEMS),
    )
    found = []
    for row in rows:
        data = json.loads(row["data"])
        study = data.pop("study", None)
        told = ", ".join(
            f"{name.replace('_', ' ')} {value}" for name, value in data.items() if isinstance(value, str | int | float)
        )
        found.append(NodeProblem(time=row["time"], event=row["event"], study=study, detail=told[:500]))
    return found


def _processes(folder: Path) -> list[NodeProcess]:
    """Return the processes of ``processes.json``, which exists while the service runs or after it was killed."""
    try:
        pids = read_json(folder / "processes.json")
    except UsvitError:
        return []
    return [NodeProcess(name=str(name), alive=_is_alive(pid)) for name, pid in pids.items()]


def _is_alive(pid: int | None) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        pass
    return True
