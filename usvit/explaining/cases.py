"""Choice of the images to explain, each with a network that was not trained on it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.data.datasets import OwnTable, load_cards, mask_names, open_places, read_manifest
from usvit.data.io import BadImage, UInt8, decode, pixel_sha256, read_masks
from usvit.data.transforms import cropped
from usvit.errors import UsvitError, unknown
from usvit.evaluation import classes_of, read_predictions, refuse_upstream
from usvit.files import read_csv, read_parquet
from usvit.models import fold_folders
from usvit.progress import Progress
from usvit.records import RunRecord, load_record
from usvit.records.run import Config

_ManifestRow = dict[str, Any]
"""A row of ``manifest.parquet``: column -> value."""


@dataclass(frozen=True)
class ExplainedCase:
    """One image of the test split, with the prediction of its fold's network."""

    dataset: str
    image_id: str
    group_id: str
    fold: int
    label: str
    probabilities: dict[str, float]
    row: _ManifestRow = field(repr=False)
    """Row of the manifest."""

    @property
    def predicted(self) -> str:
        return max(self.probabilities, key=lambda name: self.probabilities[name])


@dataclass(frozen=True)
class PredictionSource:
    """A run, or one fold of it, that can be explained."""

    folder: Path
    """Folder that the user passed, in which ``explain`` is written."""
    run: Path
    name: str
    config: Config = field(repr=False)
    """The configuration, as in ``run.json``."""
    folds: dict[int, Path]
    """Fold -> its folder; only these networks are used."""
    cases: tuple[ExplainedCase, ...] = field(repr=False)
    """The test images of these folds, in the order of the manifest."""


def open_source(path: Path) -> PredictionSource:
    """Read a run, or one fold of a run.

    Args:
        path: ``runs/x``, or ``runs/x/fold-2``.

    Raises:
        UsvitError: the path is neither, the run is not finished, or its files are missing, damaged or inconsistent.
    """
    folders = fold_folders(path)
    is_fold = folders == [path]
    run = path.absolute().parent if is_fold else path
    record = _record(run, path)
    refuse_upstream(path, record, "An explanation")
    try:
        numbers = [int(folder.name.removeprefix("fold-")) for folder in folders]
        if record.config is None:
            raise ValueError("run.json has no config")
    except ValueError as error:
        raise UsvitError(f"{path} is not a run or a fold of one ({error}). Pass the folder of the run.") from error
    rows = _manifest_rows(run)
    folds = dict(zip(numbers, folders, strict=True))
    if not is_fold:
        folds = _first_repeat(folds, record)
    tables = []
    for number, folder in folds.items():
        table = read_predictions(folder / "predictions.csv")
        table = table[(table.part == "test") & (table.fold == number)]
        if table.empty:
            raise UsvitError(f"{folder / 'predictions.csv'} has no test rows of fold {number}.")
        tables.append(table)
    cases = _cases(pd.concat(tables, ignore_index=True), rows, run)
    return PredictionSource(path, run, record.name or run.name, record.config, folds, cases)


def _first_repeat(folds: dict[int, Path], record: RunRecord) -> dict[int, Path]:
    """Keep the folds of the first repeat, which test each image once; all folds if the run has no repeats."""
    n_folds = len(folds)
    if record.folds is not None:
        n_folds = (record.folds.n or n_folds) // (record.folds.repeats or 1)
    return {number: folder for number, folder in folds.items() if number < n_folds}


def _record(run: Path, path: Path) -> RunRecord:
    if not (run / "run.json").exists():
        raise UsvitError(
            f"{path} is not part of a run: there is no {run / 'run.json'}. A network is explained on the images that "
            "its run tested it on, so pass a run (runs/x) or a fold of one (runs/x/fold-0)."
        )
    return load_record(run / "run.json", RunRecord)


def _manifest_rows(run: Path) -> dict[tuple[str, str], _ManifestRow]:
    path = run / "manifest.parquet"
    table = read_parquet(path, hint="It lists the images. Copy the whole run.")
    needed = ("dataset", "image_id", "path", "frame", "sha256", "mask_path")
    if missing := [name for name in needed if name not in table]:
        raise UsvitError(f"{path} is not a manifest of usvit: it has no column {', '.join(missing)}.")
    rows = {(str(row["dataset"]), str(row["image_id"])): row for row in table.to_dict("records")}
    for row in rows.values():
        for name in (str(row["path"]), *mask_names(row["mask_path"])):
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise UsvitError(f"The manifest {path} holds the path {name}, which leads out of its folder.")
    return rows  # type: ignore[return-value]


def _cases(table: pd.DataFrame, rows: dict[tuple[str, str], _ManifestRow], run: Path) -> tuple[ExplainedCase, ...]:
    classes = classes_of(table)
    order = {key: index for index, key in enumerate(rows)}
    cases = []
    for row in table.to_dict("records"):
        key = (str(row["dataset"]), str(row["image_id"]))
        if key not in rows:
            raise UsvitError(f"The image '{key[1]}' of '{key[0]}' is predicted but not in {run / 'manifest.parquet'}.")
        prob = {name: float(row[f"prob_{name}"]) for name in classes}
        cases.append(ExplainedCase(*key, str(row["group_id"]), int(row["fold"]), str(row["label"]), prob, rows[key]))
    return tuple(sorted(cases, key=lambda case: order[case.dataset, case.image_id]))


def choose(source: PredictionSource, n: int) -> list[ExplainedCase]:
    """Choose ``n`` test images, alternating between classes and evenly within each class; all if there are fewer."""
    by_class: dict[str, list[ExplainedCase]] = {}
    for case in source.cases:
        by_class.setdefault(case.label, []).append(case)
    if n >= len(source.cases):
        return list(source.cases)
    wanted = dict.fromkeys(by_class, 0)
    while sum(wanted.values()) < n:
        for label, cases in by_class.items():
            if wanted[label] < len(cases) and sum(wanted.values()) < n:
                wanted[label] += 1
    chosen = []
    for label, cases in by_class.items():
        at = np.linspace(0, len(cases), wanted[label], endpoint=False).astype(int)
        chosen += [cases[index] for index in at]
    return chosen


def choose_errors(source: PredictionSource, n: int) -> list[ExplainedCase]:
    """Return the ``n`` wrong predictions with the highest probability, in descending order."""
    wrong = [case for case in source.cases if case.predicted != case.label]
    return sorted(wrong, key=lambda case: -case.probabilities[case.predicted])[:n]


def choose_named(source: PredictionSource, names: Sequence[str]) -> list[ExplainedCase]:
    """Return the images with these ids (``ID``, or ``DATASET/ID`` if several data sets have it).

    Raises:
        UsvitError: an image is not in the test split of these folds; the message says where it is instead.
    """
    chosen = []
    for name in names:
        found = [case for case in source.cases if name in (case.image_id, f"{case.dataset}/{case.image_id}")]
        if not found:
            raise _not_tested(source, name)
        if len(found) > 1:
            ways = " or ".join(f"{case.dataset}/{case.image_id}" for case in found)
            raise UsvitError(f"Several data sets have an image '{name}'. Pass {ways}.")
        chosen.append(found[0])
    return list({(case.dataset, case.image_id): case for case in chosen}.values())


def _not_tested(source: PredictionSource, name: str) -> UsvitError:
    try:
        folds = read_csv(source.run / "folds.csv", text=("image_id", "dataset", "part"))
        mine = folds[(folds.image_id == name) | (folds.dataset + "/" + folds.image_id == name)]
    except (UsvitError, OSError, ValueError, KeyError, AttributeError):
        mine = pd.DataFrame()
    if len(mine):
        parts = ", ".join(f"{row.part} in fold-{row.fold}" for row in mine.itertuples())
        mine_names = ", ".join(folder.name for folder in source.folds.values())
        return UsvitError(
            f"The image '{name}' is not in the test split of {mine_names} ({parts}). An image is explained by a "
            "network that was not trained on it: pass the fold that tested it, or the whole run."
        )
    return unknown("image", name, [case.image_id for case in source.cases], "The ids are in predictions.csv.")


class CaseImages:
    """Reads the images of a run, and checks that they are those that the run used."""

    def __init__(self, source: PredictionSource, roots: dict[str, Path], progress: Progress):
        """Find the folders of the run's data sets.

        Args:
            source: the run.
            roots: data set -> folder, "" for all, as passed by the user.
            progress: shown while the embedded phantom is created.

        Raises:
            UsvitError: a data set is missing, or has another layout.
        """
        written = source.config.as_written()
        data = written.get("data") or {}
        self.crop = (written.get("input") or {}).get("crop", "tissue")
        file = data.get("manifest")
        if file and Path(file).is_file():
            self.places = read_manifest(Path(file), roots, keep_ids=True).places()
        else:
            cards = load_cards(str(data.get("dataset")), OwnTable.of(data))
            self.places = {card.name: open_places(card, roots, progress) for card in cards}

    def read(self, case: ExplainedCase) -> tuple[UInt8, NDArray[np.bool_] | None]:
        """Return the image, (H, W, 3) uint8, and its lesion mask, (H, W) bool; None if it has none or an empty one.

        Both are cropped to the part that the network saw (``input.crop``).

        Raises:
            UsvitError: a file is missing, cannot be read, or is not the one that the run used.
        """
        places = self.places[case.dataset]
        try:
            image, tissue, _ = decode(places.file(str(case.row["path"])), int(case.row["frame"]))
            masks = [places.file(name) for name in mask_names(case.row["mask_path"])]
            mask = read_masks(masks, image.shape[:2])
        except BadImage as bad:
            raise UsvitError(
                f"Cannot explain the image '{case.image_id}': {places.reason(bad)}. Restore the file, or pass "
                "--data-root with the folder of the run's images."
            ) from bad
        if pixel_sha256(image) != case.row["sha256"]:
            raise UsvitError(
                f"Cannot explain the image '{case.image_id}': the pixels of its file are not those that the run used. "
                "Restore the file, or pass --data-root with the folder of the run's images."
            )
        mask = cropped(mask, tissue, self.crop)
        return cropped(image, tissue, self.crop), mask if mask.any() else None
