"""Kill processes of `usvit node serve` at random while images arrive, and count what became of every image.

    python -m benchmarks.node_kills --model runs/x [--kills 100] [--seed 0]

`kill -9` hits the receiver, a scorer or the sender, drawn at random, while a sender goes on with studies of some
images, some of which come late. It sends an instance until it is acknowledged. An archive in this process answers every
C-STORE with Success, and writes down each SOP instance UID and the hash of its bytes. At the end the service works in
peace until nothing waits any more, and the benchmark prints what it counts. Its exit code is 1 if an acknowledged image
is not in exactly one of scored and failed, a result is missing at the archive, or one came twice with other bytes.
"""

import argparse
import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from pydicom import dcmread
from pydicom.uid import UltrasoundImageStorage
from pynetdicom import AE, StoragePresentationContexts, evt
from pynetdicom.dimse_primitives import C_STORE

from tests.node.images import ROOT, RunningNode, image, serving, settings
from tests.programs import a_free_port

PROCESSES = ("receiver", "scorer-0", "sender")


class _Archive:
    """An SCP that stores nothing, and knows the hash of each data set that it acknowledged."""

    def __init__(self) -> None:
        self.port = a_free_port()
        self.hashes: defaultdict[str, list[str]] = defaultdict(list)
        entity = AE(ae_title="ARCHIVE")
        entity.supported_contexts = StoragePresentationContexts
        self._server = entity.start_server(
            ("127.0.0.1", self.port), block=False, evt_handlers=[(evt.EVT_C_STORE, self._on_store)]
        )

    def _on_store(self, event: evt.Event) -> int:
        assert isinstance(event.request, C_STORE)
        digest = hashlib.sha256(event.encoded_dataset(include_meta=False)).hexdigest()
        self.hashes[str(event.request.AffectedSOPInstanceUID)].append(digest)
        return 0


def send_until_acknowledged(port: int, files: list[Path], acknowledged: list[str], attempts: Counter[str]) -> None:
    """Send files over associations that may break at any time."""
    waiting = list(files)
    entity = AE(ae_title="SCANNER")
    entity.add_requested_context(UltrasoundImageStorage)
    entity.acse_timeout = entity.dimse_timeout = entity.network_timeout = 10
    while waiting:
        association = entity.associate("127.0.0.1", port, ae_title="USVIT")
        if not association.is_established:
            attempts["association refused"] += 1
            time.sleep(0.3)
            continue
        while waiting and association.is_established:
            data = dcmread(waiting[0])
            try:
                status = association.send_c_store(data)
            except RuntimeError:  # the association broke off
                break
            if status.get("Status") != 0:
                attempts["not acknowledged"] += 1
                break
            acknowledged.append(str(data.SOPInstanceUID))
            waiting.pop(0)
            time.sleep(0.02)
        if association.is_established:
            association.release()


def kill_some(node: RunningNode, kills: int, seed: int, pause: float, done: Counter[str]) -> None:
    """Kill a process again and again, each time when it has been started again."""
    draw = random.Random(seed)
    path = node.config.folder / "processes.json"
    killed: set[int] = set()
    while sum(done.values()) < kills:
        time.sleep(draw.uniform(0.2, 1.8) * pause)
        name = draw.choice(PROCESSES)
        pid = json.loads(path.read_text())[name]
        if pid in killed:  # it is not back yet
            continue
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        killed.add(pid)
        done[name] += 1
        print(f"\r{sum(done.values())} kills", end="", file=sys.stderr, flush=True)


def judge(node: RunningNode, archive: _Archive, acknowledged: list[str]) -> tuple[dict[str, Any], bool]:
    """Count what became of every image and result."""
    states = {row["sop_instance_uid"]: row["state"] for row in node.database.rows("SELECT * FROM instances")}
    scored = {
        row[0]
        for row in node.database.rows(
            "SELECT DISTINCT sop_instance_uid FROM instances i JOIN scores s ON s.instance_id = i.id"
        )
    }
    failed = {
        row[0]
        for row in node.database.rows(
            "SELECT sop_instance_uid FROM instances i JOIN failures f ON f.instance_id = i.id WHERE frame IS NULL"
        )
    }
    results = {row["sop_instance_uid"]: row for row in node.database.rows("SELECT * FROM results")}
    twice = {uid for uid, hashes in archive.hashes.items() if len(hashes) > 1}
    audit = [json.loads(line) for line in (node.config.folder / "audit.jsonl").read_text().splitlines()]
    numbers = [line["event_id"] for line in audit]
    found = {
        "images acknowledged": len(acknowledged),
        "of them lost": len(set(acknowledged) - states.keys()),
        "of them scored": sum(states.get(uid) == "scored" for uid in acknowledged),
        "of them failed": sum(states.get(uid) == "failed" for uid in acknowledged),
        "of them in both or neither": sum((uid in scored) == (uid in failed) for uid in acknowledged),
        "images stored whose acknowledgement was lost": len(states.keys() - set(acknowledged)),
        "results": len(results),
        "of them missing at the archive": len(results.keys() - archive.hashes.keys()),
        "objects at the archive that are no result": len(archive.hashes.keys() - results.keys()),
        "results transmitted again after a kill, with the same UID": len(twice),
        "of them with other bytes": sum(len(set(archive.hashes[uid])) > 1 for uid in twice),
        "reports with a predecessor": sum(row["predecessor_uid"] is not None for row in results.values()),
        "lines of the audit log": len(numbers),
        "of them missing or twice": abs(len(numbers) - max(numbers)) + len(numbers) - len(set(numbers)),
        "processes started again": sum(line["event"] == "process_restarted" for line in audit),
    }
    wrong = (
        *("of them lost", "of them in both or neither", "of them missing at the archive", "of them with other bytes"),
        *("objects at the archive that are no result", "of them missing or twice"),
    )
    return found, not any(found[name] for name in wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--pause", type=float, default=2.0, help="mean time between kills, in seconds")
    parser.add_argument("--images", type=int, default=3, help="images of a study, and one more that comes late")
    parser.add_argument("--seed", type=int, default=0)
    told = parser.parse_args()
    archive, acknowledged, attempts, done = _Archive(), list[str](), Counter[str](), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        content = settings(
            folder,
            models={"main": {"path": str(Path(told.model).absolute()), "device": "cpu"}},
            peers={"archive": {"ae_title": "ARCHIVE", "host": "127.0.0.1", "port": archive.port}},
            rules=[{"name": "all", "model": "main", "outputs": ["sr", "sc", "gsps"], "send_to": ["archive"]}],
            send={"first_retry_seconds": 0.2, "longest_retry_minutes": 0.1},
            studies={"quiet_seconds": 1.0},
        )
        with serving(folder, content) as node:
            killer = threading.Thread(target=kill_some, args=(node, told.kills, told.seed, told.pause, done))
            began = time.monotonic()
            killer.start()
            study = 0
            while killer.is_alive():
                study += 1
                files = [image(folder / f"{study}-{k}.dcm", study, k) for k in range(1, told.images + 1)]
                send_until_acknowledged(node.port, files, acknowledged, attempts)
                if study % 3 == 0:
                    late = [image(folder / f"{study}-late.dcm", study - 2, 99)]
                    send_until_acknowledged(node.port, late, acknowledged, attempts)
                time.sleep(told.pause)
            killed = time.monotonic() - began
            node.wait_for(
                "SELECT NOT EXISTS (SELECT 1 FROM studies WHERE state NOT IN ('done', 'failed'))", seconds=900
            )
            node.wait_for("SELECT NOT EXISTS (SELECT 1 FROM deliveries WHERE state = 'waiting')", seconds=300)
            time.sleep(1)
            found, good = judge(node, archive, acknowledged)
    print(f"\nkills: {sum(done.values())} in {killed:.0f} s: {dict(done)}; sender: {dict(attempts)}; studies: {study}")
    for name, value in found.items():
        print(f"{value:8}  {name}")
    assert all(uid.startswith(ROOT) for uid in acknowledged)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
