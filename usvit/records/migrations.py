"""Migrations of records: older contents are brought to the current schema version when they are read.

Each entry of ``MIGRATIONS`` takes a content of one version to the next known one; ``migrate`` applies them in turn.
Versions without an entry differ from their successors only by keys that were added; the models declare such keys as
not required. The files themselves are never changed. ``schema_version`` keeps the version that was written, unless the
major version changes.
"""

import re
from collections.abc import Callable
from typing import Any

Content = dict[str, Any]


def _thresholds_as_list(content: Content) -> Content:
    """Replace ``{}``, which exports of untrained networks contained for "no thresholds" before 1.2, by ``[]``."""
    return {**content, "thresholds": []} if content.get("thresholds") == {} else content


def _layer_scale_of_parallel(content: Content) -> Content:
    """Name LayerScale of the parallel and deep networks (``vit_b18x2``), which they had without a setting before 1.3.

    Since 1.3 these names stand for networks without LayerScale, as the paper trains them for 300 epochs.
    """
    vit = content.get("vit") or {}
    if not re.fullmatch(_PARALLEL, str(content.get("architecture"))) or not isinstance(vit, dict):
        return content
    return {**content, "vit": {"layer_scale": 1e-5, **vit}}


_PARALLEL = r"vit_(ti|s|m|b|l|h)[1-9]\d{0,2}x[1-9]\d?(_(hmlp|hmlp_ln|conv|conv_ln|axial))?"


_CELL = ("dataset", "model", "recipe", "variant")
"""Keys that identified a run of a study before 2.0."""


def _rows_and_columns(content: Content) -> Content:
    """Turn a study of one cross-validation (or hold-out) per row into one of rows, steps and columns (2.0).

    Tables are made again from the runs whenever a study continues, so only what is shown without that is converted.
    """
    kind = content.get("protocol")

    def name(line: Content) -> str:
        return ", ".join(str(line[key]) for key in ("model", "recipe", "variant") if line.get(key))

    def as_row(line: Content) -> Content:
        row = {key: value for key, value in line.items() if key not in ("run", "printed_as", *_CELL)}
        runs = {str(kind): line["run"]} if line.get("run") else {}
        return {
            **row,
            "model": line.get("model"),
            "name": line.get("printed_as") or name(line),
            "group": line.get("dataset"),
            "runs": runs,
        }

    figures = content.get("figures") or []
    tables = {key: [as_row(line) for line in content.get(key) or []] for key in ("table", "seed_spread")}
    return {
        **{key: value for key, value in content.items() if key not in ("protocol", "figures")},
        "schema_version": "2.0",
        "columns": [
            {"name": one, "figure": one, "of": None, "title": one, "percent": False, "tolerance": None}
            for one in figures
        ],
        "scale": "paper",
        "runs": [
            {**{key: value for key, value in run.items() if key not in _CELL}, "kind": kind, "needs": []}
            for run in content.get("runs") or []
        ],
        **tables,
    }


def _gap_by_its_name(content: Content) -> Content:
    """Rename ``optimism`` of ``best.json`` (2.0), which also contains the loss from choosing on few images."""
    rest = {key: value for key, value in content.items() if key != "optimism"}
    return {**rest, "schema_version": "2.0", "apparent_minus_nested": content.get("optimism")}


MIGRATIONS: dict[str, dict[str, Callable[[Content], Content]]] = {
    "model": {"1.0": _thresholds_as_list, "1.1": _thresholds_as_list, "1.2": _layer_scale_of_parallel},
    "study": {"1.0": _rows_and_columns},
    "best": {"1.0": _gap_by_its_name},
}
"""Kind of record -> version of the content -> function that returns the migrated content."""


def migrate(content: Content, kind: str) -> Content:
    """Bring a record's content to the current schema version.

    Args:
        content: JSON object of any known version; it is not modified. Without ``schema_version`` it is taken to be of
            version 1.0, the first.
        kind: ``KIND`` of its model.
    """
    version = _numbers(content.get("schema_version", "1.0"))
    for older, step in sorted(MIGRATIONS.get(kind, {}).items(), key=lambda item: _numbers(item[0])):
        if version <= _numbers(older):
            content = step(content)
    return content


def _numbers(version: Any) -> tuple[int, ...]:
    """Return (major, minor), which sorts 1.10 after 1.9; () for an invalid version, which the model refuses."""
    parts = version.split(".") if isinstance(version, str) else []
    return tuple(int(part) for part in parts) if all(part.isdecimal() and len(part) < 5 for part in parts) else ()
