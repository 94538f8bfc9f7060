"""Speed and memory of networks by the protocols of the papers, and the latency of ``torch.compile``."""

from pathlib import Path
from typing import Any

import usvit

KEPT = (
    *("mode", "batch", "image_size", "precision", "status", "reason", "branches", "images_per_second"),
    *("seconds_median", "repeats", "compile_seconds", "peak_memory_mib"),
)


def protocol(settings: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Measure one network by the protocol of a paper, as ``usvit bench`` does.

    Args:
        settings: ``model``, ``protocol``, and further arguments of ``usvit.benchmark`` in ``arguments``.
        scratch: Not used.
    """
    found = usvit.benchmark(settings["model"], protocol=settings["protocol"], **settings["arguments"])
    rows = [row.model_dump() for row in found.results if row.reported]
    raise_without_result(rows)
    figures = [figure.model_dump() for model in found.models for figure in model.paper]
    papers = [figure for figure in figures if figure["protocol"] == found.protocol.figures]
    return {
        "rows": [{key: row[key] for key in KEPT} for row in rows],
        "papers": {str(figure["image_size"]): figure["images_per_second"] for figure in papers},
        "hardware": found.protocol.hardware,
        "source": found.protocol.source,
        "command": command(settings["model"], settings["protocol"], settings["arguments"]),
    }


def compiled(settings: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Measure one network without and with ``torch.compile``, which begins with an empty cache.

    Args:
        settings: ``model`` and further arguments of ``usvit.benchmark`` in ``arguments``.
        scratch: Not used.
    """
    rows = []
    for compile_ in (False, True):
        found = usvit.benchmark(settings["model"], compile=compile_, **settings["arguments"])
        rows += [{**{key: getattr(row, key) for key in KEPT}, "compiled": compile_} for row in found.results]
    raise_without_result(rows)
    return {"rows": rows, "command": command(settings["model"], "fixed", {**settings["arguments"], "compile": True})}


def raise_without_result(rows: list[dict[str, Any]]) -> None:
    """Raise the first reason if no row has a result; otherwise the rows themselves say what failed."""
    if not any(row["status"] == "ok" for row in rows):
        raise RuntimeError(f"{rows[0]['status']}: {rows[0]['reason']}")


def command(model: str, name: str, arguments: dict[str, Any]) -> str:
    """Return the command line of a call of ``usvit.benchmark``."""
    words = ["usvit bench", model, "--protocol", name]
    for key, value in arguments.items():
        if "__" in key:
            words.append(f"--set {key.replace('__', '.')}={value}")
        else:
            words.append(f"--{key.replace('_', '-')}" + ("" if value is True else f" {value}"))
    return " ".join(words)
