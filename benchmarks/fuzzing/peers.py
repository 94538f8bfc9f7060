"""Clients of usvit that talk to hostile servers (``servers``).

A server redirects, never ends its answer, sends a byte now and then, compresses, lies about the length, or is silent.
Nothing may reach the server that a redirect names.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.fuzzing.child import Ended, run_apart
from benchmarks.fuzzing.folders import saved
from benchmarks.fuzzing.harness import Options
from benchmarks.fuzzing.servers import dicom_peer, http_peer, serving

TIMEOUT = 0.5
HTTP_KINDS = ("redirect", "endless", "endless_header", "drip", "drip_header", "bomb", "pages", "lies", "silent")
DICOM_KINDS = ("endless", "fragments", "drip", "slow_matches", "huge", "silent")


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
    from usvit.upstream.sources import shard_files, shards

    shard_files.TIMEOUT, shard_files.MOST_BYTES = TIMEOUT, 5_000_000
    return len(shards.open_shards(f"http://127.0.0.1:{port}/a.tar", shard_files.ShardFiles(folder / "cache", 1.0)))


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


def peers(root: Path, options: Options) -> Iterator[Ended]:
    """Let each client talk to each kind of peer in turn."""
    import usvit.node
    import usvit.node.receiving.pulling
    import usvit.node.sending  # noqa: F401

    pairs: list[tuple[str, Callable[[int, Path], object], Callable[..., Any], str]]
    pairs = [(name, client, http_peer, kind) for name, client in WEB_CLIENTS.items() for kind in HTTP_KINDS]
    pairs += [(name, client, dicom_peer, kind) for name, client in DICOM_CLIENTS.items() for kind in DICOM_KINDS]
    chosen = options.chosen({pair[0] for pair in pairs})
    pairs = [pair for pair in pairs if pair[0] in chosen]
    for number in options.numbers:
        name, client, peer, kind = pairs[number % len(pairs)]
        folder = root / str(number)
        folder.mkdir()
        asked: list[bytes] = []

        def other(connection: Any, over: threading.Event, asked: list[bytes] = asked) -> None:
            asked.append(connection.recv(1 << 16))

        with serving(other) as target:
            answer: dict[str, Any] = {}
            if peer is http_peer:
                types = ("application/dicom+json", "application/dicom", "multipart/related; boundary=b", "")
                content_type = options.random(number).choice(types)
                answer = {"location": f"http://127.0.0.1:{target}/x", "content_type": content_type}
            with serving(peer(kind, **answer)) as port:
                work = functools.partial(client, port, folder)
                ended = run_apart(work, kind=name, name=kind, **options.limits)
        if asked:
            ended.changed.append(f"the other server was asked: {asked[0][:60]!r}")
        yield ended
