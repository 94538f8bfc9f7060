"""The benchmark: models x modes x precisions by one protocol, each measurement in a child process."""

import dataclasses
import datetime
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usvit.bench.case import Case, Hardware, Mode, Row
from usvit.bench.child import look, run_case
from usvit.bench.output import line, write_results
from usvit.bench.protocols import Protocol
from usvit.bench.search import Measure, search
from usvit.config import build_config
from usvit.errors import UsvitError
from usvit.models.zoo import find_model
from usvit.progress import Progress, task

SCHEMA_VERSION = "1.0"


@dataclass(frozen=True)
class BenchSettings:
    """What to measure."""

    models: tuple[str, ...]
    protocol: Protocol
    """With ``batch``, ``max_batch`` and ``repeats`` as they are to be."""
    modes: tuple[Mode, ...]
    precisions: tuple[str, ...]
    hardware: Hardware
    seconds: float
    n_classes: int
    model_settings: dict[str, Any]
    """Of the configuration's section ``model``: image_size, vit, ..."""


def run_bench(
    settings: BenchSettings,
    *,
    out: Path | None,
    command: str,
    progress: Progress,
    measure: Measure = run_case,
    look: Callable[[list[Case]], dict[str, Any]] = look,
) -> dict[str, Any]:
    """Measure everything, and write what is there after each measurement.

    Args:
        settings: what to measure.
        out: folder for bench.json, bench.csv and bench.svg; None writes nothing.
        command: how the user asked, for the record.
        progress: where progress is shown.
        measure, look: the child processes (exchanged in tests).

    Returns:
        The content of ``bench.json`` (docs/reference/bench.schema.json).

    Raises:
        UsvitError: something cannot work (before anything is measured), or the folder holds results already.
    """
    if out is not None and (out / "bench.json").exists():
        raise UsvitError(f"{out / 'bench.json'} is there already. Choose another folder with --out.")
    cases = [
        dataclasses.replace(case, hardware=dataclasses.replace(settings.hardware, precision=precision))
        for case in _cases(settings)
        for precision in settings.precisions
    ]
    seen = look(cases)
    protocol = settings.protocol
    result: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": command,
        "protocol": dataclasses.asdict(protocol) | {"modes": list(settings.modes)},
        "settings": {
            "seconds": settings.seconds,
            "n_classes": settings.n_classes,
            "precisions": list(settings.precisions),
            **dataclasses.asdict(settings.hardware),
            "model": settings.model_settings,
        },
        **seen,
        "results": [],
    }
    del result["settings"]["precision"]

    def run(case: Case) -> list[Row]:
        rows = measure(case)
        for row in rows:
            progress.say(line(row))
        return rows

    with task(progress, f"protocol {protocol.name}", len(cases), "measurements") as advance:
        for done, case in enumerate(cases, start=1):
            rows = search(protocol.search, case, run, max_batch=protocol.max_batch)
            result["results"] += [dataclasses.asdict(row) for row in rows]
            if out is not None:
                write_results(result, out)
            advance(done)
    return result


def _cases(settings: BenchSettings) -> list[Case]:
    """Models x modes; the names and settings are checked here, where it is quick."""
    cases = []
    for name in dict.fromkeys(settings.models):
        model = build_config({"model": {**settings.model_settings, "name": name, "weights": "scratch"}}).model
        spec = find_model(name, model.vit.model_dump(exclude_none=True))
        if "image_size" not in settings.model_settings:
            model = model.model_copy(update={"image_size": spec.image_size})
        cases += [
            Case(
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
