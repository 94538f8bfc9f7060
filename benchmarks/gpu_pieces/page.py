"""``docs/benchmarks-gpu.md``, from the content of ``gpu.json`` alone."""

import string
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.gpu_pieces.plan import Measurement, full, tiny

Entry = dict[str, Any]

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


@dataclass(frozen=True)
class Section:
    """A table of the page."""

    title: str
    text: str
    columns: dict[str, str]
    """Header -> template of a cell (``_Cells``), whose fields are settings and values of a measurement."""
    rows: Callable[[Entry], Iterable[Entry]] = lambda one: [one]
    """Divides a measurement into the fields of each row."""

    def table(self, entries: Iterable[Entry], **more: str) -> str:
        columns = {**self.columns, **more}
        lines = [list(columns), ["---"] * len(columns)]
        lines += [
            [_CELLS.format(cell, **row) for cell in columns.values()] for one in entries for row in self.rows(one)
        ]
        return "".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |\n" for line in lines)


class _Cells(string.Formatter):
    """Templates with ``{name}``, ``{name:n}`` (about three digits) and ``{name:%}``; None and missing ones are "–"."""

    def get_value(self, key: int | str, args: Any, kwargs: Any) -> Any:
        return kwargs.get(key)

    def format_field(self, value: Any, format_spec: str) -> str:
        if value is None or value == "":
            return "–"
        if format_spec == "n":
            return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
        return f"{value:.1%}" if format_spec == "%" else format(value, format_spec)


_CELLS = _Cells()


def _machine(one: Entry) -> list[Entry]:
    optional = (f"{name} (optional)" for name in one["missing_optional_packages"])
    missing = ", ".join([*one["missing_packages"], *optional]) or "none"
    return [{**one["versions"], **one, "date": one["started"][:10], "missing": missing}]


_MACHINES = Section(
    "Machines",
    "",
    {
        **{"session": "{letter}", "device": "{name}", "driver": "{driver}", "CUDA": "{cuda}", "torch": "{torch}"},
        **{"timm": "{timm}", "Python": "{python}", "cores": "{cores}", "commit": "{commit}", "date": "{date}"},
        "missing packages": "{missing}",
    },
    _machine,
)


def _machines(sessions: list[Entry]) -> str:
    lettered = [{**one, "letter": _letter(number)} for number, one in enumerate(sessions)]
    return f"## {_MACHINES.title}\n\n{_MACHINES.table(lettered)}"


def _letter(number: int) -> str:
    return chr(ord("A") + number) if number < 26 else str(number + 1)


def _section(piece: str, content: dict[str, Any], planned: list[Measurement]) -> str:
    """Return a table with device, date, commit and command, and what is missing in it."""
    section = SECTIONS[piece]
    entries = {key: one for key, one in content["results"].items() if key.partition("/")[0] == piece}
    order = dict.fromkeys([*(one.key for one in planned), *entries])
    measured = [entries[key] for key in order if key in entries and entries[key]["status"] == "ok"]
    parts = [
        f"## {section.title}\n",
        f"{textwrap.fill(section.text, 120, break_long_words=False, break_on_hyphens=False)}\n",
    ]
    if measured:
        parts.append(_measured_on({one["session"] for one in measured}, content["sessions"], piece))
        fields = ({**one, **one["settings"], **one["values"], "letter": _letter(one["session"])} for one in measured)
        parts.append(section.table(fields, session="{letter}"))
        parts.append(_commands(one["values"].get("command") for one in measured))
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


def _cv(one: Entry) -> Iterator[Entry]:
    for number, run in enumerate(one["runs"], start=1):
        trained, n_folds = sum(fold["steps"] for fold in run["folds"]), len(run["folds"])
        floor = None if one["peak_tflops"] is None else one["operations"] / one["peak_tflops"] / 1e12
        share = floor / run["training"] if floor is not None and run["training"] else None
        yield {
            **run,
            "says": one["says"] + (f", run {number}" if len(one["runs"]) > 1 else ""),
            "letter": one["letter"],
            "steps": f"{n_folds} × {trained // max(1, n_folds)}",
            "start_up": run["python"] + run["imports"] + run["device"],
            "floor": None if floor is None else _CELLS.format("{floor:n} ({share:%})", floor=floor, share=share),
        }


def _pretrain(one: Entry) -> Iterator[Entry]:
    yield {**one, "mode": "compiled" if one["compile"] else "eager"}


def _tests(one: Entry) -> Iterator[Entry]:
    yield {
        **{**one, "files": ", ".join(one["files"]), "n_skipped": len(one["skipped"])},
        "failed": "; ".join(f"`{test['name']}`" for test in one["failed"]) or "none",
        "reasons": "; ".join(dict.fromkeys(test["message"] for test in one["skipped"])),
    }


def _bench(one: Entry) -> Iterator[Entry]:
    for row in one["rows"]:
        figure = one["papers"].get(str(row["image_size"])) if row["mode"] == "infer" else None
        yield {
            **{**one, **row},
            "mode": row["mode"] + (f", {row['branches']} branches" if row["branches"] else ""),
            "speed": _CELLS.format("{images_per_second:n}" if row["status"] == "ok" else "{status}: {reason}", **row),
            "paper": None if figure is None else f"{figure:g} ({one['hardware']})",
        }


def _compile(one: Entry) -> Iterator[Entry]:
    for mode in dict.fromkeys(row["mode"] for row in one["rows"]):
        pair = {row["compiled"]: row for row in one["rows"] if row["mode"] == mode}
        eager, compiled = (pair.get(key, {}).get("images_per_second") for key in (False, True))
        failed = [f"{row['status']}: {row['reason']}" for row in pair.values() if row["status"] != "ok"]
        yield {
            **{**one, **next(iter(pair.values())), "eager": eager, "compiled": compiled},
            "ratio": f"{compiled / eager:.2f}" if eager and compiled else "; ".join(failed),
            "compile_seconds": pair[True]["compile_seconds"] if True in pair else None,
        }


SECTIONS = {
    "cv": Section(
        "Cross-validation by the paper's recipe",
        "Generated images of the number and about the sizes of BUSI and data set B, three classes, random "
        "weights. All steps of the recipe are run. Seconds; start-up is Python, the imports and the context of "
        "the device. The rest is divided into what is before the first training step, between the trainings of "
        "the folds (predictions, files), and after the last of them. The aim is 20 s without start-up on one H200. "
        "The floor is the operations of the training steps over the peak of the device, in brackets as a share of the "
        "training.",
        {
            **{"what": "{says}", "folds × steps": "{steps}", "start-up": "{start_up:n}"},
            **{"checking, copies": "{checking:n}", "decoding": "{decoding:n}", "training": "{training:n}"},
            **{"rest": "{rest_before:n} + {rest_between:n} + {rest_after:n}", "total": "{total:n}"},
            **{"without start-up": "**{without_start_up:n}**", "until training": "{until_training:n}"},
            **{"floor": "{floor}", "peak GB": "{peak_gb:n}"},
        },
        _cv,
    ),
    "pretrain": Section(
        "Pre-training",
        "Images/s of whole training steps: from JPEG files of 500 x 375 pixels, from images that were decoded once "
        "(source.decoded=auto), and on a batch that stays on the device. Input is the share of the time of each of "
        "the first two that the resident batch does not take; the aim is 3 % with decoded images. MFU counts six "
        "operations for each multiply-accumulate of the network, over the peak of the device. The aims on an H200 are "
        "45 % for ViT-B/16, and 8,000 images/s for ViT-S/16.",
        {
            **{"recipe": "{recipe}", "model": "{model}", "mode": "{mode}", "batch": "{batch_size}"},
            # Results of earlier calls lack the figures of the store.
            **{
                "precision": "{precision}",
                "files, images/s": "{files_speed:n}",
                "decoded, images/s": "{store_speed:n}",
            },
            **{"resident, images/s": "**{resident_speed:n}**", "input, files": "{input_share:%}"},
            **{"input, decoded": "**{store_share:%}**", "MFU, files": "{files_mfu:%}"},
            **{
                "MFU, resident": "**{resident_mfu:%}**",
                "peak GB": "{peak_gb:n}",
                "first step, s": "{first_step_seconds:n}",
            },
        },
        _pretrain,
    ),
    "score": Section(
        "Scoring, from files to tables",
        "Images/s, DICOM phantoms (uncompressed, RLE, JPEG, JPEG 2000 in turn). The aim is 0.95 of the slower of "
        "reading alone and inference alone.",
        {
            **{"networks": "{n_networks} × {model}, {precision}", "files": "{files}", "readers": "{workers}"},
            **{"decode only": "{medians[decode only]:n}", "infer only": "{medians[infer only]:n}"},
            **{"scoring": "{medians[usvit score]:n}", "whole command": "{medians[whole command]:n}"},
            **{"plain loop": "{medians[plain loop]:n}", "of the slower": "**{of_the_slower:.2f}**"},
        },
    ),
    "tests": Section(
        "Tests that need a GPU",
        "The test files in which the presence of a GPU decides what runs.",
        {
            **{"files": "{files}", "passed": "{passed}", "failed": "{failed}", "skipped": "{n_skipped}"},
            "reasons of the skipped": "{reasons}",
        },
        _tests,
    ),
    "distributed": Section(
        "DDP and FSDP with one process",
        "The training step on a resident batch, in a group of one process: does it run, and what does it cost?",
        {
            **{"what": "{says}", "strategy": "{strategy}", "model": "{model}", "batch": "{batch_size}"},
            **{"precision": "{precision}", "images/s": "{resident_speed:n}", "peak GB": "{peak_gb:n}"},
            "first step, s": "{first_step_seconds:n}",
        },
    ),
    "bench": Section(
        "Networks by the papers' protocols",
        "`usvit bench`; [the protocols](how-to/bench.md). The papers' figures are of other hardware.",
        {
            **{"protocol": "{protocol}", "model": "{model}", "mode": "{mode}", "precision": "{precision}"},
            **{"batch": "{batch}", "images/s": "{speed}", "peak MiB": "{peak_memory_mib:n}", "paper": "{paper}"},
        },
        _bench,
    ),
    "compile": Section(
        "torch.compile",
        "Images/s without and with it, and the time of the first step beyond the median, with an empty cache.",
        {
            **{"model": "{model}", "mode": "{mode}", "batch": "{batch}", "eager": "{eager:n}"},
            **{"compiled": "{compiled:n}", "ratio": "{ratio}", "compiling, s": "{compile_seconds:n}"},
        },
        _compile,
    ),
}
