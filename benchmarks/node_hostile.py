"""Hostile peers, exporters and clocks around a node: ``python -m benchmarks.node_hostile``.

Every case runs in a process of its own with the limits of ``benchmarks.hostile``:

- **peers**: a client of the package talks to a server that redirects, never ends its answer, sends a byte now and
  then, compresses, lies about the length, or is silent (``benchmarks.node_hostile_peers``). Nothing may reach the
  server that a redirect names.
- **folder**: an exporter replaces, removes, grows and links files of a watched folder between the steps of the node.
  Each image that it left in place must be stored, or still be there; nothing outside may change.
- **clocks**: the clock jumps by up to ten years between the steps of a study and its delivery, and the service is
  started again. The study must be complete after its quiet time, no result may be given up that was hardly tried, and
  nothing undelivered may be deleted.
"""

import argparse
import contextlib
import functools
import os
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.hostile import Ended, changes, run_apart, show_bad, snapshot, tell
from benchmarks.node_fuzz import image
from benchmarks.node_hostile_peers import dicom_peer, http_peer, serving

SECONDS = 3.4
"""Limit of the CPU time; a case that waits is ended after three times as long."""
MEMORY_GB = 1.0
TIMEOUT = 0.5
HTTP_KINDS = ("redirect", "endless", "endless_header", "drip", "drip_header", "bomb", "pages", "lies", "silent")
DICOM_KINDS = ("endless", "fragments", "drip", "slow_matches", "huge", "silent")
DAY = 86400.0


def saved(path: Path, number: int, **tags: Any) -> Path:
    """Write an image as a file, as an exporter does: under another name, and then renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{number}")
    image(number, **tags).save_as(partial, enforce_file_format=True)
    os.replace(partial, path)
    return path


# Peers


def _web(port: int) -> Any:
    from usvit.node.config.settings import PeerConfig

    return PeerConfig(dicomweb=f"http://127.0.0.1:{port}/dicom-web", timeout_seconds=TIMEOUT)


def _ae(port: int) -> Any:
    from usvit.node.config.settings import PeerConfig

    return PeerConfig(ae_title="PEER", host="127.0.0.1", port=port, timeout_seconds=TIMEOUT)


def _stow(port: int, folder: Path) -> object:
    from usvit.node import send_dicom

    return send_dicom(saved(folder / "a.dcm", 1), stow=f"http://127.0.0.1:{port}/x", timeout=TIMEOUT).failed


def _store(port: int, folder: Path) -> object:
    from usvit.node import send_dicom

    return send_dicom(saved(folder / "a.dcm", 1), to=f"PEER@127.0.0.1:{port}", timeout=TIMEOUT).failed


def _pull(peer: Callable[[int], Any], port: int, folder: Path) -> object:
    import yaml

    from usvit.node.receiving import archives
    from usvit.node.receiving.pulling import pull_studies

    archives.MOST_MATCHES = 1_000  # 100,000, as in the package, take minutes
    told = {
        "folder": str(folder / "node"),
        "models": {"m": {"path": str(folder)}},
        "rules": [{"name": "all", "model": "m"}],
        "peers": {"p": peer(port).model_dump(mode="json", exclude_defaults=True)},
    }
    (folder / "node.yaml").write_text(yaml.safe_dump(told))
    return pull_studies(folder / "node.yaml", "p", study="1.2.3").failed


def _wado(port: int, folder: Path) -> object:
    from usvit.errors import UsvitError
    from usvit.node.receiving.archives import ArchivedInstance, WebArchive
    from usvit.node.sending import PeerUnavailable

    try:
        with WebArchive(_web(port), 2_000_000) as archive:
            return archive.instance(ArchivedInstance("1.2", "1.3", "1.4", ""), folder / "a.dcm")
    except PeerUnavailable as error:
        raise UsvitError(str(error)) from error


def _fetch(port: int, folder: Path) -> None:
    from usvit.data.datasets import download
    from usvit.data.datasets.cards import FetchFile
    from usvit.progress import NoProgress

    download.WAITS, download.TIMEOUT, download.MAX_UNTOLD = (0.1,), TIMEOUT, 5_000_000
    download.download(FetchFile(url=f"http://127.0.0.1:{port}/a", md5="0" * 32), folder / "a.zip", NoProgress())


def _shards(port: int, folder: Path) -> object:
    from usvit.upstream.sources import shards

    shards.TIMEOUT, shards.MOST_BYTES = TIMEOUT, 5_000_000
    return len(shards.open_shards(f"http://127.0.0.1:{port}/a.tar", shards.ShardFiles(folder / "cache", 1.0)))


def _doctor(peer: Callable[[int], Any], port: int, folder: Path) -> object:
    from usvit.node.config.settings import NodeConfig
    from usvit.node.watching.peers import check_peer

    told = {"folder": folder, "models": {"m": {"path": folder}}, "rules": [{"name": "all", "model": "m"}]}
    return check_peer("p", peer(port), NodeConfig.model_validate(told), ("sr",))


WEB_CLIENTS: dict[str, Callable[[int, Path], object]] = {
    "dicom send --stow": _stow,
    "node pull (QIDO)": lambda port, folder: _pull(_web, port, folder),
    "WADO": _wado,
    "data prepare --fetch": _fetch,
    "shards by http": _shards,
    "node doctor (DICOMweb)": lambda port, folder: _doctor(_web, port, folder),
}
DICOM_CLIENTS: dict[str, Callable[[int, Path], object]] = {
    "dicom send --to": _store,
    "node pull (C-FIND)": lambda port, folder: _pull(_ae, port, folder),
    "node doctor (AE)": lambda port, folder: _doctor(_ae, port, folder),
}


def peers(n: int, seed: int, top: Path) -> Iterator[Ended]:
    """Let each client talk to each kind of peer in turn."""
    pairs: list[tuple[str, Callable[[int, Path], object], Callable[..., Any], str]]
    pairs = [(name, client, http_peer, kind) for name, client in WEB_CLIENTS.items() for kind in HTTP_KINDS]
    pairs += [(name, client, dicom_peer, kind) for name, client in DICOM_CLIENTS.items() for kind in DICOM_KINDS]
    rng = random.Random(seed)
    for number in range(n):
        name, client, peer, kind = pairs[number % len(pairs)]
        folder = top / str(number)
        folder.mkdir()
        asked: list[bytes] = []

        def other(connection: Any, over: threading.Event, asked: list[bytes] = asked) -> None:
            asked.append(connection.recv(1 << 16))

        with serving(other) as target:
            options: dict[str, Any] = {}
            if peer is http_peer:
                types = ("application/dicom+json", "application/dicom", "multipart/related; boundary=b", "")
                options = {"location": f"http://127.0.0.1:{target}/x", "content_type": rng.choice(types)}
            with serving(peer(kind, **options)) as port:
                work = functools.partial(client, port, folder)
                ended = run_apart(work, seconds=SECONDS, memory_gb=MEMORY_GB)
        ended.kind, ended.name = name, kind
        if asked:
            ended.changed.append(f"the other server was asked: {asked[0][:60]!r}")
        yield ended


# Watched folders


def folders(n: int, seed: int, top: Path) -> Iterator[Ended]:
    """Let an exporter do what it likes between the steps of the node."""
    for number in range(n):
        folder = top / str(number)
        (folder / "inbox").mkdir(parents=True)
        (folder / "outside").mkdir()
        saved(folder / "outside" / "secret.dcm", 7_000_000)
        before = snapshot(folder / "outside")
        ended = run_apart(lambda: _one_folder(folder, random.Random(f"{seed} {number}")), memory_gb=MEMORY_GB)  # noqa: B023
        ended.kind, ended.name = "watched folder", str(number)
        ended.changed += changes(before, snapshot(folder / "outside"))
        yield ended


class Exporter:
    """Writes images, and does harm to the files of the folder."""

    def __init__(self, folder: Path, rng: random.Random):
        self.folder, self._rng = folder, rng
        self.kept: dict[Path, int] = {}
        """File -> number of the image that the exporter has put there and not touched since."""
        self.moved: set[int] = set()
        """Images that were gone when the exporter came back to their place: the node has taken them."""
        self._number = 0

    def put(self) -> None:
        path = self.folder / "inbox" / self._rng.choice(("a.dcm", "b.dcm", "sub/c.dcm"))
        self._leave(path)
        self._number += 1
        if path.is_dir() and not path.is_symlink():
            return
        with contextlib.suppress(OSError):
            self.kept[saved(path, self._number)] = self._number

    def harm(self) -> None:
        path = self.folder / "inbox" / self._rng.choice(("a.dcm", "b.dcm", "sub/c.dcm"))
        kind = self._rng.choice(("fifo", "link", "folder", "gone", "grow", "cut", "sparse", "text", "private", "loop"))
        if kind == "private":
            with contextlib.suppress(OSError):
                (self.folder / "inbox" / ".usvit").symlink_to(self.folder / "outside")
            return
        self._leave(path)
        with contextlib.suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            if kind in ("grow", "cut", "sparse"):
                if path.is_symlink():
                    return
                size = {"grow": path.stat().st_size + 100, "cut": 300, "sparse": 6 << 30}[kind]
                os.truncate(path, size)
                return
            if path.is_dir() and not path.is_symlink():
                path.rmdir()
            path.unlink(missing_ok=True)
            if kind == "fifo":
                os.mkfifo(path)
            elif kind in ("link", "loop"):
                path.symlink_to(self.folder / "outside" / "secret.dcm" if kind == "link" else path)
            elif kind == "folder":
                path.mkdir()
            elif kind == "text":
                path.write_text("no image")

    def _leave(self, path: Path) -> None:
        """Note that the exporter itself destroys what is at a path, if the node has not taken it."""
        number = self.kept.pop(path, None)
        if number is not None and not path.exists():
            self.moved.add(number)


def _one_folder(folder: Path, rng: random.Random) -> str:
    from usvit.node.config.settings import WatchedFolderConfig
    from usvit.node.database import NodeDatabase
    from usvit.node.receiving import folder_watcher
    from usvit.node.receiving.instance_store import InstanceStore
    from usvit.pseudonyms import Pseudonyms

    (folder / "node").mkdir()
    database = NodeDatabase(folder / "node" / "node.sqlite", create=True)
    store = InstanceStore(folder / "node", database, Pseudonyms(bytes(range(32))))
    settings = WatchedFolderConfig(path=folder / "inbox", settle_seconds=0, keep=rng.random() < 0.2)
    watcher, exporter = folder_watcher.FolderWatcher(settings, store), Exporter(folder, rng)
    disturbed = True

    def disturbing(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            for when in (0, 1):
                if when:
                    found = call(*args, **options)
                if disturbed and rng.random() < 0.4:
                    rng.choice((exporter.put, exporter.harm))()
            return found

        return wrapped

    for name in ("_looks_right", "_move", "_copied"):
        setattr(watcher, name, disturbing(getattr(watcher, name)))
    store.take = disturbing(store.take)  # type: ignore[method-assign]
    folder_watcher.regular_file = disturbing(folder_watcher.regular_file)
    for _ in range(12):
        exporter.put()
        if rng.random() < 0.5:
            exporter.harm()
        watcher.look()
    disturbed = False
    for _ in range(3):
        watcher.look()
    stored = {row[0] for row in database.rows("SELECT sop_instance_uid FROM instances")}
    there = {
        path.read_bytes() for path in (folder / "inbox").rglob("*") if path.is_file() and path.stat().st_size < 1e7
    }
    expected = {number for path, number in exporter.kept.items()} | exporter.moved
    lost = [number for number in expected if str(image(number).SOPInstanceUID) not in stored | _uids(there)]
    assert not lost, f"{len(lost)} of {len(expected)} images are lost"
    assert not list((folder / "node" / "incoming" / ".partial").iterdir()), "a partial file is left"
    assert str(image(7_000_000).SOPInstanceUID) not in stored, "an image from outside was taken in"
    return f"{len(stored)} stored, {len(expected)} expected"


def _uids(contents: set[bytes]) -> set[str]:
    import io

    from pydicom import dcmread

    found = set()
    for content in contents:
        with contextlib.suppress(Exception):
            found.add(str(dcmread(io.BytesIO(content), stop_before_pixels=True).SOPInstanceUID))
    return found


# Clocks


def clocks(n: int, seed: int, top: Path) -> Iterator[Ended]:
    """Let the clock jump between the steps of a study."""
    for number in range(n):
        folder = top / str(number)
        folder.mkdir()
        ended = run_apart(lambda: _one_clock(folder, random.Random(f"{seed} {number}")), memory_gb=MEMORY_GB)  # noqa: B023
        ended.kind, ended.name = "clock", str(number)
        yield ended


def _one_clock(folder: Path, rng: random.Random) -> str:
    from usvit.node import database as module
    from usvit.node.config.settings import NodeConfig
    from usvit.node.database import NodeDatabase, insert
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


PARTS: dict[str, Callable[[int, int, Path], Iterator[Ended]]] = {"peers": peers, "folders": folders, "clocks": clocks}


def run(n: int, seed: int, parts: tuple[str, ...] = tuple(PARTS)) -> list[Ended]:
    """Run ``n`` cases of each part, and return how they ended."""
    cases: list[Ended] = []
    for name in parts:
        with tempfile.TemporaryDirectory(prefix=f"node-hostile-{name}-") as top:
            cases += show_bad(PARTS[name](n, seed, Path(top)))
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=72, help="cases of each part; 72 are all pairs of clients and peers")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", choices=PARTS, action="append")
    chosen = parser.parse_args()
    import usvit.node
    import usvit.node.receiving.pulling
    import usvit.node.sending  # noqa: F401

    start = time.monotonic()
    cases = run(chosen.n, chosen.seed, tuple(chosen.part or PARTS))
    tell(cases)
    print(f"{time.monotonic() - start:.0f} s")
    sys.exit(any(case.bad for case in cases))


if __name__ == "__main__":
    main()
