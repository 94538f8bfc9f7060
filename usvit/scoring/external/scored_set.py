"""Reading of a folder that ``usvit score`` wrote."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from usvit.data.near_duplicates import CompactDescriptions, NearDuplicate, find_near_duplicates
from usvit.data.splits import Described, described_among, group_ids, joined, read_description
from usvit.errors import UsvitError
from usvit.evaluation import SUM_TOLERANCE
from usvit.files import read_csv, read_parquet, refuse_linked_folders
from usvit.records import (
    JobRecord,
    ModelSeen,
    ScoringMember,
    SummaryRecord,
    UnitPointRecord,
    load_record,
    refuse_changed,
)
from usvit.scoring.calibration import group_of
from usvit.scoring.items import (
    ADDED_COLUMNS,
    COPY_COLUMNS,
    DESCRIPTION,
    FAILURE_COLUMNS,
    IMAGE_COLUMNS,
    VIEW_WEIGHT,
    score_columns,
)

_NUMBERS = ("frame", "n_frames", "threshold", "novelty", "quality", "pixel_spacing_mm", *IMAGE_COLUMNS)
_YES = ("unusual", "seen")


@dataclass(frozen=True)
class ScoredSet:
    """The scores of a set of images, without labels."""

    folder: Path
    rows: pd.DataFrame = field(repr=False)
    """``items.score_columns`` and ``group_id``; ids, sides and other text as str, '' if absent; numbers as float64
    with NaN; ``unusual`` and ``seen`` as bool."""
    failures: pd.DataFrame = field(repr=False)
    """``items.FAILURE_COLUMNS``, all str."""
    classes: tuple[str, ...]
    positive: str
    threshold: float | None
    """Threshold on the calibrated probability; None if the images were scored without one."""
    threshold_origin: str
    model_sha256: str
    fingerprint: str | None
    """Fingerprint of the key of the pseudonyms; None if it is not recorded."""
    descriptions: Described = field(default_factory=dict, repr=False)
    """Pixel hash -> near-duplicate description, of the images that have one (``copies.parquet``)."""
    seen_record: ModelSeen | None = None
    """Record of the images that the model has seen (``Ensemble.describe``); None if ``summary.json`` is absent."""
    file: Path = Path()
    """The table of the scores."""
    networks: tuple[ScoringMember, ...] = ()
    """The networks, as summary.json describes them."""
    finished: str | None = None
    """End of the scoring, ISO 8601; None if summary.json is absent."""
    summary: SummaryRecord | None = field(default=None, repr=False)
    """Content of summary.json; None if it is absent."""

    @property
    def prob(self) -> np.ndarray:
        """(n, K) float64, in the order of ``classes``."""
        return self.rows[[f"prob_{name}" for name in self.classes]].to_numpy(np.float64)

    @property
    def unit(self) -> UnitPointRecord | None:
        """The threshold of the unit of the model or calibration that scored; None without one."""
        return None if self.summary is None else self.summary.model.unit

    def clear(self, private: str, pseudonym: str) -> dict[str, str] | None:
        """Return the pseudonym of each original id if the set was scored with ``--keep-ids``, else None.

        Args:
            private: a column of ``items.PRIVATE_COLUMNS``.
            pseudonym: the column of its pseudonyms.
        """
        tables = [self.rows[[private, pseudonym]]]
        if private in self.failures:
            tables.append(self.failures[[private, pseudonym]])
        both = pd.concat(tables)
        both = both[both[private] != ""]
        return None if both.empty else dict(zip(both[private], both[pseudonym], strict=True))


def read_scored_set(folder: Path) -> ScoredSet:
    """Read the tables of a finished scoring job, with the groups of images that are not independent.

    Raises:
        UsvitError: the folder was not written by ``usvit score``, its job is not finished, or a table is damaged or
            empty.
    """
    found = read_scores(folder)
    if found.rows.empty:
        raise UsvitError(f"{found.file} is empty: no image was scored.")
    descriptions = _descriptions(folder / "copies.parquet", found.rows)
    groups = groups_of(found.rows, descriptions)
    return replace(found, rows=found.rows.assign(group_id=groups), descriptions=descriptions)


def read_scores(folder: Path) -> ScoredSet:
    """Read the tables of a finished scoring job; without the column ``group_id``, and perhaps without rows.

    Raises:
        UsvitError: the folder was not written by ``usvit score``, its job is not finished, or a table is damaged.
    """
    if not folder.is_dir():
        raise UsvitError(f"{folder} is not a folder. Pass the folder that usvit score wrote (--out).")
    refuse_linked_folders(folder)
    job = load_record(folder / "job.json", JobRecord) if (folder / "job.json").exists() else None
    if job is not None and job.state != "finished":
        raise UsvitError(f"The scoring job of {folder} is not finished. Run its command again first.")
    file = next((folder / name for name in ("scores.parquet", "scores.csv") if (folder / name).is_file()), None)
    if file is None:
        raise UsvitError(
            f"{folder} has no scores.parquet or scores.csv. Pass the folder that usvit score wrote (--out)."
        )
    summary = load_record(folder / "summary.json", SummaryRecord) if (folder / "summary.json").exists() else None
    if summary is not None:
        recorded = {name: table.sha256 for name, table in summary.files.items()}
        refuse_changed(folder, recorded, "summary.json", (file.name, "copies.parquet", "failures.csv"))
    rows, classes, positive = read_score_rows(file)
    failures = _failures(folder / "failures.csv")
    for name in ("threshold", "threshold_origin", "model_sha256"):
        if rows[name].nunique(dropna=False) > 1:
            raise UsvitError(
                f"{file}: column '{name}' differs between rows, so that these are the scores of several jobs."
            )
    first = None if rows.empty else rows.iloc[0]
    threshold = np.nan if first is None else first["threshold"]
    return ScoredSet(
        folder=folder,
        rows=rows,
        failures=failures,
        classes=classes,
        positive=positive,
        threshold=None if np.isnan(threshold) else float(threshold),
        threshold_origin="" if first is None else str(first["threshold_origin"]),
        model_sha256="" if first is None else str(first["model_sha256"]),
        fingerprint=_fingerprint(job, summary),
        seen_record=None if summary is None else summary.model.seen,
        file=file,
        networks=() if summary is None else tuple(summary.model.members),
        finished=None if summary is None else summary.finished,
        summary=summary,
    )


def read_score_rows(file: Path) -> tuple[pd.DataFrame, tuple[str, ...], str]:
    """Read ``scores.csv`` or ``scores.parquet``: rows as in ``ScoredSet``, the classes, and the positive class.

    Raises:
        UsvitError: the table is damaged, or is none of ``usvit score``.
    """
    raw = _read(file)
    classes, positive = _classes(raw, file)
    raw = raw.assign(**{name: None for name in ADDED_COLUMNS if name not in raw})
    missing = [name for name in score_columns(classes, positive) if name not in raw]
    if missing:
        raise UsvitError(f"{file} has no column {', '.join(missing)}: is it a table of usvit score?")
    return _typed(raw, classes, positive, file), classes, positive


def groups_of(rows: pd.DataFrame, descriptions: Described | None = None) -> list[str]:
    """Return groups of images that are not independent, built like those of a training (``splits.groups.group_ids``).

    A group is a patient (``calibration.group_of``). Groups that share an image, by identical pixels or as a
    near-duplicate, are merged transitively. Blank images merge nothing, because empty frames of all patients are alike.

    Args:
        rows: rows of a scored set.
        descriptions: pixel hash -> near-duplicate description; without them only identical pixels merge groups.

    Returns:
        One id per row; the smallest id for merged groups.
    """
    own = [*map(group_of, rows["patient_id"], rows["study_id"], rows["item_id"])]
    blank = rows["flags"].str.split(";").map(lambda flags: "blank" in flags)
    table = pd.DataFrame(
        {"dataset": "", "image_id": "", "patient_id": own, "sha256": rows["pixel_sha256"].where(~blank, "").to_numpy()}
    )
    copies = _copies(rows[~blank], descriptions or {})
    return [one.removeprefix("patient::") for one in group_ids(table, copies)]


def _copies(rows: pd.DataFrame, descriptions: Described) -> list[NearDuplicate]:
    """Return pairs of near-duplicates with different pixels, as numbers of the first rows that hold these pixels.

    Args:
        rows: rows whose index is their number in the whole table.
        descriptions: pixel hash -> near-duplicate description.
    """
    first = rows.reset_index(names="number").drop_duplicates("pixel_sha256").set_index("pixel_sha256")["number"]
    own, _ = described_among(descriptions, first.index)
    numbers = first.loc[list(own)].tolist()
    return [
        replace(pair, first=numbers[pair.first], second=numbers[pair.second])
        for pair in find_near_duplicates(joined(own).images)
    ]


def _read(file: Path) -> pd.DataFrame:
    if file.suffix == ".parquet":
        return read_parquet(file)
    return read_csv(file)


def _classes(raw: pd.DataFrame, file: Path) -> tuple[tuple[str, ...], str]:
    classes = tuple(str(name).removeprefix("prob_") for name in raw.columns if str(name).startswith("prob_"))
    positive = [str(name).removeprefix("calibrated_") for name in raw.columns if str(name).startswith("calibrated_")]
    if len(classes) < 2 or len(positive) != 1 or positive[0] not in classes:
        raise UsvitError(
            f"{file} has no columns prob_<class> and calibrated_<positive class>: it is not a table of usvit score."
        )
    return classes, positive[0]


def _typed(raw: pd.DataFrame, classes: tuple[str, ...], positive: str, file: Path) -> pd.DataFrame:
    rows = raw.copy()
    numbers = [f"prob_{name}" for name in classes] + [f"calibrated_{positive}"]
    measured = [*numbers, f"spread_{positive}", *_NUMBERS, *((VIEW_WEIGHT,) if VIEW_WEIGHT in raw else ())]
    for name in measured:
        cells = rows[name].map(lambda cell: np.nan if cell is None or cell == "" else cell)
        try:
            rows[name] = cells.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise UsvitError(f"{file}: column '{name}' holds a value that is not a number.") from error
    for name in _YES:
        rows[name] = rows[name].map(lambda cell: str(cell).strip().lower() in ("true", "1", "1.0", "yes"))
    for name in (one for one in score_columns(classes, positive, sides="side" in raw) if one not in {*measured, *_YES}):
        rows[name] = rows[name].map(lambda cell: "" if cell is None or cell != cell else str(cell)).astype(object)
    rows["frame"] = rows["frame"].astype(np.int64)
    prob = rows[numbers].to_numpy(np.float64)
    bad = (~np.isfinite(prob) | (prob < 0) | (prob > 1)).any(axis=1)
    bad |= np.abs(prob[:, : len(classes)].sum(axis=1) - 1) > SUM_TOLERANCE
    bad |= (rows["item_id"] == "").to_numpy() | rows.duplicated(["item_id", "frame"]).to_numpy()
    if bad.any():
        raise UsvitError(
            f"{file}, row {int(bad.argmax()) + 1}: an id is empty or occurs twice, or probabilities are not in [0, 1] "
            "or do not sum to 1. The table was changed after usvit score wrote it."
        )
    return rows


def _failures(file: Path) -> pd.DataFrame:
    if not file.is_file():
        return pd.DataFrame(columns=list(FAILURE_COLUMNS), dtype=object)
    found = _read(file)
    missing = [name for name in FAILURE_COLUMNS if name not in found]
    if missing:
        raise UsvitError(f"{file} has no column {', '.join(missing)}: is it a table of usvit score?")
    return found


def _descriptions(file: Path, rows: pd.DataFrame) -> dict[str, CompactDescriptions]:
    """Read the descriptions of the scored images; none if the file is absent."""
    if not file.is_file():
        return {}
    found = _read(file)
    if missing := [name for name in COPY_COLUMNS if name not in found]:
        raise UsvitError(f"{file} has no column {', '.join(missing)}: is it a table of usvit score?")
    wanted, own = set(rows["pixel_sha256"]), {}
    for sha256, content in zip(found["pixel_sha256"], found[DESCRIPTION], strict=True):
        if sha256 in wanted and sha256 not in own and isinstance(content, bytes):
            own[sha256] = read_description(content, sha256, str(file))
    return own


def _fingerprint(job: JobRecord | None, summary: SummaryRecord | None) -> str | None:
    """Return the fingerprint of the key, from job.json or summary.json."""
    own = None if job is None else job.identity.key
    return own or (None if summary is None else summary.key_fingerprint)
