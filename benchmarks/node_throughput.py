"""Measure the receiver of `usvit node serve`: throughput, time to an acknowledgement under load, memory.

    python -m benchmarks.node_throughput [--part throughput|acknowledgement|memory] [--n N] [--repeats 3]

``throughput`` sends N (300) images of 640 x 480 with dcmtk's storescu, over one and over four associations, to the node
and to dcmtk's storescp in turn, and prints images/s and their ratio. ``acknowledgement`` sends N (200) images one after
the other while as many processes as there are cores run inference, and prints the percentiles of the time from the
request to the answer. ``memory`` sends N (10,000) small images, and prints the memory of receiver and supervisor on the
way. The node flushes each image to the disk before it answers; storescp does not.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np
from pydicom import Dataset, dcmread

from benchmarks.fuzzing.associations import associated, descriptors, image, process_figures, receiving_node
from tests.programs import a_free_port, storescp, tool
from usvit.resources import usable_cores

ASSOCIATION = 50
"""Images on one association of the part ``memory``."""


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
        subprocess.Popen([tool("storescu"), "-aet", "GOOD", "-aec", "USVIT", "+sd", "127.0.0.1", str(port), str(one)])
        for one in folders
    ]
    if any(one.wait() for one in senders):
        raise RuntimeError("storescu failed")
    return n / (time.perf_counter() - start)


def throughput(n: int, repeats: int, folder: Path) -> None:
    begin = 1
    found: dict[tuple[str, int], list[float]] = {}
    theirs = a_free_port()
    with (
        receiving_node(folder / "service", max_associations=16) as service,
        storescp(folder / "storescp", theirs, "--fork", "-aet", "USVIT"),
    ):
        for repeat in range(repeats):
            for associations in (1, 4):
                parts = []
                for part in range(associations):
                    parts.append(folder / f"{repeat}-{associations}-{part}")
                    write_images(parts[-1], begin, n // associations)
                    begin += n // associations
                pair = [("node", service.port), ("storescp", theirs)]
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
    with receiving_node(folder / "service") as service:
        idle = acknowledgement_seconds(service.port, images[: n // 2])
        for one in loads:
            one.start()
        time.sleep(15)  # torch is imported
        busy = acknowledgement_seconds(service.port, images[n // 2 :])
        stop.set()
        for one in loads:
            one.join()
    for name, seconds in (("idle", idle), (f"{len(loads)} processes infer on {usable_cores()} cores", busy)):
        p50, p95, p99 = np.percentile(seconds, [50, 95, 99])
        print(f"{name}: {len(seconds)} images, p50 {p50:.3f} s, p95 {p95:.3f} s, p99 {p99:.3f} s, ", end="")
        print(f"at most {max(seconds):.3f} s")


def acknowledgement_seconds(port: int, images: Iterable[Dataset]) -> list[float]:
    """Send images on one association, and return the time to the answer of each."""
    association, found = associated(port), []
    for one in images:
        start = time.perf_counter()
        if association.send_c_store(one).Status != 0:
            raise RuntimeError("an image was not accepted")
        found.append(time.perf_counter() - start)
    association.release()
    return found


def memory(n: int, folder: Path) -> None:
    with receiving_node(folder) as service:
        pids = json.loads((service.config.folder / "processes.json").read_text())
        number, start = 1, time.perf_counter()
        while number <= n:
            acknowledgement_seconds(service.port, map(image, range(number, number + ASSOCIATION)))
            number += ASSOCIATION
            if (number - 1) % max(ASSOCIATION, n // 10 // ASSOCIATION * ASSOCIATION) == 0:
                rate = (number - 1) / (time.perf_counter() - start)
                said = (memory_of(name, pids[name]) for name in ("receiver", "supervisor"))
                print(f"{number - 1:6} images, {rate:.0f}/s: {', '.join(said)}", flush=True)


def memory_of(name: str, pid: int) -> str:
    now = process_figures(pid)
    return f"{name} {now.resident / 2**20:.0f} MB, {descriptors(pid)} files, {now.threads} threads"


def _range(values: list[float], digits: int = 0) -> str:
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", choices=("throughput", "acknowledgement", "memory"))
    parser.add_argument("--n", type=int)
    parser.add_argument("--repeats", type=int, default=3)
    chosen = parser.parse_args()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    parts: dict[str, tuple[Callable[..., None], int]] = {
        "throughput": (partial(throughput, repeats=chosen.repeats), 300),
        "acknowledgement": (acknowledgement, 200),
        "memory": (memory, 10_000),
    }
    for name, (measure, n) in parts.items():
        if chosen.part in (None, name):
            with tempfile.TemporaryDirectory(prefix="node-throughput-") as folder:
                measure(n=chosen.n or n, folder=Path(folder))


if __name__ == "__main__":
    main()
