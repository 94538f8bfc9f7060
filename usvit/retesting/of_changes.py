"""Repeatability under controlled changes: the test images of a run are changed and scored by the run's networks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from usvit.config.evaluation import UnitSettings
from usvit.config.fields import part
from usvit.config.keywords import takes_settings
from usvit.config.retesting import RetestSettings
from usvit.data.datasets import DataRoot, roots_from
from usvit.data.io import MIN_SIDE, UInt8
from usvit.data.transforms import CHANGES, ControlledChange
from usvit.errors import UsvitError, unknown
from usvit.evaluation import (
    Predictions,
    at_units,
    change_section,
    decided_at,
    open_predictions,
    points_of,
    predictions_table,
    rows_of,
    units_to_use,
)
from usvit.explaining import CaseImages, ExplainedCase, PredictionSource, choose, open_source
from usvit.files import refuse_linked_folders, sha256_of_file, write_csv
from usvit.models import TrainedModel, load_trained
from usvit.progress import Progress, shown_progress, task
from usvit.records import ChangeRecord, LeftOutRepeats, RepeatabilityRecord, fitting
from usvit.retesting.output import SCORES, output_folder, repeatability_record, written

CHUNK = 16
"""Images that are read and changed at once."""
BATCH = 64
"""Inputs of one pass through a network."""
_SAME_SCORE = 0.01
"""Largest difference of a probability from that of the run's predictions.csv that another device can cause."""
_UNCHANGED = ("none", "")
KEY = ["dataset", "image_id"]

Kind = tuple[str, str]
"""Name and strength of a change."""


@takes_settings
def retest(
    run: str | Path,
    *,
    settings: RetestSettings,
    data_root: DataRoot = None,
    progress: Progress | None = None,
) -> tuple[RepeatabilityRecord, Path]:
    """Change the test images of a run, and measure how far the scores of its networks move and how many decisions flip.

    Each image is scored by the network of the fold that tested it, before and after each change, at the thresholds of
    that fold. With a unit, all of its images are changed alike, and its pooled scores are compared. The changes draw
    nothing, so that the same run gives the same figures.

    Args:
        run: folder of a finished run of ``cross_validate`` or ``train``, or of one of its folds.
        settings: See ``RetestSettings``.
        data_root: folder of the data set, or a mapping of the names of data sets to folders; None: ``$USVIT_DATA``.
        progress: shows how many images are done.

    Returns:
        The content of repeatability.json (docs/reference/repeatability.schema.json), and the folder, which also has
        repeatability.html and, in changes.csv, every score.

    Raises:
        UsvitError: the run is unfinished or has other files, a change is unknown, an image cannot be read, the images
            do not state the unit, a number of images is given with it, or fewer than three groups have test images.

    Example:
        >>> import usvit
        >>> record, folder = usvit.retest("runs/small", changes=["gain"], images=8)
        >>> [one.strength for one in record.changes]
        ['-6 dB', '-3 dB', '+3 dB', '+6 dB']
    """
    path = Path(run)
    chosen = _chosen(settings.changes)
    folder = settings.out or path / "retest"
    output = output_folder(folder)
    output.refuse_other_files()
    if settings.out is None and path.is_dir():
        refuse_linked_folders(path)
    source = open_source(path)
    with fitting(source.run):
        found = open_predictions(source.run)
        units = units_to_use(found, part(settings, UnitSettings))
        pooled = at_units(found, units)  # refuses images that do not state the unit, before any is scored
    if settings.images is not None and not units.of_images:
        raise UsvitError(f"--images cannot be used with the unit {units.unit}, which is scored from all its images.")
    cases = list(source.cases) if settings.images is None else choose(source, settings.images)
    with output.opened():
        with fitting(source.run):
            scores = _score(source, cases, chosen, roots_from(data_root), shown_progress(progress))
            content = _content(found, pooled, units, source, scores, chosen)
        record = written(content, folder)
        write_csv(folder / SCORES, pd.concat(scores.tables.values(), ignore_index=True))
    return record, folder


@dataclass(frozen=True)
class _ChangedScores:
    """Predictions before and after each change."""

    tables: dict[Kind, pd.DataFrame]
    """Change -> predictions table with the columns change and strength, sorted by dataset and image_id, without the
    images that do not allow the change."""
    weights: dict[str, str]
    """Fold -> SHA-256 of its weights."""


def _chosen(names: Sequence[str]) -> list[ControlledChange]:
    for name in names:
        if name not in CHANGES:
            raise unknown("change", name, CHANGES)
    return [one for name, several in CHANGES.items() if not names or name in names for one in several]


def _score(
    source: PredictionSource,
    cases: list[ExplainedCase],
    changes: list[ControlledChange],
    roots: dict[str, Path],
    progress: Progress,
) -> _ChangedScores:
    pixels = CaseImages(source, roots, progress)
    parts: dict[Kind, list[pd.DataFrame]] = {}
    weights, done = {}, 0
    with task(progress, "changing and scoring", len(cases), "images") as advance:
        for fold, folder in source.folds.items():
            mine = [case for case in cases if case.fold == fold]
            if not mine:
                continue
            trained = load_trained(folder)
            _refuse_other_classes(trained, mine[0], folder)
            weights[str(fold)] = sha256_of_file(folder / "model.safetensors")
            for start in range(0, len(mine), CHUNK):
                chunk = mine[start : start + CHUNK]
                inputs: dict[Kind, list[tuple[ExplainedCase, UInt8]]] = {}
                for case in chunk:
                    for kind, changed in _variants(*pixels.read(case), changes):
                        if changed is not None:
                            resized = trained.preprocessing.resized(changed)
                            inputs.setdefault(kind, []).append((case, resized))
                for kind, table in _predicted(trained, inputs, fold):
                    parts.setdefault(kind, []).append(table)
                done += len(chunk)
                advance(done)
    tables = {kind: pd.concat(several).sort_values(KEY, kind="stable") for kind, several in parts.items()}
    return _ChangedScores(tables, weights)


def _variants(
    image: UInt8, mask: np.ndarray | None, changes: list[ControlledChange]
) -> Iterator[tuple[Kind, UInt8 | None]]:
    """Yield the image itself, and what each change makes of it; None if the image does not allow the change."""
    yield _UNCHANGED, image
    for one in changes:
        changed = one.apply(image, mask)
        small = changed is not None and min(changed.shape[:2]) < MIN_SIDE
        yield (one.name, one.strength), None if small else changed


def _predicted(
    trained: TrainedModel, inputs: dict[Kind, list[tuple[ExplainedCase, UInt8]]], fold: int
) -> Iterator[tuple[Kind, pd.DataFrame]]:
    every = [resized for several in inputs.values() for _, resized in several]
    logits = []
    with torch.inference_mode():
        for start in range(0, len(every), BATCH):
            batch = torch.from_numpy(np.stack(every[start : start + BATCH]))
            logits.append(trained.model(trained.preprocessing.normalised(batch)).float().numpy())
    found, at = np.concatenate(logits), 0
    for (name, strength), several in inputs.items():
        rows = pd.DataFrame(
            {
                "image_id": [case.image_id for case, _ in several],
                "group_id": [case.group_id for case, _ in several],
                "patient_id": [case.row.get("patient_id") for case, _ in several],
                "dataset": [case.dataset for case, _ in several],
                "label": [case.label for case, _ in several],
            }
        )
        own = found[at : at + len(several)]
        at += len(several)
        table = predictions_table(rows, own, classes=trained.classes, fold=fold, part="test")
        table.insert(0, "strength", strength)
        table.insert(0, "change", name)
        yield (name, strength), table


def _content(
    found: Predictions,
    pooled: Predictions,
    units: UnitSettings,
    source: PredictionSource,
    scores: _ChangedScores,
    changes: list[ControlledChange],
) -> RepeatabilityRecord:
    points, reasons = points_of(pooled.table, found.positive)
    tables = {kind: at_units(replace(found, table=table), units).table for kind, table in scores.tables.items()}
    unit = pooled.unit
    row, key = ("image", KEY) if unit is None else (unit.unit, [*KEY, "n_images"])
    first = tables[_UNCHANGED]
    n_groups = first["group_id"].nunique()
    if n_groups < 3:
        raise UsvitError(f"{source.folder} tests images of {n_groups} groups; a retest needs at least three.")
    entries = []
    for one in changes:
        after = tables.get((one.name, one.strength), first[:0])
        # A unit is compared if all its images allow the change.
        same = pd.MultiIndex.from_frame(first[key]).isin(pd.MultiIndex.from_frame(after[key]))
        after = after[pd.MultiIndex.from_frame(after[key]).isin(pd.MultiIndex.from_frame(first[key]))]
        lost = (first["dataset"] + "/" + first["image_id"])[~same]
        what = "images that do" if unit is None else f"{row}s with an image that does"
        reason = f"{what} not allow the change ({_WHY.get(one.name, 'they are too small')})"
        left_out = [LeftOutRepeats(n=len(lost), reason=reason, example=lost.iloc[0])] if len(lost) else []
        if after.empty:
            entries.append(
                ChangeRecord(
                    change=one.name,
                    strength=one.strength,
                    n_images=0,
                    n_groups=0,
                    left_out=left_out,
                    scales=None,
                    flips=[],
                    reason=f"no {row} allows the change",
                )
            )
            continue
        before = decided_at(rows_of(first[same], "test", found.classes), found.positive, points)
        changed = decided_at(rows_of(after, "test", found.classes), found.positive, points)
        entries.append(change_section(before, changed, change=one.name, strength=one.strength, left_out=left_out))
    warnings = [
        *found.warnings,
        *_other_scores(found, scores.tables[_UNCHANGED]),
        *(f"{rule}: {why}" for rule, why in reasons.items()),
    ]
    return repeatability_record(source.name, found.positive, warnings, unit, changes=entries, weights=scores.weights)


_WHY = {"calipers": "they have no lesion mask", "marks-off": "no text or calipers are detected in them"}


def _other_scores(found: Predictions, first: pd.DataFrame) -> list[str]:
    """Return a warning if the unchanged images are not scored as in the run's predictions."""
    column = f"prob_{found.positive}"
    both = first.merge(found.table[found.table["part"] == "test"], on=[*KEY, "fold"], suffixes=("", "_of_run"))
    far = float((both[column] - both[f"{column}_of_run"]).abs().max())
    if far <= _SAME_SCORE:
        return []
    return [
        f"The unchanged images are scored differently from predictions.csv, by up to {far:.3f}: the run used another "
        "device, precision or version. The figures compare the scores of this retest only."
    ]


def _refuse_other_classes(trained: TrainedModel, case: ExplainedCase, folder: Path) -> None:
    if list(trained.classes) != list(case.probabilities):
        raise UsvitError(
            f"In {folder}, model.json has the classes {', '.join(trained.classes)} and predictions.csv "
            f"{', '.join(case.probabilities)}. Copy both from the same fold."
        )
