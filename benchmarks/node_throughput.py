"""Measure the receiver of `usvit node serve`: throughput, time to an acknowledgement under load, memory.

    python -m benchmarks.node_throughput [--part throughput|acknowledgement|memory] [--n N] [--repeats 3]

``throughput`` sends N (300) images of 640 x 480 with dcmtk's storescu, over one and over four associations, to the node
and to dcmtk's storescp in turn, and prints images/s and their ratio. ``acknowledgement`` sends N (200) images one after
the other while as many processes as there are cores run inference, and prints the percentiles of the time from the
request to the answer. ``memory`` sends N (10,000) small images, and prints the memory of receiver and supervisor on the
way. The node flushes each image to the disk before it answers; storescp does not.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
from pydicom import Dataset, dcmread
from pydicom.uid import ExplicitVRLittleEndian, UltrasoundImageStorage
from pynetdicom import AE

from benchmarks.node_fuzz import WAIT_SECONDS, image, node_service, process_figures
from usvit.resources import usable_cores

ASSOCIATION = 50
"""Images on one association of the part ``memory``."""


def dcmtk(name: str) -> str:
    """Return the path of a program of dcmtk; pynetdicom installs others of the same names."""
    found = shutil.which(name, path="/usr/bin:/usr/local/bin:/opt/homebrew/bin")
    if found is None:
        raise SystemExit(f"{name} of dcmtk is not installed: apt install dcmtk")
    return found


def write_images(folder: Path, begin: int, n: int) -> None:
    """Write images of 640 x 480 (307 kB each)."""
    folder.mkdir(parents=True)
    for number in range(begin, begin + n):
        data = image(number)
        data.Rows, data.Columns = 480, 640
        data.PixelData = np.random.default_rng(number).integers(0, 255, (480, 640), np.uint8).tobytes()
        data.save_as(folder / f"{number}.dcm", enforce_file_format=True)


def sent_per_second(port: int, folders: list[Path]) -> float:
    """Send folders at the same time, each on one association, and return images/s."""
    n = sum(len(list(folder.iterdir())) for folder in folders)
    start = time.perf_counter()
    senders = [
        subprocess.Popen([dcmtk("storescu"), "-aet", "GOOD", "-aec", "USVIT", "+sd", "127.0.0.1", str(port), str(one)])
        for one in folders
    ]
    if any(one.wait() for one in senders):
        raise RuntimeError("storescu failed")
    return n / (time.perf_counter() - start)


@contextmanager
def storescp(folder: Path) -> Iterator[int]:
    """Run dcmtk's storescp, and yield its port."""
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port = trial.getsockname()[1]
    folder.mkdir()
    process = subprocess.Popen([dcmtk("storescp"), "--fork", "-aet", "USVIT", "-od", str(folder), str(port)])
    try:
        end = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < end:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield port
    finally:
        process.terminate()
        process.wait()


def throughput(n: int, repeats: int, folder: Path) -> None:
    begin = 1
    found: dict[tuple[str, int], list[float]] = {}
    (folder / "service").mkdir()
    with node_service(folder / "service", max_associations=16) as ours, storescp(folder / "storescp") as theirs:
        for repeat in range(repeats):
            for associations in (1, 4):
                parts = []
                for part in range(associations):
                    parts.append(folder / f"{repeat}-{associations}-{part}")
                    write_images(parts[-1], begin, n // associations)
                    begin += n // associations
                pair = [("node", ours), ("storescp", theirs)]
                for name, port in pair if repeat % 2 == 0 else pair[::-1]:
                    found.setdefault((name, associations), []).append(sent_per_second(port, parts))
                for sent in parts:
                    shutil.rmtree(sent)
    for associations in (1, 4):
        node, other = found["node", associations], found["storescp", associations]
        ratios = [a / b for a, b in zip(node, other, strict=True)]
        print(
            f"{associations} associations: node {_range(node)} images/s, storescp {_range(other)} images/s, "
            f"ratio {_range(ratios, 2)}"
        )


def _infer(stop: Event) -> None:
    import torch

    torch.set_num_threads(1)
    network = torch.nn.Sequential(*[torch.nn.Conv2d(16, 16, 3, padding=1) for _ in range(8)])
    batch = torch.rand(8, 16, 112, 112)
    with torch.inference_mode():
        while not stop.is_set():
            network(batch)


def acknowledgement(n: int, folder: Path) -> None:
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    loads = [context.Process(target=_infer, args=(stop,)) for _ in range(usable_cores())]
    write_images(folder / "images", 1, n)
    images = [dcmread(path) for path in sorted((folder / "images").iterdir())]
    (folder / "service").mkdir()
    with node_service(folder / "service") as port:
        idle = acknowledgement_seconds(port, images[: n // 2])
        for one in loads:
            one.start()
        time.sleep(15)  # torch is imported
        busy = acknowledgement_seconds(port, images[n // 2 :])
        stop.set()
        for one in loads:
            one.join()
    for name, seconds in (("idle", idle), (f"{len(loads)} processes infer on {usable_cores()} cores", busy)):
        p50, p95, p99 = np.percentile(seconds, [50, 95, 99])
        print(f"{name}: {len(seconds)} images, p50 {p50:.3f} s, p95 {p95:.3f} s, p99 {p99:.3f} s, ", end="")
        print(f"at most {max(seconds):.3f} s")


def acknowledgement_seconds(port: int, images: Sequence[Dataset]) -> list[float]:
    """Send images one after the other, and return the time to the answer of each."""
    ae = AE(ae_title="GOOD")
    ae.add_requested_context(UltrasoundImageStorage, ExplicitVRLittleEndian)
    association = ae.associate("127.0.0.1", port, ae_title="USVIT")
    found = []
    for one in images:
        start = time.perf_counter()
        if association.send_c_store(one).Status != 0:
            raise RuntimeError("an image was not accepted")
        found.append(time.perf_counter() - start)
    association.release()
    return found


def memory(n: int, folder: Path) -> None:
    with node_service(folder) as port:
        pids = json.loads((folder / "node" / "processes.json").read_text())
        ae = AE(ae_title="GOOD")
        ae.add_requested_context(UltrasoundImageStorage, ExplicitVRLittleEndian)
        number, start = 1, time.perf_counter()
        while number <= n:
            association = ae.associate("127.0.0.1", port, ae_title="USVIT")
            for _ in range(ASSOCIATION):
                if association.send_c_store(image(number)).Status != 0:
                    raise RuntimeError("an image was not accepted")
                number += 1
            association.release()
            if (number - 1) % max(ASSOCIATION, n // 10 // ASSOCIATION * ASSOCIATION) == 0:
                told = {name: process_figures(pids[name]) for name in ("receiver", "supervisor")}
                said = ", ".join(
                    f"{name} {kb / 1024:.0f} MB, {files} files, {threads} threads"
                    for name, (kb, files, threads) in told.items()
                )
                print(
                    f"{number - 1:6} images, {(number - 1) / (time.perf_counter() - start):.0f}/s: {said}", flush=True
                )


def _range(values: list[float], digits: int = 0) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("throughput", "acknowledgement", "memory"))
    parser.add_argument("--n", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for part, default in (("throughput", 300), ("acknowledgement", 200), ("memory", 10_000)):
        if chosen.part in (None, part):
            with tempfile.TemporaryDirectory(prefix="node-throughput-") as folder:
                n = chosen.n or default
                if part == "throughput":
                    throughput(n, chosen.repeats, Path(folder))
                else:
                    (acknowledgement if part == "acknowledgement" else memory)(n, Path(folder))


if __name__ == "__main__":
    main()
