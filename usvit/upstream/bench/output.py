"""Output of the benchmark: lines and tables for the terminal, bench.json, bench.csv and bench.svg."""

import re
from itertools import groupby
from operator import attrgetter
from pathlib import Path

import pandas as pd

from usvit.files import csv_text, write_text
from usvit.models import PROTOCOLS as HOW_MEASURED
from usvit.records import save_record
from usvit.upstream.bench.plot import draw, middle_half
from usvit.upstream.bench.protocols import PRINTED_GAINS
from usvit.upstream.records.bench import BenchRecord, BenchResult

BUSY = 1.5
"""The table warns if the load exceeds this multiple of the number of cores."""
_TABLE_4 = r"v100_batch\d+_(seq|par)"


def line(row: BenchResult) -> str:
    """Format the line that is shown after a measurement."""
    about = f"{row.model}, {row.mode}, batch {row.batch}, {row.precision}"
    if row.branches:
        about += f", branches {'one after the other' if row.branches == 'sequential' else 'at once'}"
    if row.images_per_second is None:
        return f"{about}: {row.status.replace('_', ' ')}: {row.reason}"
    memory = f", {row.peak_memory_mib:.0f} MiB" if row.peak_memory_mib is not None else ""
    return f"{about}: {speed(row.images_per_second)} images/s{memory}"


def speed(value: float) -> str:
    """Format images/s with about three digits, the precision of measurements on a shared machine."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(result: BenchRecord) -> str:
    """Format the results as aligned text, beside the papers' figures."""
    rows = [row for row in result.results if row.reported]
    ok = [row for row in rows if row.status == "ok"]
    parts = [_head(result)]
    if result.protocol.search == "batches":
        parts += _latency(ok, result)
    elif ok:
        parts.append(_plain(ok, result))
    failures = [line(row) for row in rows if row.status != "ok"]
    if failures:
        parts.append("No result:\n" + "\n".join(f"  {text}" for text in failures))
    parts += _notes(ok, result)
    return "\n\n".join(parts)


def write_results(result: BenchRecord, out: Path) -> None:
    """Write bench.json, bench.csv (one line per measurement) and bench.svg, replacing those of earlier calls."""
    save_record(out / "bench.json", result)
    write_text(out / "bench.csv", csv_text(pd.DataFrame([row.content() for row in result.results])))
    write_text(out / "bench.svg", draw(result))


def _head(result: BenchRecord) -> str:
    machine, versions, protocol = result.machine, result.versions, result.protocol
    source = "" if protocol.source == "none" else f" ({protocol.source})"
    return (
        f"Protocol {protocol.name}: {protocol.says}{source}\n"
        f"{machine.name} ({machine.device}, {machine.threads} of {machine.cores} cores), "
        f"torch {versions['torch']}, timm {versions['timm']}"
    )


def _plain(rows: list[BenchResult], result: BenchRecord) -> str:
    header = ["model", "mode", "precision", "batch", "images/s", "middle half", "peak MiB"]
    columns: list[list[str]] = []
    for row in rows:
        assert row.images_per_second is not None
        half, memory = middle_half(row), row.peak_memory_mib
        columns.append(
            [
                *(row.model, row.mode, row.precision, str(row.batch)),
                speed(row.images_per_second),
                f"{speed(half[0])} to {speed(half[1])}",
                "-" if memory is None else f"{memory:.0f}",
            ]
        )
    compiled = [row.compile_seconds for row in rows]
    if any(seconds is not None for seconds in compiled):
        header.append("compile s")
        for cells, seconds in zip(columns, compiled, strict=True):
            cells.append("-" if seconds is None else f"{seconds:.0f}")
    papers = [_paper(row, result) for row in rows]
    if any(papers):
        header.append("paper*")
        for cells, figure in zip(columns, papers, strict=True):
            cells.append(figure or "-")
    return _aligned(header, columns)


def _paper(row: BenchResult, result: BenchRecord) -> str:
    """Return the paper's figure for this protocol and image size; empty if there is none."""
    if row.mode != "infer":
        return ""
    for model in result.models:
        for figure in model.paper if model.name == row.model else []:
            if figure.protocol == result.protocol.figures and figure.image_size == row.image_size:
                return f"{figure.images_per_second:g}"
    return ""


def _latency(rows: list[BenchResult], result: BenchRecord) -> list[str]:
    """Make a table per model like Table 4 of Three things; gain is the faster of the two over ``seq``, as there."""
    tables = []
    figures = {
        (model.name, figure.image_size, figure.protocol): figure.images_per_second
        for model in result.models
        for figure in model.paper
    }
    keys = attrgetter("model", "mode", "precision", "image_size")
    for (model, mode, precision, size), group in groupby(rows, key=keys):
        by_batch: dict[int, dict[str, float]] = {}
        for row in group:
            assert row.images_per_second is not None
            by_batch.setdefault(row.batch, {})[row.branches or "sequential"] = row.images_per_second
        printed = {
            batch: [figures.get((model, size, f"v100_batch{batch}_{how}"), 0.0) for how in ("seq", "par")]
            for batch in by_batch
            if mode == "infer"
        }
        shown = any(any(speeds) for speeds in printed.values())
        header = ["batch", "images/s"]
        if any("parallel" in speeds for speeds in by_batch.values()):
            header = ["batch", "seq", "par", "best", "gain"]
        if shown:
            header += ["paper: seq", "par", "gain"]
        lines = []
        for batch, speeds in by_batch.items():
            cells = [str(batch), speed(speeds["sequential"])]
            if "parallel" in speeds:
                best = max(speeds.values())
                cells += [speed(speeds["parallel"]), speed(best), f"{best / speeds['sequential'] - 1:.0%}"]
            if shown:
                cells += [f"{value:g}" if value else "-" for value in printed[batch]]
                cells.append(PRINTED_GAINS.get(model, {}).get(batch, "-"))
            lines.append(cells)
        title = f"{model}, {mode}, {precision}, images/s"
        if shown:
            title += f" (the paper's on other hardware: {result.protocol.hardware}, precision not stated)"
        tables.append(f"{title}\n{_aligned(header, lines)}")
    return tables


def _notes(rows: list[BenchResult], result: BenchRecord) -> list[str]:
    notes = []
    printed = [
        f"  {model.name} at {figure.image_size}: {figure.images_per_second:g} images/s, {HOW_MEASURED[figure.protocol]}"
        for model in result.models
        for figure in model.paper
        # The figures of Table 4 are many, and are shown in the latency table already.
        if not re.fullmatch(_TABLE_4, figure.protocol)
    ]
    if printed:
        notes.append("* Papers, other hardware, inference:\n" + "\n".join(printed))
    cut = sum(row.repeats < result.protocol.repeats for row in rows)
    if cut:
        notes.append(
            f"{cut} of {len(rows)} measurements were cut short of {result.protocol.repeats} repeats by "
            f"--seconds {result.settings.seconds:g}."
        )
    load, cores = max((row.load or 0.0 for row in rows), default=0.0), result.machine.cores or 1
    if load > BUSY * cores:
        notes.append(
            f"The machine was also busy with other work (load up to {load:.1f} on {cores} cores), so speeds are lower "
            "and vary more than they would otherwise."
        )
    return notes


def _aligned(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(header, *rows, strict=True)]
    words = {"model", "mode", "precision"}
    return "\n".join(
        "  ".join(
            cell.ljust(width) if name in words else cell.rjust(width)
            for cell, width, name in zip(cells, widths, header, strict=True)
        ).rstrip()
        for cells in [header, *rows]
    )
