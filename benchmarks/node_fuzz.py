"""Attack the receiver of `usvit node serve` with mutated associations and data sets, while a good sender goes on.

    python -m benchmarks.node_fuzz [--n 2000] [--seed 0] [--threads 4] [--slow 4]

The bytes of one good association are recorded. Each attack sends them after mutations: flipped bits, false lengths of
PDUs and elements, PDUs out of order, cuts in the middle, wrong AE titles, UIDs that climb paths, data sets that are not
what was announced, instances over the limit of size, noise. Slow senders send one byte a second all the while. The
benchmark prints what was sent, and whether the service stayed up in the same process, its memory, descriptors and
threads were flat, each instance of the good sender was stored, and nothing lies outside of the folder of the node.
"""

import argparse
import contextlib
import json
import random
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import yaml
from pydicom import Dataset
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, UltrasoundImageStorage
from pynetdicom import AE

from benchmarks.processes import figures

Mutation = Callable[[random.Random, list[bytes]], list[bytes]]
WAIT_SECONDS = 600.0
SLOW_SECONDS = 12.0
UID_LENGTH = 24
CLIMBS = (
    b"../../../../tmp/escaped/",
    b"/etc/cron.d/escaped.dcm\0",
    b"..\\..\\..\\windows\\system3",
    b"1.2.3/../../../escaped.4",
    b"1.2.3\0../../../escaped.4",
    b"1.2.3;rm -rf ~;'\"$(x)`x`",
    b"%2e%2e%2f%2e%2e%2fescape",
    b"\n\r\x1b[2J1.2.3.4.5.6.7.8.9",
)
"""Texts in place of a UID, each of ``UID_LENGTH`` bytes or fewer."""


@dataclass
class Report:
    """What an attack showed."""

    sent: Counter[str] = field(default_factory=Counter)
    """Number of attacks by kind."""
    good_sent: int = 0
    good_stored: int = 0
    """Instances of the good sender that were acknowledged, meanwhile."""
    good_refused: int = 0
    """Associations of the good sender that were refused; it tries again, as archives do."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Reasons of refused associations and connections in the audit log, which counts at most 20 a minute each."""
    good_slowest: float = 0.0
    slow_cut: int = 0
    """Slow senders whose connection the service has ended."""
    restarts: int = 0
    memory_kb: tuple[int, int, int] = (0, 0, 0)
    """Memory of the receiver after a tenth of the attacks, at most, and at the end."""
    descriptors: tuple[int, int] = (0, 0)
    threads: tuple[int, int] = (0, 0)
    stored_rows: int = 0
    partial_files: int = 0
    outside: list[str] = field(default_factory=list)
    """Files outside of the folder of the node."""


def image(number: int, side: int = 64, **changes: str) -> Dataset:
    """Return a valid ultrasound image with UIDs of ``UID_LENGTH`` digits."""
    data = Dataset()
    data.SOPClassUID = UltrasoundImageStorage
    data.StudyInstanceUID = f"1.2.826.{number // 10:016d}".replace(".0", ".1", 1)
    data.SeriesInstanceUID = f"{data.StudyInstanceUID[:-1]}5"
    data.SOPInstanceUID = f"1.2.840.{number:016d}".replace(".0", ".1", 1)
    data.PatientName, data.PatientID, data.Modality = "Planted^Name", "PLANTED-ID", "US"
    data.StudyDescription, data.Manufacturer = "breast", "FUZZ"
    data.Rows = data.Columns = side
    data.SamplesPerPixel, data.PhotometricInterpretation = 1, "MONOCHROME2"
    data.BitsAllocated = data.BitsStored = 8
    data.HighBit, data.PixelRepresentation = 7, 0
    data.PixelData = np.random.default_rng(number).integers(0, 255, (side, side), np.uint8).tobytes()
    for name, value in changes.items():
        setattr(data, name, value)
    data.file_meta = FileMetaDataset()
    data.file_meta.TransferSyntaxUID = ExplicitVRLittleEndian
    data.file_meta.MediaStorageSOPClassUID = data.SOPClassUID
    data.file_meta.MediaStorageSOPInstanceUID = data.SOPInstanceUID
    return data


def recorded(port: int, data: Dataset) -> list[bytes]:
    """Send an image through a recorder, and return the PDUs that the sender has sent."""
    stream = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def pump() -> None:
            client, _ = listener.accept()
            with client, socket.create_connection(("127.0.0.1", port)) as server:

                def back() -> None:
                    with contextlib.suppress(OSError):
                        while answer := server.recv(1 << 16):
                            client.sendall(answer)

                threading.Thread(target=back, daemon=True).start()
                with contextlib.suppress(OSError):
                    while part := client.recv(1 << 16):
                        stream.extend(part)
                        server.sendall(part)

        thread = threading.Thread(target=pump, daemon=True)
        thread.start()
        if not _send(listener.getsockname()[1], [data]):
            raise RuntimeError("the image that is recorded was not accepted")
        thread.join(10)
    pdus, at = [], 0
    while at + 6 <= len(stream):
        end = at + 6 + struct.unpack(">I", stream[at + 2 : at + 6])[0]
        pdus.append(bytes(stream[at:end]))
        at = end
    return pdus


# Mutations: each takes the PDUs of a good association, and returns the bytes to send, part by part.


def _flip(rng: random.Random, data: bytes, most: int) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, most)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def noise(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    return [rng.randbytes(rng.choice([1, 5, 6, 7, 100, 5000]))]


def flipped_request(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    return [_flip(rng, pdus[0], 8), *pdus[1:]]


def flipped_command(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    return [pdus[0], _flip(rng, pdus[1], 6), *pdus[2:]]


def flipped_dataset(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    number = rng.randrange(2, max(3, len(pdus) - 1))
    return [_flip(rng, one, 12) if index == number else one for index, one in enumerate(pdus)]


def false_length(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    number = rng.randrange(len(pdus))
    length = rng.choice([0, 1, 3, 5, len(pdus[number]) + 1, 1 << 20, 1 << 31, 0xFFFFFFFF])
    false = pdus[number][:2] + struct.pack(">I", length) + pdus[number][6:]
    return [false if index == number else one for index, one in enumerate(pdus)]


def false_item_length(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    request = bytearray(pdus[0])
    at = rng.randrange(74, len(request) - 2)
    request[at : at + 2] = struct.pack(">H", rng.choice([0, 1, 0x7FFF, 0xFFFF]))
    return [bytes(request), *pdus[1:]]


def cut(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    stream = b"".join(pdus[1:])
    return [pdus[0], stream[: rng.randrange(len(stream))]]


def out_of_order(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    changed = pdus[:]
    rng.shuffle(changed)
    return changed


def repeated(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    one = rng.choice(pdus)
    return [*pdus[:2], *[one] * rng.randint(2, 50)]


def unknown_pdu(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    kind = bytes([rng.choice([0, 2, 3, 6, 7, 8, 9, 0x47, 0xFF])])
    return [*pdus[: rng.randrange(len(pdus))], kind + b"\0" + struct.pack(">I", 4) + rng.randbytes(4)]


def wrong_called(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    title = rng.choice([b"SOMEBODY", b"", b"\xff" * 16, b"..\\..\\..", b"A" * 16]).ljust(16)
    return [pdus[0][:10] + title + pdus[0][26:], *pdus[1:]]


def wrong_calling(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    title = rng.choice([b"PLANTED^AE", b"", b"\0" * 16, b"%s%n%x", b"\x1b[2J"]).ljust(16)
    return [pdus[0][:26] + title + pdus[0][42:], *pdus[1:]]


def climbing_uid(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    text = rng.choice(CLIMBS)[:UID_LENGTH].ljust(UID_LENGTH, b"\0")
    names = [name for name in (b"1.2.840.1", b"1.2.826.1") if any(name in one for one in pdus)]
    chosen = rng.sample(names, rng.randint(1, len(names)))
    return [_with_uids(one, chosen, text) for one in pdus]


def _with_uids(pdu: bytes, starts: list[bytes], text: bytes) -> bytes:
    for start in starts:
        at = pdu.find(start)
        while at >= 0:
            pdu = pdu[:at] + text + pdu[at + UID_LENGTH :]
            at = pdu.find(start, at + UID_LENGTH)
    return pdu


def other_uid(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    """Announce another UID than the data set has."""
    return [pdus[0], _with_uids(pdus[1], [b"1.2.840.1"], f"1.2.840.{rng.randrange(10**15):016d}".encode()), *pdus[2:]]


def other_pixels(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    """Send other pixels under a UID that is known."""
    last = max(range(len(pdus)), key=lambda index: len(pdus[index]))
    changed = bytearray(pdus[last])
    changed[-rng.randint(1, 1000)] ^= 0xFF
    return [bytes(changed) if index == last else one for index, one in enumerate(pdus)]


def too_large(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    """Send fragments of a data set without an end."""
    fragment = rng.randbytes(1 << 14)
    value = struct.pack(">IBB", len(fragment) + 2, pdus[1][10], 0) + fragment
    return [*pdus[:2], *[b"\x04\0" + struct.pack(">I", len(value)) + value] * 200]


MUTATIONS: tuple[Mutation, ...] = (
    noise,
    flipped_request,
    flipped_command,
    flipped_dataset,
    false_length,
    false_item_length,
    cut,
    out_of_order,
    repeated,
    unknown_pdu,
    wrong_called,
    wrong_calling,
    climbing_uid,
    other_uid,
    other_pixels,
    too_large,
)


def attack(port: int, pdus: list[bytes], rng: random.Random, mutation: Mutation) -> None:
    """Send one mutated association, and go away."""
    parts = mutation(rng, pdus)
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
        connection.settimeout(0.5)
        connection.sendall(parts[0])
        if len(parts) > 1:
            with contextlib.suppress(TimeoutError):
                connection.recv(1 << 16)
            for part in parts[1:]:
                connection.sendall(part)
        if rng.random() < 0.5:
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(TimeoutError):
            connection.settimeout(0.2)
            connection.recv(1 << 16)
        if rng.random() < 0.3:  # reset instead of a close
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def slow_sender(port: int, pdus: list[bytes], stop: threading.Event) -> int:
    """Send one byte a second, beginning again when the service ends the connection; return how often it did."""
    ended = 0
    while not stop.is_set():
        stream = b"".join(pdus)
        begin = 0 if ended % 2 else len(pdus[0]) + 20  # within the request, or within the command
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=2) as connection:
                connection.sendall(stream[:begin])
                for byte in stream[begin:]:
                    connection.sendall(bytes([byte]))
                    if stop.wait(1.0):
                        return ended
        except OSError:
            ended += 1
            stop.wait(0.2)
    return ended


def _send(port: int, images: list[Dataset], title: str = "GOOD") -> int:
    ae = AE(ae_title=title)
    ae.add_requested_context(UltrasoundImageStorage, ExplicitVRLittleEndian)
    association = ae.associate("127.0.0.1", port, ae_title="USVIT")
    stored = 0
    if association.is_established:
        for one in images:
            stored += getattr(association.send_c_store(one), "Status", None) == 0
        association.release()
    return stored


@contextmanager
def node_service(folder: Path, **receive: object) -> Iterator[int]:
    """Run ``usvit node serve`` with a rule that leaves every study alone, and yield its port."""
    with socket.socket() as one, socket.socket() as other:
        for trial in (one, other):
            trial.bind(("127.0.0.1", 0))
        port, status = one.getsockname()[1], other.getsockname()[1]
    (folder / "model").mkdir()
    settings = {
        "folder": "node",
        "receive": {
            "port": port,
            "allow": [{"ae_title": "GOOD"}],
            "min_free_gb": 0.01,
            "max_instance_mb": 1,
            "idle_seconds": 3,
            "max_associations": 100,
            **receive,
        },
        "studies": {"quiet_seconds": 2},
        "models": {"main": {"path": "model"}},
        "rules": [{"name": "all", "leave_alone": True}],
        "status": {"port": status},
    }
    path = folder / "node.yaml"
    path.write_text(yaml.safe_dump(settings))
    with open(folder / "node.log", "wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "usvit", "node", "serve", str(path)], stdout=log, stderr=log)
    try:
        end = time.monotonic() + WAIT_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                if (folder / "node" / "processes.json").exists():
                    break
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the service did not start: {(folder / 'node.log').read_text()}")
            time.sleep(0.1)
        yield port
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(WAIT_SECONDS)


def run(n: int, seed: int, *, threads: int = 4, slow: int = 4, folder: Path) -> Report:
    """Attack a service, and report.

    Args:
        n: number of attacks.
        seed: seed of the mutations.
        threads: number of attacks at the same time.
        slow: number of slow senders.
        folder: empty folder, in which the folder of the node is made.
    """
    report = Report()
    with node_service(folder) as port:
        pdus = recorded(port, image(0))
        pid = json.loads((folder / "node" / "processes.json").read_text())["receiver"]
        over, stop_slow = threading.Event(), threading.Event()
        cuts: list[int] = []
        slows = [
            threading.Thread(target=lambda: cuts.append(slow_sender(port, pdus, stop_slow)), daemon=True)
            for _ in range(slow)
        ]
        good = threading.Thread(target=_go_on, args=(port, over, report), daemon=True)
        numbers = iter(range(n))
        lock = threading.Lock()

        def attacker() -> None:
            while True:
                with lock:
                    number = next(numbers, None)
                if number is None:
                    return
                rng = random.Random(f"{seed} {number}")
                mutation = MUTATIONS[number % len(MUTATIONS)]
                attack(port, pdus, rng, mutation)
                with lock:
                    report.sent[mutation.__name__] += 1

        attackers = [threading.Thread(target=attacker, daemon=True) for _ in range(threads)]
        for one in [*slows, good, *attackers]:
            one.start()
        slow_until = time.monotonic() + SLOW_SECONDS
        first: tuple[int, int, int] | None = None
        highest = 0
        while any(one.is_alive() for one in attackers):
            now = process_figures(pid)
            highest = max(highest, now[0])
            if first is None and sum(report.sent.values()) >= n / 10:
                first = now
            time.sleep(0.2)
        if slow:  # long enough that the service ends each of them once
            time.sleep(max(0.0, slow_until - time.monotonic()))
        stop_slow.set()
        over.set()
        for one in [good, *slows]:
            one.join(30)
        report.slow_cut = sum(cuts)
        time.sleep(4)  # associations that are still open come to their end
        last = process_figures(pid)
        first = first or last
        report.memory_kb = (first[0], max(highest, last[0]), last[0])
        report.descriptors, report.threads = (first[1], last[1]), (first[2], last[2])
        with contextlib.closing(sqlite3.connect(folder / "node" / "node.sqlite")) as database:
            (report.stored_rows,) = database.execute("SELECT count(*) FROM instances").fetchone()
            report.refusals = dict(
                database.execute(
                    "SELECT json_extract(data, '$.reason'), count(*) FROM audit_events WHERE event = "
                    "'association_refused' GROUP BY 1"
                ).fetchall()
            )
            (report.restarts,) = database.execute(
                "SELECT count(*) FROM audit_events WHERE event = 'process_restarted'"
            ).fetchone()
        report.partial_files = len(list((folder / "node" / "incoming" / ".partial").iterdir()))
    report.outside = sorted({path.name for path in folder.iterdir()} - {"node", "node.yaml", "node.log", "model"}) + [
        str(path) for path in (Path("/tmp/escaped"), folder.parent / "escaped") if path.exists()
    ]
    return report


def _go_on(port: int, over: threading.Event, report: Report) -> None:
    """Send two images on each of many associations, one after the other."""
    number = 1
    while not over.is_set():
        start = time.perf_counter()
        images = [image(number), image(number + 1)]
        while not (stored := _send(port, images)):
            report.good_refused += 1
            if over.wait(0.2):
                return
        report.good_stored += stored
        report.good_slowest = max(report.good_slowest, time.perf_counter() - start)
        report.good_sent += 2
        number += 2
        over.wait(0.05)


def process_figures(pid: int) -> tuple[int, int, int]:
    """Return the memory of a process in kB, and its numbers of descriptors and threads (Linux)."""
    found = figures(pid)
    if found is None:
        raise RuntimeError(f"process {pid} has ended")
    return found.resident // 1024, len(list(Path(f"/proc/{pid}/fd").iterdir())), found.threads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--slow", type=int, default=4)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="node-fuzz-") as folder:
        start = time.perf_counter()
        found = run(chosen.n, chosen.seed, threads=chosen.threads, slow=chosen.slow, folder=Path(folder))
        seconds = time.perf_counter() - start
    print(f"{sum(found.sent.values())} attacks in {seconds:.0f} s: {dict(found.sent)}")
    print(f"slow senders ended by the service: {found.slow_cut}")
    print(
        f"good sender: {found.good_stored} of {found.good_sent} instances stored, two of them in "
        f"{found.good_slowest:.2f} s at most; {found.good_refused} associations refused, and tried again"
    )
    print(f"refusals in the audit log: {found.refusals}")
    print(
        f"receiver: {found.restarts} restarts, memory {found.memory_kb} kB, descriptors {found.descriptors}, ", end=""
    )
    print(f"threads {found.threads} (after a tenth, [at most,] at the end)")
    print(f"rows {found.stored_rows}, partial files left {found.partial_files}, files outside {found.outside}")


if __name__ == "__main__":
    main()
