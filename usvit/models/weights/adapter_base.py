"""Finding the weights beside which adapters (LoRA) were trained: the base, without which they are no network.

A fold's ``model.json`` names its base and the SHA-256 of the base's file, but no path, since paths differ between
machines. The base is the first file with this hash among

1. what ``--base`` or the environment variable ``USVIT_BASE`` names: files, folders of a fold, or runs, separated as
   in ``PATH``; nothing else is tried if one is named;
2. what the run was given (``model.weights`` in ``run.json``);
3. a file beside the adapters, in the folder of the fold or of the run, under its own name or as ``base.safetensors``;
4. the hub's weights, or those of a Python package, if they were the base.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path

from safetensors import SafetensorError, safe_open

from usvit.errors import UsvitError, shortened
from usvit.files import sha256_of_file
from usvit.models.weights.read import FILE_SUFFIXES, refuse_endless
from usvit.records import AdapterRecord, load_run_record

_VARIABLE = "USVIT_BASE"
_BESIDE = "base.safetensors"
_MOST_FOLDS = 1000


def find_base(adapter: AdapterRecord, file: Path) -> str:
    """Find the base of adapters.

    Args:
        adapter: Their entry in ``model.json``.
        file: Their own file, beside ``model.json``.

    Returns:
        A value of ``--weights``: a file with the recorded SHA-256, or the hub's weights, whose hash is not checked yet.

    Raises:
        UsvitError: There is no such file, or the adapters do not belong to this ``model.json``.
    """
    _refuse_other_metadata(adapter, file)
    given = [Path(text) for text in os.environ.get(_VARIABLE, "").split(os.pathsep) if text]
    found = []
    for place in given or _usual_places(adapter, file.parent):
        for candidate in _files_of(place):
            refuse_endless(candidate)
            if (sha256 := sha256_of_file(candidate)) == adapter.base.sha256:
                return str(candidate)
            found.append(f"{candidate} has SHA-256 {sha256}")
    if not given and adapter.base.source == "package":
        return f"package:{adapter.base.name}"
    if not given and adapter.base.source == "hub":
        return "hub" if adapter.base.upstream is None else f"hub:{adapter.base.upstream}"
    if given:
        tried = [
            f"--base or {_VARIABLE} names {os.environ[_VARIABLE]}",
            *(found[:3] or ["there is no file of weights"]),
        ]
    else:
        tried = found[:3] or ["there is no file of weights where the run was given it, nor beside the adapters"]
    raise refusal(adapter, file, "; ".join(tried))


def refusal(adapter: AdapterRecord, file: Path, why: str) -> UsvitError:
    """Return the error for a base that is missing or wrong."""
    base = adapter.base
    return UsvitError(
        f"The weights {file} are adapters (LoRA) of another file, their base: the {base.source} weights "
        f"{shortened(base.name)} with SHA-256 {base.sha256}. It was not found ({why}). Name that file or run by --base "
        f"or {_VARIABLE}, or copy the file into {file.parent} as {_BESIDE}. Nothing was changed."
    )


def _usual_places(adapter: AdapterRecord, folder: Path) -> Iterator[Path]:
    run = folder.absolute().parent
    if (run / "run.json").is_file():
        model = load_run_record(run).config.as_written().get("model")
        choice = model.get("weights") if isinstance(model, dict) else None
        if isinstance(choice, str):
            yield Path(choice)
    for place in (folder, run):
        yield place / Path(adapter.base.name).name
        yield place / _BESIDE


def _files_of(place: Path) -> list[Path]:
    """Return the files of weights that a path names: itself, that of a fold's folder, or those of a run's folds."""
    if place.is_file():
        return [place] if place.suffix in FILE_SUFFIXES else []
    if (place / "model.safetensors").is_file():
        return [place / "model.safetensors"]
    folds = (place / f"fold-{fold}" / "model.safetensors" for fold in range(_MOST_FOLDS))
    return [file for file in folds if file.is_file()]


def _refuse_other_metadata(adapter: AdapterRecord, file: Path) -> None:
    """Check the base against the header of the adapters' own file.

    The hash of a file of adapters therefore covers its base and, if that has adapters itself, the base's base: no edit
    of ``model.json`` can make a circle of them.
    """
    try:
        with safe_open(file, framework="pt") as opened:
            header = (opened.metadata() or {}).get("usvit", "{}")
        stated = json.loads(header)["adapter"]["base"]["sha256"]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        stated = None
    if stated != adapter.base.sha256:
        raise UsvitError(
            f"The adapters {file} and the model.json beside them name different bases, so they do not belong together. "
            "Copy both from the same fold."
        )
