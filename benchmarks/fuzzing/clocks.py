"""Clocks that jump by up to ten years between the steps of a study and its delivery, while the service starts again.

The study must be complete after its quiet time, no result may be given up that was hardly tried, and nothing
undelivered may be deleted.
"""

import functools
import random
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.fuzzing.associations import image
from benchmarks.fuzzing.child import Ended, run_apart
from benchmarks.fuzzing.folders import saved
from benchmarks.fuzzing.harness import Options

DAY = 86400.0


def clocks(root: Path, options: Options) -> Iterator[Ended]:
    import usvit.node  # noqa: F401

    for number in options.numbers:
        folder = root / str(number)
        folder.mkdir()
        work = functools.partial(let_jump, folder, options.random(number))
        yield run_apart(work, kind="clock", name=str(number), **options.limits)


def let_jump(folder: Path, rng: random.Random) -> str:
    from usvit.files import insert
    from usvit.node import database as module
    from usvit.node.config.settings import NodeConfig
    from usvit.node.database import NodeDatabase
    from usvit.node.receiving.instance_store import InstanceStore
    from usvit.node.sending.delivery_process import PeerDelivery
    from usvit.node.studies import complete_studies
    from usvit.node.watching import apply_retention
    from usvit.pseudonyms import Pseudonyms

    real, ahead = time.time, [0.0]
    module.time.time = lambda: real() + ahead[0]
    config = NodeConfig.model_validate(
        {
            "folder": folder / "node",
            "studies": {"quiet_seconds": 0.05},
            "models": {"m": {"path": folder}},
            "rules": [{"name": "all", "model": "m", "send_to": ["p"]}],
            "peers": {"p": {"ae_title": "P", "host": "127.0.0.1", "port": 9, "timeout_seconds": 0.2}},
        }
    )
    (folder / "node" / "results").mkdir(parents=True)
    database = NodeDatabase(config.database, create=True)

    def jump() -> None:
        if rng.random() < 0.8:
            size = 10 ** rng.uniform(0, 8.5)
            ahead[0] = rng.choice((-1, 1)) * min(size, 3650 * DAY)
        if rng.random() < 0.3:  # the service starts again
            database.set_clock()
            database.clamp_stamps(config.send.longest_retry_minutes * 60)

    database.set_clock()
    store = InstanceStore(config.folder, database, Pseudonyms(bytes(range(32))))
    for number in (1, 2):
        jump()
        image(number).save_as(partial := store.partial(), enforce_file_format=True)
        assert store.take(partial, source="dimse").outcome == "stored"
    jump()
    database.set_clock()  # as the last start of the service does
    database.clamp_stamps(config.send.longest_retry_minutes * 60)
    time.sleep(0.06)
    assert complete_studies(config, database) == 1, "the study is not complete after its quiet time"
    result = saved(folder / "node" / "results" / "r.dcm", 3)
    with database.transaction() as connection:
        connection.execute("UPDATE studies SET state = 'done', done_at = ?", (database.now(),))
        uids = {"sop_instance_uid": "1.2.3", "sop_class_uid": "1.2", "series_uid": "1.2", "result_study_uid": "1.2"}
        columns = {"study_id": 1, "revision": 1, "kind": "sr", **uids, "path": "results/r.dcm"}
        from usvit.files import sha256_of_file

        columns |= {"sha256": sha256_of_file(result), "created_at": database.now()}
        key = insert(connection, "results", columns)
        insert(connection, "deliveries", {"result_id": key, "peer": "p", "state": "waiting", "next_at": 0})
    for _ in range(6):
        jump()
        delivery = PeerDelivery(config, "p", database)
        database.connection.execute("UPDATE deliveries SET next_at = min(next_at, ?)", (database.now(),))
        delivery.work(threading.Event())
        apply_retention(config, database)
        (state,) = database.rows("SELECT state FROM deliveries")[0]
        assert state == "waiting", f"the result is {state}"
        assert result.exists() and len(list((folder / "node" / "incoming").rglob("*.dcm"))) == 2, "a file was deleted"
    return "complete and waiting"
