"""Which images are explained, and by which network: always one that has not seen them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.data.cards import load_cards
from usvit.data.images import BadImage, UInt8, decode, pixel_sha256, read_masks
from usvit.data.manifest import mask_names
from usvit.data.manifest_file import read_manifest
from usvit.data.preprocessing import cropped
from usvit.data.roots import open_places
from usvit.errors import UsvitError, unknown
from usvit.files import read_csv, read_parquet
from usvit.metrics.predictions import classes_of, read_predictions
from usvit.metrics.upstream import refuse_upstream
from usvit.models.weights.runs import fold_folders
from usvit.progress import Progress
from usvit.records import RunRecord, read_record


@dataclass(frozen=True)
class Case:
    """One image of the test part, as its fold's network predicted it."""

    dataset: str
    image_id: str
    group_id: str
    fold: int
    label: str
    probabilities: dict[str, float]
    row: dict[str, Any] = field(repr=False)
    """Of the manifest."""

    @property
    def predicted(self) -> str:
        return max(self.probabilities, key=lambda name: self.probabilities[name])


@dataclass(frozen=True)
class Source:
    """A run, or one fold of it, that can be explained."""

    folder: Path
    """As the user named it: there ``explain`` is written."""
    run: Path
    name: str
    config: dict[str, Any] = field(repr=False)
    folds: dict[int, Path]
    """Fold -> its folder; only these networks are used."""
    cases: tuple[Case, ...] = field(repr=False)
    """The test images of these folds, in the manifest's order."""


def open_source(path: Path) -> Source:
    """Read a run, or one fold of a run.

    Args:
        path: ``runs/x``, or ``runs/x/fold-2``.

    Raises:
        UsvitError: it is neither, it is not finished, a file is missing or damaged, or files contradict each other.
    """
    folders = fold_folders(path)
    is_fold = folders == [path]
    run = path.absolute().parent if is_fold else path
    record = _record(run, path)
    refuse_upstream(path, record, "An explanation")
    try:
        config, name = record["config"], str(record.get("name") or run.name)
        numbers = [int(folder.name.removeprefix("fold-")) for folder in folders]
    except (KeyError, ValueError) as error:
        raise UsvitError(f"{path} is not a run, nor a fold of one ({error}). Name the run's own folder.") from error
    rows = _manifest_rows(run)
    folds = dict(zip(numbers, folders, strict=True))
    if not is_fold:
        folds = _first_repeat(folds, record)
    tables = []
    for number, folder in folds.items():
        table = read_predictions(folder / "predictions.csv")
        table = table[(table.part == "test") & (table.fold == number)]
        if table.empty:
            raise UsvitError(f"{folder / 'predictions.csv'} has no rows of part test of fold {number}.")
        tables.append(table)
    cases = _cases(pd.concat(tables, ignore_index=True), rows, run)
    return Source(path, run, name, config, folds, cases)


def _first_repeat(folds: dict[int, Path], record: dict[str, Any]) -> dict[int, Path]:
    """Keep the folds of the first repeat, which test each image once; all of them where the run has no repeats."""
    told = record.get("folds") or {}
    n_folds = int(told.get("n", len(folds))) // int(told.get("repeats", 1))
    return {number: folder for number, folder in folds.items() if number < n_folds}


def _record(run: Path, path: Path) -> dict[str, Any]:
    if not (run / "run.json").exists():
        raise UsvitError(
            f"{path} lies in no run: there is no {run / 'run.json'}. A network is explained on the images that its run "
            "has tested it on, so name a run (runs/x) or a fold inside it (runs/x/fold-0)."
        )
    return read_record(run / "run.json", RunRecord)


def _manifest_rows(run: Path) -> dict[tuple[str, str], dict[str, Any]]:
    path = run / "manifest.parquet"
    table = read_parquet(path, hint="It says where the images lie. Copy the whole run.")
    needed = ("dataset", "image_id", "path", "frame", "sha256", "mask_path")
    if missing := [name for name in needed if name not in table]:
        raise UsvitError(f"{path} is no manifest of usvit: it has no column {', '.join(missing)}.")
    rows = {(str(row["dataset"]), str(row["image_id"])): row for row in table.to_dict("records")}
    for row in rows.values():
        for name in (str(row["path"]), *mask_names(row["mask_path"])):
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise UsvitError(f"The manifest {path} holds the path {name}, which climbs out of its folder.")
    return rows  # type: ignore[return-value]


def _cases(table: pd.DataFrame, rows: dict[tuple[str, str], dict[str, Any]], run: Path) -> tuple[Case, ...]:
    classes = classes_of(table)
    order = {key: index for index, key in enumerate(rows)}
    cases = []
    for row in table.to_dict("records"):
        key = (str(row["dataset"]), str(row["image_id"]))
        if key not in rows:
            raise UsvitError(f"The image '{key[1]}' of '{key[0]}' is predicted but not in {run / 'manifest.parquet'}.")
        prob = {name: float(row[f"prob_{name}"]) for name in classes}
        cases.append(Case(*key, str(row["group_id"]), int(row["fold"]), str(row["label"]), prob, rows[key]))
    return tuple(sorted(cases, key=lambda case: order[case.dataset, case.image_id]))


def choose(source: Source, n: int) -> list[Case]:
    """``n`` test images, the classes in turn, of each evenly over its list; all of them where there are no more."""
    by_class: dict[str, list[Case]] = {}
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


def choose_errors(source: Source, n: int) -> list[Case]:
    """The ``n`` wrong predictions of the highest probability, the surest first."""
    wrong = [case for case in source.cases if case.predicted != case.label]
    return sorted(wrong, key=lambda case: -case.probabilities[case.predicted])[:n]


def choose_named(source: Source, names: Sequence[str]) -> list[Case]:
    """The images of these ids (``ID``, or ``DATASET/ID`` where several data sets have it).

    Raises:
        UsvitError: no such image in the test part of these folds; where it is instead is said.
    """
    chosen = []
    for name in names:
        found = [case for case in source.cases if name in (case.image_id, f"{case.dataset}/{case.image_id}")]
        if not found:
            raise _not_tested(source, name)
        if len(found) > 1:
            ways = " or ".join(f"{case.dataset}/{case.image_id}" for case in found)
            raise UsvitError(f"Several data sets have an image '{name}'. Name {ways}.")
        chosen.append(found[0])
    return list({(case.dataset, case.image_id): case for case in chosen}.values())


def _not_tested(source: Source, name: str) -> UsvitError:
    try:
        folds = read_csv(source.run / "folds.csv", text=("image_id", "dataset", "part"))
        mine = folds[(folds.image_id == name) | (folds.dataset + "/" + folds.image_id == name)]
    except (UsvitError, OSError, ValueError, KeyError, AttributeError):
        mine = pd.DataFrame()
    if len(mine):
        parts = ", ".join(f"{row.part} in fold-{row.fold}" for row in mine.itertuples())
        mine_names = ", ".join(folder.name for folder in source.folds.values())
        return UsvitError(
            f"The image '{name}' is not in the test part of {mine_names} ({parts}). An image is explained by a network "
            "that has not learnt from it: name the fold that tested it, or the whole run."
        )
    return unknown("image", name, [case.image_id for case in source.cases], "Ids stand in predictions.csv.")


class Images:
    """The pixels of a run's images, checked against what the run saw."""

    def __init__(self, source: Source, roots: dict[str, Path], progress: Progress):
        """Find the folders of the run's data sets.

        Args:
            source: the run.
            roots: data set -> folder, "" for all, as the user gave them.
            progress: shown while the embedded phantom is made.

        Raises:
            UsvitError: a data set is not there, or in another layout.
        """
        data = source.config.get("data") or {}
        self.crop = (source.config.get("input") or {}).get("crop", "tissue")
        file = data.get("manifest")
        if file and Path(file).is_file():
            self.places = read_manifest(Path(file), roots, keep_ids=True).places()
        else:
            cards = load_cards(str(data.get("dataset")))
            self.places = {card.name: open_places(card, roots, progress) for card in cards}

    def read(self, case: Case) -> tuple[UInt8, NDArray[np.bool_] | None]:
        """The image, (H, W, 3) uint8, and its lesions' mask, (H, W) bool; None where it has none, or an empty one.

        Both are cut to what the network saw (``input.crop``).

        Raises:
            UsvitError: a file is not there, cannot be read, or is not the one that the run saw.
        """
        places = self.places[case.dataset]
        try:
            image, tissue = decode(places.file(str(case.row["path"])), int(case.row["frame"]))
            masks = [places.file(name) for name in mask_names(case.row["mask_path"])]
            mask = read_masks(masks, image.shape[:2])
        except BadImage as bad:
            raise UsvitError(
                f"Cannot explain the image '{case.image_id}': {places.reason(bad)}. Restore the file, or pass the "
                "--data-root where the run's images lie."
            ) from bad
        if pixel_sha256(image) != case.row["sha256"]:
            raise UsvitError(
                f"Cannot explain the image '{case.image_id}': the pixels of its file are not those that the run saw. "
                "Restore the file, or pass the --data-root where the run's images lie."
            )
        mask = cropped(mask, tissue, self.crop)
        return cropped(image, tissue, self.crop), mask if mask.any() else None
