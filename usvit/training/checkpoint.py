"""The state of an unfinished training in one file, from which a killed run resumes."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import nn

from usvit.errors import UsvitError
from usvit.files import regular_file, write_atomic
from usvit.training.distributed import (
    World,
    full_optimizer_state,
    full_state,
    load_full_optimizer_state,
    load_full_state,
)
from usvit.training.ema import Ema
from usvit.training.running_loss import check_weights
from usvit.training.state import TrainState


class CheckpointManager:
    """Saves and restores the weights, the optimizer, the moving average and the ``TrainState`` of one training.

    All processes call its methods together; the main process writes.

    Args:
        path: the checkpoint file.
        identity: identifies the training. A checkpoint with another identity is refused.
        world: the processes of the training.
        module: the trained module.
        optimizer: its optimizer.
        ema: its moving average, or None.
    """

    def __init__(
        self,
        path: Path,
        identity: str,
        world: World,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        ema: Ema | None,
    ):
        self._path, self._identity, self._world = path, identity, world
        self._module, self._optimizer, self._ema = module, optimizer, ema
        self.saved_step = 0
        """Step of the checkpoint on the disk; 0 if there is none."""
        self._saved_at = time.monotonic()

    def restore(self, state: TrainState) -> None:
        """Load the checkpoint into ``state`` and the trained objects. Without a checkpoint, nothing changes.

        Raises:
            UsvitError: the file is damaged or belongs to another training, or the processes see different files.
        """
        self._world.together(self._load, state)
        self._world.check_same(state.step)
        self.saved_step, self._saved_at = state.step, time.monotonic()

    def is_due(self, step: int, every_seconds: float) -> bool:
        """Return whether there is a new step and the last checkpoint is at least ``every_seconds`` old."""
        return step > self.saved_step and time.monotonic() - self._saved_at >= every_seconds

    def save(self, state: TrainState, lr: float) -> None:
        """Write the checkpoint of ``state.step``.

        Args:
            state: the state of the training.
            lr: learning rate of the last step, for an error message.

        Raises:
            UsvitError: the disk is full.
            Diverged: a weight is NaN or infinite. The checkpoint on the disk stays.
        """
        world, keep = self._world, self._world.is_main
        world.average_statistics(self._module)
        content: dict[str, Any] = {
            "identity": self._identity,
            "step": state.step,
            "model": full_state(self._module, keep=keep),
            "mean": {} if self._ema is None else full_state(self._ema, keep=keep),
            "optimizer": full_optimizer_state(self._optimizer, keep=keep),
            "best": state.best.state(),
            "best_weights": state.best_weights,
            "history": state.history,
            "losses": state.losses.state(),
            "seconds": state.seconds,
            "training_seconds": state.training_seconds,
        }
        world.on_main(check_weights, content["model"], state.step, lr, self.saved_step)
        world.on_main(save_checkpoint, self._path, content)
        self.saved_step, self._saved_at = state.step, time.monotonic()

    def _load(self, state: TrainState) -> None:
        content = load_checkpoint(self._path)
        if content is None:
            return
        try:
            if content["identity"] != self._identity:
                raise ValueError("it has other settings, images or initial weights")
            load_full_state(self._module, content["model"])
            load_full_optimizer_state(self._optimizer, content["optimizer"])
            if self._ema is not None:
                load_full_state(self._ema, content["mean"])
            state.best.load(content["best"])
            state.best_weights, state.history, state.step = content["best_weights"], content["history"], content["step"]
            state.earlier_seconds, state.training_seconds = content["seconds"], content["training_seconds"]
            state.losses.load(content["losses"])
        except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UsvitError(
                f"The checkpoint {self._path} belongs to another training ({reason}). Restore the checkpoint of this "
                "run, or delete the file to start this fold again."
            ) from error


def save_checkpoint(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state of tensors, numbers, strings, lists and dictionaries, with the states of the random generators.

    The file is renamed into place, so that a checkpoint never mixes two steps.

    Raises:
        UsvitError: the disk is full. An older checkpoint stays.
    """
    generators = {"torch": torch.get_rng_state()}
    if torch.cuda.is_available():
        generators["cuda"] = torch.cuda.get_rng_state()
    write_atomic(path, lambda file: _save({**state, "generators": generators}, file))


def load_checkpoint(path: Path) -> dict[str, Any] | None:
    """Read a saved state and set the random generators to it.

    Returns:
        The state, or None if there is no file.

    Raises:
        UsvitError: the file is damaged, or is not a checkpoint of usvit.
    """
    if not path.is_file():
        return None
    try:
        with regular_file(path) as file:
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many types for a damaged file
        raise UsvitError(f"The checkpoint {path} is damaged. Delete it to start this fold again.") from error
    if not isinstance(state, dict) or "generators" not in state:
        raise UsvitError(f"The file {path} is not a checkpoint of usvit. Delete it to start this fold again.")
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
