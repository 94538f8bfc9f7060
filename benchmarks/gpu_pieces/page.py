"""``docs/benchmarks-gpu.md``, from the content of ``gpu.json`` alone."""

import textwrap
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.gpu_pieces.plan import Measurement, full, tiny

Entry = dict[str, Any]
Row = list[str]

COMMAND = "python benchmarks/gpu.py --out DIR"
INTRODUCTION = """# Benchmarks on a GPU

`python benchmarks/gpu.py --out DIR` measures usvit on the GPU of a machine. It takes at most 8.5 minutes, and the same
command continues where it stopped. With `--page` it writes this page from the results alone, and with `--tiny` it
proves on a CPU that every piece runs. The docstring of the script says how to take it to a machine without network.
What has been measured on CPUs is on [another page](benchmarks.md).
"""
RESULTS = """All results are in [benchmarks-gpu.json](benchmarks-gpu.json), with the settings of each measurement.
"""
NOTHING = """**Nothing has been measured on a GPU yet**, because none was available. This page therefore has no figures.
"""
TINY = """**These are tiny settings on a CPU: the page shows that every piece runs, and its figures mean nothing.**
"""


def page(content: dict[str, Any]) -> str:
    """Return the page of the results of ``gpu.json``."""
    if not content["results"]:
        return f"{INTRODUCTION}\n{NOTHING}"
    planned = tiny() if content["tiny"] else full()
    parts = [INTRODUCTION, TINY if content["tiny"] else RESULTS, _machines(content["sessions"])]
    parts += [_section(piece, content, planned) for piece in SECTIONS]
    return "\n".join(parts)


def _machines(sessions: list[Entry]) -> str:
    header = [
        "session",
        "device",
        "driver",
        "CUDA",
        "torch",
        "timm",
        "Python",
        "cores",
        "commit",
        "date",
        "missing packages",
    ]
    rows = [
        [
            _letter(number),
            one["name"],
            one["driver"] or "–",
            one["cuda"] or "–",
            *(one["versions"].get(name, "–") for name in ("torch", "timm", "python")),
            str(one["cores"]),
            one["commit"],
            one["started"][:10],
            ", ".join([*one["missing_packages"], *(f"{name} (optional)" for name in one["missing_optional_packages"])])
            or "none",
        ]
        for number, one in enumerate(sessions)
    ]
    return f"## Machines\n\n{_table(header, rows)}"


def _section(piece: str, content: dict[str, Any], planned: list[Measurement]) -> str:
    """Return a table with device, date, commit and command, and what is missing in it."""
    title, text, header, rows_of = SECTIONS[piece]
    entries = {key: one for key, one in content["results"].items() if key.partition("/")[0] == piece}
    measured = {key: one for key, one in entries.items() if one["status"] == "ok"}
    order = [one.key for one in planned if one.key in measured]
    order += [key for key in measured if key not in order]
    parts = [f"## {title}\n", f"{textwrap.fill(text, 120, break_long_words=False, break_on_hyphens=False)}\n"]
    if order:
        parts.append(_measured_on({measured[key]["session"] for key in order}, content["sessions"], piece))
        rows = [[*row, _letter(measured[key]["session"])] for key in order for row in rows_of(key, measured[key])]
        parts.append(_table([*header, "session"], rows))
        parts.append(_commands(measured[key]["values"].get("command") for key in order))
    parts.append(_not_measured(entries, [one for one in planned if one.piece == piece]))
    return "\n".join(part for part in parts if part)


def _measured_on(numbers: set[int], sessions: list[Entry], piece: str) -> str:
    places = [
        f"{sessions[at]['name']}, {sessions[at]['started'][:10]}, commit {sessions[at]['commit']}"
        for at in sorted(numbers)
    ]
    return f"Measured by `{COMMAND} --pieces {piece}` on {'; '.join(dict.fromkeys(places))}.\n"


def _commands(commands: Iterable[str | None]) -> str:
    """List what measures a row alone."""
    found = list(dict.fromkeys(command for command in commands if command))
    return "".join(["The same, one by one:\n\n", *(f"- `{command}`\n" for command in found)]) if found else ""


def _not_measured(entries: dict[str, Entry], planned: list[Measurement]) -> str:
    """List what failed or has not been tried, each with its reason."""
    lines = []
    for key, one in entries.items():
        if one["status"] != "ok":
            lines.append(f"- `{key}` ({one['says']}): {_reason(one)}\n")
    lines += [f"- `{one.key}` ({one.says}): not tried yet\n" for one in planned if one.key not in entries]
    return "".join(["Not measured:\n\n", *lines]) if lines else ""


def _reason(one: Entry) -> str:
    if one["status"] == "skipped":
        return f"skipped: needs {one['needs']}"
    if one["status"] == "started":
        return "the machine or the command ended before it"
    lines = [line.strip() for line in one["error"].splitlines() if line.strip() and not line.startswith("(exit code")]
    last = lines[-1].replace("`", "'") if lines else "it printed nothing"
    return f"{one['status']}: `{last[:200]}`"


def _cv(key: str, one: Entry) -> list[Row]:
    values, rows = one["values"], []
    peak, runs = values["peak_tflops"], values["runs"]
    for number, run in enumerate(runs, start=1):
        floor = None if peak is None else values["operations"] / peak / 1e12
        trained = sum(fold["steps"] for fold in run["folds"])
        rows.append(
            [
                f"{one['says']}{f', run {number}' if len(runs) > 1 else ''}",
                f"{len(run['folds'])} × {trained // max(1, len(run['folds']))}",
                _number(run["python"] + run["imports"] + run["device"]),
                *(_number(run[phase]) for phase in ("checking", "decoding", "training")),
                " + ".join(_number(run[f"rest_{when}"]) for when in ("before", "between", "after")),
                _number(run["total"]),
                f"**{_number(run['without_start_up'])}**",
                _number(run["until_training"]),
                "–"
                if floor is None
                else f"{_number(floor)} ({_share(floor / run['training'] if run['training'] else None)})",
                _number(run["peak_gb"]),
            ]
        )
    return rows


def _pretrain(key: str, one: Entry) -> list[Row]:
    values, settings = one["values"], one["settings"]
    return [
        [
            settings["recipe"],
            settings["model"],
            "compiled" if settings["compile"] else "eager",
            str(values["batch_size"]),
            values["precision"],
            _number(values["files_speed"]),
            _number(values.get("store_speed")),  # results of earlier calls lack it
            f"**{_number(values['resident_speed'])}**",
            f"{values['input_share']:.1%}",
            f"**{_share(values.get('store_share'))}**",
            _share(values["files_mfu"]),
            f"**{_share(values['resident_mfu'])}**",
            _number(values["peak_gb"]),
            _number(values["first_step_seconds"]),
        ]
    ]


def _score(key: str, one: Entry) -> list[Row]:
    values, settings = one["values"], one["settings"]
    names = ("decode only", "infer only", "usvit score", "whole command", "plain loop")
    return [
        [
            f"{values['n_networks']} × {settings['model']}, {settings['precision']}",
            str(settings["files"]),
            str(settings["workers"]),
            *(_number(values["medians"][name]) for name in names),
            f"**{values['of_the_slower']:.2f}**",
        ]
    ]


def _tests(key: str, one: Entry) -> list[Row]:
    values = one["values"]
    failed = "; ".join(f"`{test['name']}`" for test in values["failed"]) or "none"
    reasons = "; ".join(dict.fromkeys(test["message"] for test in values["skipped"])) or "–"
    return [[", ".join(values["files"]), str(values["passed"]), failed, str(len(values["skipped"])), reasons]]


def _distributed(key: str, one: Entry) -> list[Row]:
    values = one["values"]
    return [
        [
            one["says"],
            values["strategy"],
            one["settings"]["model"],
            str(values["batch_size"]),
            values["precision"],
            _number(values["resident_speed"]),
            _number(values["peak_gb"]),
            _number(values["first_step_seconds"]),
        ]
    ]


def _bench(key: str, one: Entry) -> list[Row]:
    values = one["values"]
    return [
        [
            one["settings"]["protocol"],
            one["settings"]["model"],
            row["mode"] + (f", {row['branches']} branches" if row["branches"] else ""),
            row["precision"],
            str(row["batch"]),
            _number(row["images_per_second"]) if row["status"] == "ok" else f"{row['status']}: {row['reason']}",
            _number(row["peak_memory_mib"]),
            _paper(row, values),
        ]
        for row in values["rows"]
    ]


def _paper(row: Entry, values: Entry) -> str:
    figure = values["papers"].get(str(row["image_size"])) if row["mode"] == "infer" else None
    return "–" if figure is None else f"{figure:g} ({values['hardware']})"


def _compile(key: str, one: Entry) -> list[Row]:
    rows = []
    by_mode: dict[str, dict[bool, Entry]] = {}
    for row in one["values"]["rows"]:
        by_mode.setdefault(row["mode"], {})[row["compiled"]] = row
    for mode, pair in by_mode.items():
        speeds = {compiled: row["images_per_second"] for compiled, row in pair.items()}
        both = speeds.get(False) and speeds.get(True)
        failed = [f"{row['status']}: {row['reason']}" for row in pair.values() if row["status"] != "ok"]
        rows.append(
            [
                one["settings"]["model"],
                mode,
                str(next(iter(pair.values()))["batch"]),
                *(_number(speeds.get(compiled)) for compiled in (False, True)),
                f"{speeds[True] / speeds[False]:.2f}" if both else "; ".join(failed) or "–",
                _number(pair[True]["compile_seconds"]) if True in pair else "–",
            ]
        )
    return rows


SECTIONS: dict[str, tuple[str, str, Row, Callable[[str, Entry], list[Row]]]] = {
    "cv": (
        "Cross-validation by the paper's recipe",
        "Generated images of the number and about the sizes of BUSI and data set B, three classes, random "
        "weights. All steps of the recipe are run. Seconds; start-up is Python, the imports and the context of "
        "the device. The rest is divided into what is before the first training step, between the trainings of "
        "the folds (predictions, files), and after the last of them. The aim is 20 s without start-up on one H200. "
        "The floor is the operations of the training steps over the peak of the device, in brackets as a share of the "
        "training.",
        [
            *("what", "folds × steps", "start-up", "checking, copies", "decoding", "training", "rest"),
            *("total", "without start-up", "until training", "floor", "peak GB"),
        ],
        _cv,
    ),
    "pretrain": (
        "Pre-training",
        "Images/s of whole training steps: from JPEG files of 500 x 375 pixels, from images that were decoded once "
        "(source.decoded=auto), and on a batch that stays on the device. Input is the share of the time of each of "
        "the first two that the resident batch does not take; the aim is 3 % with decoded images. MFU counts six "
        "operations for each multiply-accumulate of the network, over the peak of the device. The aims on an H200 are "
        "45 % for ViT-B/16, and 8,000 images/s for ViT-S/16.",
        [
            *("recipe", "model", "mode", "batch", "precision", "files, images/s", "decoded, images/s"),
            *("resident, images/s", "input, files", "input, decoded"),
            *("MFU, files", "MFU, resident", "peak GB", "first step, s"),
        ],
        _pretrain,
    ),
    "score": (
        "Scoring, from files to tables",
        "Images/s, DICOM phantoms (uncompressed, RLE, JPEG, JPEG 2000 in turn). The aim is 0.95 of the slower of "
        "reading alone and inference alone.",
        [
            *("networks", "files", "readers", "decode only", "infer only", "scoring", "whole command", "plain loop"),
            "of the slower",
        ],
        _score,
    ),
    "tests": (
        "Tests that need a GPU",
        "The test files in which the presence of a GPU decides what runs.",
        ["files", "passed", "failed", "skipped", "reasons of the skipped"],
        _tests,
    ),
    "distributed": (
        "DDP and FSDP with one process",
        "The training step on a resident batch, in a group of one process: does it run, and what does it cost?",
        ["what", "strategy", "model", "batch", "precision", "images/s", "peak GB", "first step, s"],
        _distributed,
    ),
    "bench": (
        "Networks by the papers' protocols",
        "`usvit bench`; [the protocols](how-to/bench.md). The papers' figures are of other hardware.",
        ["protocol", "model", "mode", "precision", "batch", "images/s", "peak MiB", "paper"],
        _bench,
    ),
    "compile": (
        "torch.compile",
        "Images/s without and with it, and the time of the first step beyond the median, with an empty cache.",
        ["model", "mode", "batch", "eager", "compiled", "ratio", "compiling, s"],
        _compile,
    ),
}
"""Piece -> title, text, columns, and the function that makes the rows of one measurement."""


def _table(header: Row, rows: list[Row]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def _number(value: float | None) -> str:
    """Format a figure with about three digits."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
