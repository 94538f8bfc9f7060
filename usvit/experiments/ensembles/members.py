"""The member runs of an ensemble: opened, checked, and compared with each other."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from usvit.data.splits import read_folds
from usvit.errors import UsvitError
from usvit.evaluation import Predictions, open_predictions
from usvit.files import sha256_of_file
from usvit.models import fold_folders
from usvit.records import MemberNetwork, MemberRun, RunRecord, load_run_record

KINDS = ("cv", "train")
_KEY = ["fold", "dataset", "image_id"]
_SHOWN = {"label": "label", "group_id": "group"}


@dataclass(frozen=True)
class Member:
    """A finished run that is to be a member."""

    path: Path
    record: RunRecord
    predictions: Predictions
    """Rows of the splits val and test of all folds."""
    folds: pd.DataFrame
    """Content of folds.csv."""
    folders: tuple[Path, ...]
    """Folder of each fold with its network."""

    @property
    def name(self) -> str:
        return self.path.resolve().name

    @property
    def sees(self) -> tuple[object, ...]:
        """What must agree so that ``usvit score`` can prepare an image once: size, resizing and crop."""
        config = self.record.config
        size = None if config.model is None else config.model.image_size
        given = config.input
        return (size, None, None) if given is None else (size, given.resize, given.crop)

    def described(self, out: Path) -> MemberRun:
        """Return the entry for the ``ensemble.json`` in a folder."""
        return MemberRun(
            name=self.name,
            path=Path(os.path.relpath(self.path.resolve(), out.resolve())).as_posix(),
            run_sha256=sha256_of_file(self.path / "run.json"),
            parameters=self.record.model.params or 0,
            networks=[
                MemberNetwork(
                    fold=fold,
                    model_sha256=sha256_of_file(folder / "model.json"),
                    weights_sha256=sha256_of_file(folder / "model.safetensors"),
                )
                for fold, folder in enumerate(self.folders)
            ],
        )


def open_members(runs: Sequence[Path]) -> list[Member]:
    """Open the runs and check that their predictions can be averaged.

    Raises:
        UsvitError: There are fewer than two runs or one is named twice; one is not a finished cross-validation or
            hold-out with its networks, or was changed; or two runs differ in classes, folds, images or labels.
        LeakageError: A network was trained on one of its test images.
    """
    if len(runs) < 2:
        raise UsvitError("An ensemble needs at least two runs. Name two or more runs of 'usvit cv' or 'usvit train'.")
    places = [run.resolve() for run in runs]
    if twice := next((run for k, run in enumerate(runs) if places[k] in places[:k]), None):
        raise UsvitError(f"{twice} is named twice, so that its networks would count twice. Name different runs.")
    members = [open_member(run) for run in runs]
    for other in members[1:]:
        refuse_other_folds(members[0], other)
    return members


def refuse_other_folds(first: Member, other: Member) -> None:
    """Raise ``UsvitError`` with the first difference, unless two runs have the same classes, images and folds."""
    pair = f"{first.path} and {other.path} cannot be combined"
    one, two = first.predictions, other.predictions
    if one.classes != two.classes or one.positive != two.positive:
        raise UsvitError(
            f"{pair}: the classes of the first are {', '.join(one.classes)} with '{one.positive}' as the positive one, "
            f"those of the second {', '.join(two.classes)} with '{two.positive}'. They need the same classes in the "
            "same order."
        )
    if difference := _difference(first.folds, other.folds):
        raise UsvitError(
            f"{pair}: {difference}. Both need the same images in the same split of each fold, because a network may "
            "be asked only about images that it was not trained on. Train the second with the folds of the first: "
            f"--folds {first.path / 'folds.csv'}."
        )
    tables = [one.table.set_index([*_KEY, "part"]), two.table.set_index([*_KEY, "part"])]
    if set(tables[0].index) != set(tables[1].index):
        lost = min(set(tables[0].index) ^ set(tables[1].index))
        raise UsvitError(
            f"{pair}: only one of them predicted {lost[1]}/{lost[2]} (split {lost[3]} of fold {lost[0]}). "
            "Restore the run that lacks it, or run it again."
        )
    for column, what in _SHOWN.items():
        mine, theirs = tables[0][column], tables[1][column].reindex(tables[0].index)
        if (differs := (mine != theirs).to_numpy()).any():
            at = int(differs.argmax())
            _, dataset, image, _ = mine.index[at]
            raise UsvitError(
                f"{pair}: the {what} of {dataset}/{image} is '{mine.iloc[at]}' in the first and '{theirs.iloc[at]}' in "
                "the second. Run both on the same version of the data."
            )


def open_member(run: Path) -> Member:
    """Open one run; errors as ``open_members``."""
    record = load_run_record(run, "Name runs of 'usvit cv' or 'usvit train'.")
    if record.kind not in KINDS:
        advice = "Name its members instead." if record.kind == "ensemble" else "Name runs of 'usvit cv' or 'train'."
        raise UsvitError(f"{run} is a run of usvit {record.kind}, which cannot be a member of an ensemble. {advice}")
    folders = fold_folders(run)
    if not (run / "folds.csv").is_file():
        raise UsvitError(f"{run} has no folds.csv, so that its folds cannot be compared. Restore it from the original.")
    return Member(run, record, open_predictions(run), read_folds(run / "folds.csv"), tuple(folders))


def _difference(one: pd.DataFrame, two: pd.DataFrame) -> str | None:
    """Name the first difference of two tables of folds; None if they are equal."""
    numbers = [sorted(table["fold"].unique().tolist()) for table in (one, two)]
    if numbers[0] != numbers[1]:
        return f"the first has {len(numbers[0])} folds, the second {len(numbers[1])}"
    if ("repeat" in one) != ("repeat" in two):
        return "one is a repeated cross-validation, the other is not"
    a, b = (table.set_index(_KEY)["part"].sort_index() for table in (one, two))
    if lonely := sorted(set(a.index) ^ set(b.index)):
        fold, dataset, image = lonely[0]
        where = "first" if lonely[0] in a.index else "second"
        return f"{dataset}/{image} is an image of the {where} only (fold {fold}; {len(lonely)} such rows in all)"
    differs = (a != b).to_numpy()
    if differs.any():
        at = int(differs.argmax())
        fold, dataset, image = a.index[at]
        return (
            f"{dataset}/{image} is in split {a.iloc[at]} of fold {fold} in the first and in split {b.iloc[at]} in the "
            f"second ({int(differs.sum())} such rows in all)"
        )
    return None
