"""The state of an unfinished training in one file, so that a killed run goes on where it was."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from usvit.errors import UsvitError
from usvit.files import write_atomic


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state of tensors, numbers, text, lists and dictionaries, with the random generators' own.

    One file, renamed into place: what belongs together can never be of two different steps.

    Raises:
        UsvitError: the disk is full; an older checkpoint stays.
    """
    generators = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        generators["cuda"] = torch.cuda.get_rng_state()
    write_atomic(path, lambda file: _save({**state, "generators": generators}, file))


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """The state that was saved, with the generators set back to it; None where there is none.

    Raises:
        UsvitError: the file is damaged, or something else.
    """
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for a damaged file
        raise UsvitError(f"The checkpoint {path} is damaged. Delete it to begin this fold again.") from error
    if not isinstance(state, dict) or "generators" not in state:
        raise UsvitError(f"The checkpoint {path} is none of usvit's. Delete it to begin this fold again.")
    generators = state.pop("generators")
    torch.set_rng_state(generators["torch"])
    if "cuda" in generators and torch.cuda.is_available():
        torch.cuda.set_rng_state(generators["cuda"])
    return state


def _save(state: dict[str, Any], file: BinaryIO) -> None:
    try:
        torch.save(state, file)  # through Python's own file: torch's writer hides why the system refused
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):
            raise error.__context__ from error
        raise
