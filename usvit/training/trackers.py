"""Trackers of experiments: the figures of a training for MLflow and Weights & Biases, written by their own libraries.

Both write into the run directory, and nothing is sent, unless the user names a server by the libraries' own variables:
``MLFLOW_TRACKING_URI``, ``WANDB_MODE=online``.
"""

import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from filelock import FileLock

from usvit.errors import UsvitError
from usvit.files import sha256_of_text

_NEEDS = {"mlflow": ("mlflow", "sqlalchemy", "alembic"), "wandb": ("wandb",)}
"""Tracker -> modules that it needs."""
STORE = "mlflow.db"
"""File of MLflow in the run directory; ``mlflow ui --backend-store-uri sqlite:///FILE`` shows it."""

_FOLDER_TAG = "usvit.folder"
"""Tag of a run of MLflow: the hash of the path of the fold's folder, since a server may have runs of equal names."""


def check_trackers(names: Sequence[str]) -> None:
    """Check that the libraries of trackers are installed.

    Args:
        names: ``train.loggers``.

    Raises:
        UsvitError: One is missing; the text has the command that installs it.
    """
    for name in names:
        missing = [module for module in _NEEDS[name] if find_spec(module) is None]
        if missing:
            raise UsvitError(
                f"train.loggers names {name}, which needs {', '.join(missing)}: pip install 'usvit[{name}]', or leave "
                f"{name} out of train.loggers."
            )


class Tracker(ABC):
    """One training in a tracker, from the main process.

    Args:
        folder: Folder of the fold, in the run directory.
        resumed: Whether the training goes on after a stop.
    """

    def __init__(self, folder: Path, resumed: bool):
        self._run, self._fold = folder.parent.absolute(), folder.name

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Log figures by name after ``step`` steps; those that are not finite numbers are left out."""
        self._log(step, {key: float(one) for key, one in values.items() if one is not None and math.isfinite(one)})

    @abstractmethod
    def _log(self, step: int, values: Mapping[str, float]) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """End the training's run in the tracker."""


class MlflowTracker(Tracker):
    """A run of MLflow for each fold, in an experiment that is named after the run directory.

    A resumed training goes on in the same run, which it knows by the hash of its folder, and does not repeat steps that
    are there.
    """

    def __init__(self, folder: Path, resumed: bool):
        super().__init__(folder, resumed)
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # it would report its use to its makers
        from mlflow import MlflowClient

        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.WARNING)
        where = os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{self._run / STORE}"
        with FileLock(self._run / f"{STORE}.lock"):  # folds that train at once make the tables once
            self._client = MlflowClient(tracking_uri=where)
            found = self._client.get_experiment_by_name(self._run.name)
            experiment = (
                found.experiment_id
                if found
                else self._client.create_experiment(self._run.name, artifact_location="mlruns")
            )
        tag = {_FOLDER_TAG: sha256_of_text(str(folder.absolute()))}
        condition = f"tags.`{_FOLDER_TAG}` = '{tag[_FOLDER_TAG]}'"
        runs = self._client.search_runs([experiment], condition, max_results=1) if resumed else []  # the newest first
        run = runs[0] if runs else self._client.create_run(experiment, run_name=self._fold, tags=tag)
        self._id = run.info.run_id
        seen = (one.step for key in (runs[0].data.metrics if runs else ()) for one in self._history(key))
        self._last = max(seen, default=-1)

    def _history(self, key: str) -> Sequence[Any]:
        found: Sequence[Any] = self._client.get_metric_history(self._id, key)
        return found

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        if step > self._last:
            for key, value in values.items():
                self._client.log_metric(self._id, key, value, step=step, synchronous=True)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._id)


class WandbTracker(Tracker):
    """A run of Weights & Biases for each fold, in a group that is named after the run directory.

    It is offline unless ``WANDB_MODE`` says otherwise, and does not contain machine, user, code or console output. A
    resumed training writes a further run.
    """

    def __init__(self, folder: Path, resumed: bool):
        super().__init__(folder, resumed)
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")  # wandb checks it
        settings = wandb.Settings(
            mode=mode,
            console="off",
            silent=True,
            symlink=False,
            disable_git=True,
            disable_code=True,
            disable_job_creation=True,
            x_disable_meta=True,
            x_disable_stats=True,
            x_disable_machine_info=True,
            host="",
            username="",
        )
        self._tracked = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "usvit"),
            group=self._run.name,
            name=self._fold,
            dir=self._run,
            reinit="create_new",
            settings=settings,
        )

        for path in [*(self._run / "wandb").rglob("*")]:
            if path.is_symlink():  # to a log in the user's cache; a run directory has no links
                path.unlink()

    def _log(self, step: int, values: Mapping[str, float]) -> None:
        self._tracked.log(dict(values), step=step)

    def close(self) -> None:
        """End the run."""
        self._tracked.finish()


TRACKERS: dict[str, type[Tracker]] = {"mlflow": MlflowTracker, "wandb": WandbTracker}
"""Name in ``train.loggers`` -> its class."""
