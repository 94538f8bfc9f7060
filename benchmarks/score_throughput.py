"""Compare batch scoring with its parts: only decoding, only inference, and a plain loop over pydicom and timm.

    python -m benchmarks.score_throughput speed --model RUN [--n 1000] [--fold all]
    python -m benchmarks.score_throughput memory --model RUN [--n 1000 10000]

``speed``: the same files (phantoms as DICOM, in turn uncompressed, RLE, JPEG and JPEG 2000) are read without networks,
equally many images are scored without files, and ``usvit.scoring`` does both together. The rounds alternate, and the
medians of images per second are compared, also with the most that the cores allow if readers and networks share them:
with r core-ms to read an image and s core-ms to score it, c cores process at most 1000 c / (r + s) images a second.
``memory``: the resident memory of the whole process tree is measured while
``usvit score`` runs on the given numbers of files.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pydicom
import torch
from PIL import Image

from benchmarks.messy_export import dicom, phantoms
from benchmarks.processes import tree
from usvit.config.scoring import ModelSettings, ScoringSettings
from usvit.data.io import UInt8
from usvit.progress import NoProgress
from usvit.resources import usable_cores
from usvit.scoring.discovery.inputs import discover
from usvit.scoring.engines import ModelChoice, Reading
from usvit.scoring.ensemble import Ensemble, Outputs
from usvit.scoring.inference import Inference
from usvit.scoring.items import Frame, ReadSettings
from usvit.scoring.job import score
from usvit.scoring.pipeline import IN_FLIGHT

KINDS = ("grey", "rle", "jpeg", "jpeg2000")


class Clock(NoProgress):
    """Timer of the scoring without loading networks and writing tables, which do not depend on the number of files."""

    seconds = 0.0

    def start(self, name: str, total: int, unit: str, done: int = 0) -> None:
        self._name, self._begun = name, time.perf_counter()

    def finish(self) -> None:
        if self._name == "scoring":
            self.seconds = time.perf_counter() - self._begun


def make_files(folder: Path, n: int, size: int) -> Path:
    """Write ``n`` single-frame DICOM files."""
    images = phantoms(folder.with_name(f"{folder.name}-phantoms"), n, size)
    coded = [dicom(images[number % len(images)], KINDS[number % 4], "P", "N") for number in range(min(n, 400))]
    for number in range(n):
        path = folder / f"{number // 500:03d}" / f"{number:06d}.dcm"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(coded[number % len(coded)])
    return folder


def plain_loop(files: list[Path], ensemble: object, batch_size: int) -> None:
    """Score with a loop written by hand: pydicom, Pillow, the same networks; no flags, hashes, limits or journal."""
    preprocessing = ensemble.preprocessing  # type: ignore[attr-defined]
    batch = []
    for path in files:
        pixels = pydicom.dcmread(path).pixel_array
        image = np.asarray(Image.fromarray(pixels).convert("RGB"))
        batch.append(preprocessing.resized(image))
        if len(batch) == batch_size or path is files[-1]:
            ensemble.score(np.stack(batch))  # type: ignore[attr-defined]
            batch = []


@dataclass(frozen=True)
class ScoringSpeed:
    """Images/s of each way, one figure for each round."""

    rates: dict[str, list[float]]
    n_networks: int
    core_ms: dict[str, list[float]]
    """Processor time of one image in all processes, for ``decode only`` and ``infer only``."""
    cores: int

    @property
    def medians(self) -> dict[str, float]:
        return {name: statistics.median(values) for name, values in self.rates.items()}

    @property
    def of_the_slower(self) -> float:
        """Return the speed of ``usvit score`` over that of the slower of reading and inference."""
        medians = self.medians
        return medians["usvit score"] / min(medians["decode only"], medians["infer only"])

    @property
    def most(self) -> float:
        """Return the largest possible speed: that of the slower side, or less if both sides share the cores."""
        medians = self.medians
        together = sum(statistics.median(values) for values in self.core_ms.values())
        return min(medians["decode only"], medians["infer only"], 1000 * self.cores / together)


def measure(options: argparse.Namespace, folder: Path) -> ScoringSpeed:
    """Time reading, inference, both together and a plain loop.

    Args:
        options: The options of ``main``.
        folder: An empty folder for the files and the results.
    """
    chosen = ModelSettings(
        folds=options.fold,
        operating_point="0.5",
        device=options.device,
        precision=options.precision,
        batch_size=options.batch_size,
        workers=options.workers,
    )
    choice = ModelChoice(options.model, chosen)
    ensemble = choice.load()
    files = make_files(folder / "export", options.n, options.size)
    size = ensemble.preprocessing.image_size
    settings = ReadSettings(size, ensemble.preprocessing.resize, ensemble.preprocessing.crop)
    paths = sorted(files.rglob("*.dcm"))
    batch = np.random.default_rng(0).integers(0, 256, (options.batch_size, size, size, 3), dtype=np.uint8)
    rates: dict[str, list[float]] = {
        "decode only": [],
        "infer only": [],
        "usvit score": [],
        "whole command": [],
        "plain loop": [],
    }
    core_ms: dict[str, list[float]] = {"decode only": [], "infer only": []}
    ensemble.score(batch)
    for round_ in range(options.rounds):
        begun, used = time.perf_counter(), cpu_seconds()
        with Reading(settings, chosen).open() as readers:
            items = enumerate(discover([str(files)]))
            seen = sum(isinstance(event, Frame) for _, _, event in readers.read(items))
            core_ms["decode only"].append(1000 * (cpu_seconds() - used) / options.n)
        assert seen == options.n
        rates["decode only"].append(options.n / (time.perf_counter() - begun))
        begun, used = time.perf_counter(), cpu_seconds()
        seen = infer(ensemble, batch, options.n // options.batch_size)
        rates["infer only"].append(seen / (time.perf_counter() - begun))
        core_ms["infer only"].append(1000 * (cpu_seconds() - used) / seen)
        begun, clock = time.perf_counter(), Clock()
        counts = score(
            options.model,
            files,
            folder / f"scores-{round_}",
            settings=ScoringSettings(**dict(chosen), key=folder / "key"),
            progress=clock,
        ).summary.counts
        rates["usvit score"].append(options.n / clock.seconds)
        rates["whole command"].append(options.n / (time.perf_counter() - begun))
        assert counts.frames_scored == options.n
        begun = time.perf_counter()
        plain_loop(paths, ensemble, options.batch_size)
        rates["plain loop"].append(options.n / (time.perf_counter() - begun))
    return ScoringSpeed(rates, ensemble.n_members, core_ms, usable_cores())


def infer(ensemble: Ensemble, batch: UInt8, n: int) -> int:
    """Score a batch ``n`` times as ``usvit score`` does, at most ``IN_FLIGHT`` at once; return the number of images."""
    running: deque[Future[Outputs]] = deque()
    with Inference(ensemble) as inference:
        for _ in range(n):
            if len(running) == IN_FLIGHT:
                ensemble.combine(running.popleft().result())
            running.append(inference.start(list(batch)))
        for outputs in running:
            ensemble.combine(outputs.result())
    return n * len(batch)


def speed(options: argparse.Namespace, folder: Path) -> None:
    """Print the figures of ``measure``."""
    found = measure(options, folder)
    median = found.medians
    print(
        f"{options.n} files, {options.size} px, {found.n_networks} networks, {options.workers} readers, "
        f"{torch.get_num_threads()} threads, {options.rounds} rounds"
    )
    for name, values in found.rates.items():
        print(f"{name:14} {median[name]:8.1f} images/s  ({', '.join(f'{value:.1f}' for value in values)})")
    for name, spent in found.core_ms.items():
        print(f"{name:14} {statistics.median(spent):8.1f} core-ms an image")
    print(f"usvit score / the slower of decode and infer: {found.of_the_slower:.3f}")
    print(
        f"usvit score / the most that {found.cores} cores allow ({found.most:.1f} images/s): "
        f"{median['usvit score'] / found.most:.3f}"
    )
    print(f"usvit score / plain loop: {median['usvit score'] / median['plain loop']:.2f}")


def memory(options: argparse.Namespace, folder: Path) -> None:
    for n in options.counts:
        files = make_files(folder / f"export-{n}", n, options.size)
        command = [sys.executable, "-m", "usvit", "score", "--model", str(options.model), "--input", str(files)]
        command += ["--out", str(folder / f"scores-{n}"), "--key", str(folder / "key"), "--fold", options.fold]
        command += ["--workers", str(options.workers), "--batch-size", str(options.batch_size)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        begun, peaks = time.monotonic(), {"main": 0, "readers": 0}
        while process.poll() is None:
            for pid, one in tree(process.pid).items():
                kind = "main" if pid == process.pid else "readers"
                peaks[kind] = max(peaks[kind], one.resident)
            time.sleep(0.2)
        seconds = time.monotonic() - begun
        assert process.returncode == 0, process.returncode
        print(
            f"{n} files: {seconds:.0f} s, peak {peaks['main'] / 2**20:.0f} MB in the main process, "
            f"{peaks['readers'] / 2**20:.0f} MB in the largest reader"
        )


def cpu_seconds() -> float:
    """Return the processor time that this process and its living descendants have used."""
    return sum(one.cpu for one in tree(os.getpid()).values())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=("speed", "memory"))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--n", dest="counts", type=int, nargs="+", default=[1000])
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--fold", default="all")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.n = options.counts[0]
    with tempfile.TemporaryDirectory() as folder:
        (speed if options.what == "speed" else memory)(options, Path(folder))


if __name__ == "__main__":
    main()
