"""Comparison of segmentations on the same images: differences of the figures of their masks, image by image."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from usvit.errors import UsvitError
from usvit.evaluation.masks import mask_estimates, mask_values
from usvit.files import read_csv
from usvit.metrics.clustered_mean import clustered_difference
from usvit.metrics.paired_tests import holm
from usvit.records import ComparedMasks, CompareMasksRecord, MaskDifference, load_run_record

MASKS = "masks.csv"
_KEY = ["dataset", "image_id"]
_TEXT = (*_KEY, "group_id", "label", "file")


def is_segmentation(path: Path) -> bool:
    """Return whether a folder holds masks that were predicted in folds, and no predictions of classes."""
    return (path / MASKS).is_file() and not (path / "predictions.csv").exists()


def compare_mask_tables(paths: Sequence[Path], names: Sequence[str]) -> CompareMasksRecord:
    """Compare all pairs of segmentations.

    Args:
        paths: Folders with ``masks.csv``: runs of a segmentation, or ``peer`` in one.
        names: Their names.

    Raises:
        UsvitError: A run is not finished, a table is damaged or has no lesions, or images, groups, folds or true masks
            differ.
    """
    tables = [_read(path) for path in paths]
    for table, name in zip(tables[1:], names[1:], strict=True):
        _refuse_others(tables[0], table, names[0], name)
    group = tables[0].group_id.astype(str)
    values = [mask_values(table) for table in tables]
    found: list[MaskDifference] = []
    for (a, of_a), (b, of_b) in itertools.combinations(zip(names, values, strict=True), 2):
        for figure, mine in of_a.items():
            both = mine.index.intersection(of_b[figure].index)
            pairs = mine[both].to_numpy(), of_b[figure][both].to_numpy()
            difference = clustered_difference(*pairs, group[both].to_numpy())
            found.append(
                MaskDifference(a=a, b=b, figure=figure, n_images=len(both), difference=difference, p_holm=None)
            )
    corrected = holm({number: one.difference.p for number, one in enumerate(found)})
    return CompareMasksRecord(
        n_images=len(tables[0]),
        n_groups=int(group.nunique()),
        n_folds=int(tables[0].fold.nunique()),
        runs=[
            ComparedMasks(name=name, n_images=len(table), **mask_estimates(table))
            for name, table in zip(names, tables, strict=True)
        ],
        differences=[one.model_copy(update={"p_holm": corrected[number]}) for number, one in enumerate(found)],
    )


def _read(path: Path) -> pd.DataFrame:
    """Read the table of one segmentation, sorted by its images; values that are not defined are NaN."""
    where = path if (path / "run.json").is_file() else path.absolute().parent
    hint = "Name the folder of a run of usvit transfer --how segment."
    if load_run_record(where, hint).state != "finished":
        raise UsvitError(f"The run {where} is not finished. Run its own command again, and then compare.")
    table = read_csv(path / MASKS, text=_TEXT)
    needed = [*_KEY, "group_id", "fold", "lesion_pixels", "predicted_pixels", "dice", "iou", "hd95", "pixel_accuracy"]
    if missing := [name for name in needed if name not in table]:
        raise UsvitError(
            f"{path / MASKS} has no column {missing[0]}: segmentations of lesions are compared, not those of other "
            "classes (segment.table)."
        )
    numbers = {name: pd.to_numeric(table[name], errors="coerce") for name in needed if name not in _TEXT}
    table = table.assign(**numbers).sort_values(_KEY, kind="stable").reset_index(drop=True)
    counts = table[["fold", "lesion_pixels", "predicted_pixels"]]
    if table.empty or table.duplicated(_KEY).any() or counts.isna().any(axis=None):
        raise UsvitError(f"{path / MASKS} is damaged: an image is there twice, a number is missing, or it is empty.")
    return table


def _refuse_others(first: pd.DataFrame, other: pd.DataFrame, name: str, other_name: str) -> None:
    """Raise UsvitError unless two tables have the same images in the same groups and folds, and the same true masks."""
    mine, theirs = (set(table[_KEY].itertuples(index=False, name=None)) for table in (first, other))
    if mine != theirs:
        raise UsvitError(
            f"{name} and {other_name} were tested on other images: {len(mine - theirs)} are in the first alone, "
            f"{len(theirs - mine)} in the second alone. Compare runs on the same images."
        )
    for column, what in (("fold", "folds"), ("group_id", "groups"), ("lesion_pixels", "true masks")):
        if differs := int((first[column].to_numpy() != other[column].to_numpy()).sum()):
            raise UsvitError(
                f"{name} and {other_name} differ in the {what} of {differs} of {len(first)} images. Compare runs with "
                "the same data, seed of the split and number of folds."
            )
