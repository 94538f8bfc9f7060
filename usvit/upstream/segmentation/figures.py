"""Figures of a segmentation over all folds, from the tables of its test images."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from usvit.estimate import Estimate
from usvit.evaluation import grouped_mean, mask_estimates, mask_values
from usvit.experiments import RunDirectory
from usvit.files import read_csv, write_csv
from usvit.metrics.box_precision import average_precisions
from usvit.metrics.clustered_mean import clustered_difference
from usvit.metrics.lesion_detection import RATES, found_above, froc, sensitivity_at
from usvit.metrics.overlap import class_figures
from usvit.upstream.records.segment import ClassOverlap, FrocPoint, SegmentDifference, SegmentedHead
from usvit.upstream.segmentation.training import BOXES, LESIONS, MASKS, PIXELS

_TEXT = ("dataset", "image_id", "group_id", "label", "file", "class")
_COMPARED = ("dice", "iou", "hd95")
_DETECTED = 0.5
"""Confidence from which a candidate counts for ``lesion_sensitivity``."""


@dataclass(frozen=True)
class PooledHead:
    """The tables of one head over all folds."""

    masks: pd.DataFrame
    pixels: pd.DataFrame
    lesions: pd.DataFrame | None
    """None if the classes are not lesion and background."""
    boxes: pd.DataFrame | None

    @classmethod
    def read(cls, run: Path, folders: list[Path]) -> "PooledHead":
        """Join the tables of the folds; ``file`` becomes the path from the folder of the run."""

        def pooled(name: str) -> pd.DataFrame:
            tables = [read_csv(folder / name, text=_TEXT) for folder in folders]
            found = pd.concat([one for one in tables if len(one)] or tables, ignore_index=True)
            numbers = [str(column) for column in found if column not in _TEXT]
            return found.assign(**{column: pd.to_numeric(found[column], errors="coerce") for column in numbers})

        masks = pooled(MASKS)
        places = {fold: folder.relative_to(run).as_posix() for fold, folder in enumerate(folders)}
        masks["file"] = masks.fold.map(places) + "/" + masks.file
        lesions, boxes = (
            pooled(name).astype({"is_lesion": bool}) if (folders[0] / name).is_file() else None
            for name in (LESIONS, BOXES)
        )
        return cls(masks, pooled(PIXELS), lesions, boxes)

    def write(self, folder: Path) -> None:
        """Write the tables of all folds, and the free-response curve."""
        write_csv(folder / MASKS, self.masks)
        write_csv(folder / PIXELS, self.pixels)
        if self.lesions is not None and self.boxes is not None:
            write_csv(folder / LESIONS, self.lesions)
            write_csv(folder / BOXES, self.boxes)
            write_csv(folder / "froc.csv", froc(self.lesions, len(self.masks)))

    def record(self, head: str, n_params: int, seconds: float, classes: tuple[str, ...]) -> SegmentedHead:
        """Compute all figures of the head."""
        counts, groups = self._counts(classes)
        pixels, by_class = class_figures(counts, groups)
        overlaps = [
            ClassOverlap(name=name, iou=_known(iou), accuracy=_known(accuracy), dice=_known(dice))
            for name, (iou, accuracy, dice) in zip(classes, by_class.tolist(), strict=True)
        ]
        more: dict[str, object] = {}
        if self.lesions is not None and self.boxes is not None:
            figures = mask_estimates(self.masks)
            more = {name: figures[name] for name in ("dice", "iou", "hd95", "missed", "false_alarm")}
            spacing = self.masks.pixel_spacing_mm.astype(float)
            more["hd95_mm"] = grouped_mean((self.masks.hd95 * spacing).dropna(), self.masks) if spacing.any() else None
            more |= average_precisions(self.boxes, self.masks.group_id.tolist())
            more["lesion_sensitivity"] = found_above(self.lesions, _DETECTED)
            curve = froc(self.lesions, len(self.masks))
            more["froc"] = [
                FrocPoint(false_per_image=rate, sensitivity=sensitivity_at(self.lesions, curve, rate)) for rate in RATES
            ]
        return SegmentedHead(head=head, n_params=n_params, seconds=seconds, classes=overlaps, **pixels, **more)  # type: ignore[arg-type]

    def _counts(self, classes: tuple[str, ...]) -> tuple[np.ndarray, list[object]]:
        key = ["dataset", "image_id", "fold"]
        at = {one: number for number, one in enumerate(self.masks[key].itertuples(index=False, name=None))}
        counts = np.zeros((len(at), 3, len(classes)), dtype=np.int64)
        image = [at[one] for one in self.pixels[key].itertuples(index=False, name=None)]
        of_class = [classes.index(name) for name in self.pixels["class"]]
        counts[image, :, of_class] = self.pixels[["both", "predicted", "true"]].to_numpy()
        return counts, self.masks.group_id.tolist()


def differences(of: PooledHead, peer: PooledHead) -> list[SegmentDifference]:
    """Compare two heads image by image: mean Dice, IoU and HD95 of the images for which both are defined."""
    if of.lesions is None:
        return [_compared("pixel_accuracy", _accuracy(of), _accuracy(peer), of.masks)]
    mine, other = mask_values(of.masks), mask_values(peer.masks)
    return [_compared(name, mine[name], other[name], of.masks) for name in _COMPARED]


def _compared(name: str, mine: pd.Series, other: pd.Series, masks: pd.DataFrame) -> SegmentDifference:
    both = mine.index.intersection(other.index)
    groups = masks.group_id[both].astype(str).to_numpy()
    found: Estimate = clustered_difference(mine[both].to_numpy(), other[both].to_numpy(), groups)
    return SegmentDifference(figure=name, difference=found)


def _accuracy(head: PooledHead) -> pd.Series:
    """Return the share of right pixels of each image that has pixels which count."""
    counts = head.pixels.groupby(["dataset", "image_id"])[["both", "true"]].sum()
    share = counts.both / counts.true.where(counts.true > 0)
    return share.reindex(pd.MultiIndex.from_frame(head.masks[["dataset", "image_id"]])).reset_index(drop=True).dropna()


def folders_of(run: RunDirectory, n_folds: int, *, peer: bool) -> list[Path]:
    """Return the folder of a head in each fold."""
    return [run.fold(fold) / "peer" if peer else run.fold(fold) for fold in range(n_folds)]


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value
