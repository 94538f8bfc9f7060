"""The one table of the kinds of runs: those of the core, and those that plug-ins add."""

import functools
from collections.abc import Mapping
from typing import Any

from usvit.plain_data import Json
from usvit.plugins import RunKind, plugin_run_kinds

CORE: Mapping[str, RunKind] = {
    "cv": RunKind("usvit.experiments.factory:cross_validation"),
    "train": RunKind("usvit.experiments.factory:hold_out"),
    "ensemble": RunKind(gives_weights=False),
    "evaluation": RunKind(gives_weights=False),
}
"""Kinds of runs of the core."""


@functools.cache
def run_kinds() -> Mapping[str, RunKind]:
    """Return the kinds of runs of the core and, after them, those of plug-ins; of two with one name, the core's."""
    return {**CORE, **{name: kind for name, kind in plugin_run_kinds().items() if name not in CORE}}


def known_kind(name: str) -> str:
    """Return the name of a kind of run.

    Raises:
        ValueError: There is no such kind.
    """
    if name not in run_kinds():
        raise ValueError(f"one of {', '.join(run_kinds())}")
    return name


class KindSchema:
    """Lists the kinds of runs in the JSON Schema, when it is made and not when its model is imported."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: Any, handler: Any) -> Json:
        return {**handler(core), "enum": list(run_kinds())}
