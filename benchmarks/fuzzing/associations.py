"""Mutated DICOM associations, while a good sender goes on and slow senders send a byte a second.

The bytes of one good association are recorded. Each case sends them to a running service after a mutation: flipped
bits, false lengths of PDUs and elements, PDUs out of order, cuts in the middle, wrong AE titles, UIDs that climb paths,
data sets that are not what was announced, instances over the limit of size, noise. The last row, ``service``, is bad if
the receiver was restarted, an image of the good sender is missing, a file is left over or lies outside of the folder of
the node, or the memory of the receiver grew after the first tenth by more than the limit.
"""

import contextlib
import json
import random
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pydicom import Dataset
from pydicom.dataset import FileMetaDataset
from pydicom.uid import ExplicitVRLittleEndian, UltrasoundImageStorage
from pynetdicom import AE
from pynetdicom.association import Association

from benchmarks.fuzzing.child import Ended
from benchmarks.fuzzing.harness import Options
from benchmarks.processes import Figures, figures
from tests.node.images import RunningNode, serving, settings

Mutation = Callable[[random.Random, list[bytes]], list[bytes]]
ATTACKERS, SLOW_SENDERS = 4, 4
SLOW_SECONDS = 12.0
"""Time in which the service ends each slow sender once."""
RECEIVE = {"min_free_gb": 0.01, "max_instance_mb": 1, "idle_seconds": 3, "max_associations": 100}
RULES = {"rules": [{"name": "all", "leave_alone": True}], "studies": {"quiet_seconds": 2}}
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
    return [*pdus[:number], _flip(rng, pdus[number], 12), *pdus[number + 1 :]]


def false_length(rng: random.Random, pdus: list[bytes]) -> list[bytes]:
    number = rng.randrange(len(pdus))
    length = rng.choice([0, 1, 3, 5, len(pdus[number]) + 1, 1 << 20, 1 << 31, 0xFFFFFFFF])
    false = pdus[number][:2] + struct.pack(">I", length) + pdus[number][6:]
    return [*pdus[:number], false, *pdus[number + 1 :]]


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
    return [*pdus[:last], bytes(changed), *pdus[last + 1 :]]


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


def associated(port: int) -> Association:
    """Open an association of a sender that the node knows."""
    entity = AE(ae_title="GOOD")
    entity.add_requested_context(UltrasoundImageStorage, ExplicitVRLittleEndian)
    return entity.associate("127.0.0.1", port, ae_title="USVIT")


def _send(port: int, images: list[Dataset]) -> int:
    association, stored = associated(port), 0
    if association.is_established:
        for one in images:
            stored += getattr(association.send_c_store(one), "Status", None) == 0
        association.release()
    return stored


@dataclass
class GoodSender:
    """A sender of two images on each of many associations, one after the other, while others attack."""

    port: int
    sent: int = 0
    stored: int = 0
    refused: int = 0
    """Associations that were refused; it tries again, as archives do."""
    slowest: float = 0.0

    def go_on(self, over: threading.Event) -> None:
        while not over.is_set():
            start = time.perf_counter()
            images = [image(self.sent + 1), image(self.sent + 2)]
            while not (stored := _send(self.port, images)):
                self.refused += 1
                if over.wait(0.2):
                    return
            self.stored += stored
            self.slowest = max(self.slowest, time.perf_counter() - start)
            self.sent += 2
            over.wait(0.05)


def receiving_node(folder: Path, **receive: object) -> contextlib.AbstractContextManager[RunningNode]:
    """Run ``usvit node serve`` with a rule that leaves every study alone."""
    (folder / "model").mkdir(parents=True)
    content = settings(folder, **RULES)
    content["receive"] |= {**RECEIVE, "allow": [{"ae_title": "GOOD"}], **receive}
    return serving(folder, content)


def associations(root: Path, options: Options) -> Iterator[Ended]:
    over, memory = threading.Event(), list[int]()
    with (
        receiving_node(root / "service") as service,
        ThreadPoolExecutor(ATTACKERS) as attackers,
        ThreadPoolExecutor() as others,
    ):
        pdus, good = recorded(service.port, image(0)), GoodSender(service.port)
        pid, begun = json.loads((service.config.folder / "processes.json").read_text())["receiver"], time.monotonic()

        def attacked(number: int) -> str:
            rng, mutation = options.random(number), MUTATIONS[number % len(MUTATIONS)]
            attack(service.port, pdus, rng, mutation)
            return mutation.__name__

        try:
            going = others.submit(good.go_on, over)
            slow = [others.submit(slow_sender, service.port, pdus, over) for _ in range(SLOW_SENDERS)]
            for number, kind in zip(options.numbers, attackers.map(attacked, options.numbers), strict=True):
                if (now := figures(pid)) is not None and number - options.first >= options.n // 10:
                    memory.append(now.resident)
                yield Ended(0, "", 0, 0, kind, str(number))
            if slow:
                time.sleep(max(0.0, begun + SLOW_SECONDS - time.monotonic()))
        finally:
            over.set()
        going.result()
        cuts = sum(one.result() for one in slow)
        time.sleep(4)  # associations that are still open come to their end
        yield _judged(service, pid, memory, good, cuts, options)


def _judged(service: RunningNode, pid: int, memory: list[int], good: GoodSender, cuts: int, options: Options) -> Ended:
    """Print what the service and the good sender did, and judge it."""
    rows, last = service.database.rows, process_figures(pid)
    (stored,), (restarts,) = (
        rows(f"SELECT count(*) FROM {what}")[0]
        for what in ("instances", "audit_events WHERE event = 'process_restarted'")
    )
    refusals = rows(
        "SELECT json_extract(data, '$.reason'), count(*) FROM audit_events WHERE event = 'association_refused' "
        "GROUP BY 1"
    )
    partial = len(list((service.config.folder / "incoming" / ".partial").iterdir()))
    folder, grown = service.path.parent, last.resident - memory[0]
    outside = [path for path in folder.iterdir() if path.name not in ("node", "node.yaml", "log.txt", "model")]
    outside += [path for path in (Path("/tmp/escaped"), folder.parent / "escaped") if path.exists()]
    said = (
        f"slow senders ended by the service: {cuts}\n"
        f"good sender: {good.stored} of {good.sent} instances stored, two of them in {good.slowest:.2f} s at most; "
        f"{good.refused} associations refused, and tried again\n"
        f"refusals in the audit log (at most 20 a minute each): {dict(map(tuple, refusals))}\n"
        f"receiver: {restarts} restarts, memory {memory[0] / 1e6:.0f} MB after a tenth, {max(memory) / 1e6:.0f} MB at "
        f"most, {last.resident / 1e6:.0f} MB at the end; {descriptors(pid)} descriptors, {last.threads} threads\n"
        f"rows {stored}, partial files left {partial}"
    )
    print(said)
    good_enough = good.stored == good.sent > 0 == restarts == partial and stored >= good.stored
    status: int | str = "memory" if grown > options.memory_gb * 1e9 else 0 if good_enough else 70
    return Ended(status, said, 0, grown / 1e9, "service", "the whole", [str(path) for path in outside])


def process_figures(pid: int) -> Figures:
    if (found := figures(pid)) is None:
        raise RuntimeError(f"process {pid} has ended")
    return found


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))
