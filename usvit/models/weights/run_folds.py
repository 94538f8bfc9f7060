"""Folders that hold the networks of a run."""

import hashlib
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import read_bytes, refuse_linked_folders
from usvit.records import RunRecord, load_record, refuse_changed_run

_FILES = ("model.safetensors", "model.json")


def fold_folders(path: Path) -> list[Path]:
    """Return the folders of a finished run's folds, in order, or the path itself if it is one fold's folder.

    Raises:
        UsvitError: The path is neither, or the run is unfinished or incomplete.
    """
    if (path / _FILES[0]).is_file():
        run = path.absolute().parent
        if (run / "run.json").is_file():
            refuse_changed_run(run, load_record(run / "run.json", RunRecord), only=path.name)
        return [path]
    if not (path / "run.json").is_file():
        raise UsvitError(f"The folder {path} is not a run of usvit: it has neither run.json nor model.safetensors.")
    refuse_linked_folders(path)
    record = load_record(path / "run.json", RunRecord)
    state, n = record.state, record.folds.n
    if state is None or n is None:
        raise UsvitError(f"{path / 'run.json'} is damaged (it has no state, or no folds.n). Copy the run again.")
    if state != "finished":
        raise UsvitError(f"The run {path} is not finished. Run its own command again to resume it, and then this one.")
    if record.kind == "ensemble":
        raise UsvitError(
            f"{path} is an ensemble of usvit ensemble, which holds no networks of its own. 'usvit score', 'evaluate', "
            "'compare' and 'report' take it; here, name one of its members, which its ensemble.json lists."
        )
    if record.kind == "evaluation":
        raise UsvitError(
            f"{path} is an evaluation of usvit evaluate, which holds predictions and no network. 'usvit evaluate', "
            "'compare' and 'report' take it; here, name the run whose network it is."
        )
    refuse_changed_run(path, record)
    folders = [path / f"fold-{fold}" for fold in range(n)]
    for folder in folders:
        missing = [name for name in _FILES if not (folder / name).is_file()]
        if missing:
            raise UsvitError(
                f"The run {path} is incomplete: {folder.name} has no {' and no '.join(missing)}. Restore it."
            )
    return folders


def only_fold(path: Path) -> Path:
    """Return the only folder of ``fold_folders``.

    Raises:
        UsvitError: As ``fold_folders``, or the run has several folds.
    """
    folders = fold_folders(path)
    if len(folders) > 1:
        raise UsvitError(
            f"{path} is a run of {len(folders)} folds with a network in each. Name one: {folders[0]}, ..., "
            f"{folders[-1].name}."
        )
    return folders[0]


def read_beside(folder: Path, name: str, sha256: str, limit: int) -> bytes:
    """Return the content of a file that the ``model.json`` of a fold's folder names.

    Raises:
        UsvitError: The file is missing, longer than ``limit`` bytes, or another one.
    """
    try:
        content = read_bytes(folder / name, limit)
    except UsvitError as error:
        raise UsvitError(
            f"{folder} has no readable {name}, although its model.json names one. Copy it from the same fold."
        ) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UsvitError(
            f"{folder / name} is not the file that the model.json beside it names. Copy both from the same fold."
        )
    return content
