"""Predictions of each network of a run for the images of a manifest that none of them has seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from usvit.data.datasets import Manifest, decode_unchanged
from usvit.data.io import BadImage, UInt8
from usvit.data.splits import described_among, refuse_seen, seen_by, together
from usvit.errors import UsvitError
from usvit.evaluation import predictions_table, read_predictions, rows_of
from usvit.files import write_csv
from usvit.metrics.threshold_choice import Rule
from usvit.progress import Progress, task
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.ensemble_members import EnsembleMember, FoldModel, load_members
from usvit.scoring.operating_point import ScoringThreshold, of_fold, of_run
from usvit.training import resolve_device

BATCH = 32
_KEY = ["dataset", "image_id"]


@dataclass(frozen=True)
class RunNetworks:
    """The networks of a run with the calibration and the thresholds that were fixed in training."""

    run: Path
    models: tuple[FoldModel, ...]
    """One network for each fold."""
    rule: Rule
    own: tuple[ScoringThreshold, ...]
    """The threshold of each network alone, on its calibrated probability."""
    joint: ScoringThreshold
    """The threshold of the mean of the networks' calibrated probabilities, as ``usvit score`` uses it."""

    @classmethod
    def of_run(cls, run: Path, rule: Rule) -> "RunNetworks":
        """Load the networks of a finished run.

        A network without a temperature counts as one with temperature 1.
        """
        models = load_members([run], "all")
        first = models[0].members[0].trained
        own = tuple(of_fold(one, first.classes, first.positive, rule) for one in models)
        joint = own[0]
        if len(models) > 1:
            temperatures = {one.fold: one.temperature for one in models}
            joint = of_run(run, temperatures, first.classes, first.positive, rule, "networks")
        return cls(run, tuple(models), rule, own, joint)

    @property
    def members(self) -> tuple[EnsembleMember, ...]:
        return tuple(one.members[0] for one in self.models)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.members[0].trained.classes

    @property
    def positive(self) -> int:
        """Index of the positive class."""
        return self.classes.index(self.members[0].trained.positive)

    @property
    def folds(self) -> tuple[int, ...]:
        return tuple(one.fold for one in self.members)

    def calibrated(self, logits: NDArray[np.float64], network: int) -> NDArray[np.float64]:
        """Return the (n,) calibrated probability of the positive class from (n, K) logits of one network."""
        temperature = self.members[network].trained.temperature or 1.0
        return np.asarray(softmax(logits / temperature, axis=1)[:, self.positive])


def predict_manifest(
    networks: RunNetworks,
    manifest: Manifest,
    file: Path,
    *,
    device: str,
    precision: str,
    progress: Progress,
) -> NDArray[np.float64]:
    """Predict the usable images of a manifest with every network of a run, and keep the predictions in a file.

    Args:
        networks: the networks.
        manifest: the images, of which no network may have seen one.
        file: predictions table to write, with the number of the network in ``fold`` and ``repeat``. It is read instead
            if it is there.
        device, precision: as ``usvit.training.resolve_device``.
        progress: shown while images are read.

    Returns:
        (M, n, K) logits of M networks for n images in the order of ``manifest.usable``.

    Raises:
        LeakageError: a network has seen an image, a near-duplicate of one, or an image of the same group.
        UsvitError: an image cannot be read or has changed, or the file holds other images.
    """
    rows, who = manifest.usable, f"The networks of {networks.run}"
    seen = together(seen_by(one.trained.metadata, one.folder) for one in networks.members)
    copies = seen.copies_among(described_among(manifest.descriptions, rows.sha256)[0])
    refuse_seen(rows, seen, who, copies=copies)
    if not file.is_file():
        logits = _forward(networks, manifest, rows, device=device, precision=precision, progress=progress)
        several = len(networks.members) > 1
        tables = [
            predictions_table(
                rows, one, classes=networks.classes, fold=fold, part="test", repeat=number if several else None
            )
            for number, (fold, one) in enumerate(zip(networks.folds, logits, strict=True))
        ]
        write_csv(file, pd.concat(tables, ignore_index=True))
    return _read(networks, rows, file)


def _read(networks: RunNetworks, rows: pd.DataFrame, file: Path) -> NDArray[np.float64]:
    table = read_predictions(file)
    found = []
    for fold in networks.folds:
        own = table[table.fold == fold].drop(columns="repeat", errors="ignore")
        if own[_KEY].to_numpy().tolist() != rows[_KEY].to_numpy().tolist():
            raise UsvitError(f"{file} holds predictions of other images. Remove it, and start the same command again.")
        found.append(rows_of(own, "test", networks.classes).scores)
    return np.stack(found)


def _forward(
    networks: RunNetworks, manifest: Manifest, rows: pd.DataFrame, *, device: str, precision: str, progress: Progress
) -> NDArray[np.float64]:
    ensemble = Ensemble(
        list(networks.models),
        resolve_device(device, precision),
        flip=False,
        calibration=None,
        point=networks.joint,
        rule=networks.rule,
    )
    found: list[list[NDArray[np.float64]]] = [[] for _ in networks.members]
    with task(progress, "predicting the left-out set", len(rows), "images") as advance:
        for start in range(0, len(rows), BATCH):
            images = _prepared(ensemble, manifest, [row for _, row in rows.iloc[start : start + BATCH].iterrows()])
            outputs = ensemble.forward(torch.from_numpy(np.stack(images)))
            outputs.wait()
            for into, logits in zip(found, outputs.logits, strict=True):
                into.append(logits[0].numpy().astype(np.float64))
            advance(min(start + BATCH, len(rows)))
    return np.stack([np.concatenate(one) for one in found])


def _prepared(ensemble: Ensemble, manifest: Manifest, rows: Sequence[pd.Series]) -> list[UInt8]:
    found = []
    for row in rows:
        try:
            decoded = decode_unchanged(manifest.image_path(row), int(row.frame), row.sha256)
        except BadImage as bad:
            raise manifest.told(bad) from bad
        found.append(ensemble.preprocessing.resized(decoded.pixels, decoded.tissue))
    return found
