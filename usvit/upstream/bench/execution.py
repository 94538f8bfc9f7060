"""The benchmark: models x modes x precisions with one protocol, each measured in a child process."""

import contextlib
import dataclasses
import datetime
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from usvit.config import build_config
from usvit.errors import UsvitError
from usvit.files import OutputFolder
from usvit.models import find_model
from usvit.plain_data import Settings
from usvit.progress import Progress, task
from usvit.upstream.bench.case import BenchmarkCase, Hardware, Preflight
from usvit.upstream.bench.isolation import look, run_case
from usvit.upstream.bench.output import line, write_results
from usvit.upstream.bench.protocols import Protocol
from usvit.upstream.bench.search import Measure, search
from usvit.upstream.records.bench import BenchRecord, BenchResult, BenchSettingsRecord, Mode, Precision, ProtocolRecord

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class BenchSettings:
    """The measurements to make."""

    models: tuple[str, ...]
    protocol: Protocol
    """The protocol, with the requested ``batch``, ``max_batch`` and ``repeats``."""
    modes: tuple[Mode, ...]
    precisions: tuple[Precision, ...]
    hardware: Hardware
    seconds: float
    n_classes: int
    model_settings: Settings
    """Settings of the configuration's section ``model``: image_size, vit and others."""


def run_bench(
    settings: BenchSettings,
    *,
    out: Path | None,
    command: str,
    progress: Progress,
    measure: Measure = run_case,
    look: Callable[[list[BenchmarkCase]], Preflight] = look,
) -> BenchRecord:
    """Run all measurements, and write the results so far after each of them.

    Args:
        settings: the measurements to make.
        out: folder for bench.json, bench.csv and bench.svg, or None to write nothing.
        command: the command line, for the record.
        progress: shows the progress.
        measure, look: functions that start the child processes; tests replace them.

    Returns:
        The content of ``bench.json`` (docs/reference/bench.schema.json).

    Raises:
        UsvitError: a measurement is impossible (found before the first one), or the folder already holds results.
    """
    folder = None if out is None else OutputFolder(out, "a benchmark", "bench.json")
    with contextlib.nullcontext() if folder is None else folder.opened():
        if folder is not None and folder.has_record():
            raise UsvitError(f"{folder.path / folder.record} already exists. Choose another folder with --out.")
        return _measured(settings, out, command, progress, measure, look)


def _measured(
    settings: BenchSettings,
    out: Path | None,
    command: str,
    progress: Progress,
    measure: Measure,
    look: Callable[[list[BenchmarkCase]], Preflight],
) -> BenchRecord:
    cases = [
        dataclasses.replace(case, hardware=dataclasses.replace(settings.hardware, precision=precision))
        for case in _cases(settings)
        for precision in settings.precisions
    ]
    seen = look(cases)
    protocol = settings.protocol
    record = BenchRecord(
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        command=command,
        protocol=ProtocolRecord(**{**vars(protocol), "modes": list(settings.modes)}),
        settings=_settings(settings),
        machine=seen.machine,
        versions=seen.versions,
        models=seen.models,
        results=[],
    )

    def run(case: BenchmarkCase) -> list[BenchResult]:
        rows = measure(case)
        for row in rows:
            logger.info(line(row))
        return rows

    with task(progress, f"protocol {protocol.name}", len(cases), "measurements") as advance:
        for done, case in enumerate(cases, start=1):
            rows = search(protocol.search, case, run, max_batch=protocol.max_batch)
            record = record.model_copy(update={"results": [*record.results, *rows]})
            if out is not None:
                write_results(record, out)
            advance(done)
    return record


def _settings(settings: BenchSettings) -> BenchSettingsRecord:
    hardware = settings.hardware
    return BenchSettingsRecord(
        seconds=settings.seconds,
        n_classes=settings.n_classes,
        precisions=list(settings.precisions),
        device=hardware.device,
        compile=hardware.compile,
        channels_last=hardware.channels_last,
        threads=hardware.threads,
        memory_gb=hardware.memory_gb,
        model=settings.model_settings,
    )


def _cases(settings: BenchSettings) -> list[BenchmarkCase]:
    """Make models x modes, and check the names and settings before any process starts."""
    cases = []
    for name in dict.fromkeys(settings.models):
        model = build_config({"model": {**settings.model_settings, "name": name, "weights": "scratch"}}).model
        spec = find_model(name, model.vit.model_dump(exclude_none=True))
        if "image_size" not in settings.model_settings:
            model = model.model_copy(update={"image_size": spec.image_size})
        cases += [
            BenchmarkCase(
                model=model.model_dump(),
                mode=mode,
                batch=settings.protocol.batch,
                n_classes=settings.n_classes,
                repeats=settings.protocol.repeats,
                seconds=settings.seconds,
                branches=settings.protocol.search == "batches" and mode == "infer",
            )
            for mode in settings.modes
        ]
    return cases
