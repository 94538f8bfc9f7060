"""Reading of what is watched: folders of ``usvit score`` or of a node, as one table of images and failed files."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd

from usvit.config.watching import WatchDates, day_of
from usvit.errors import UsvitError
from usvit.files import read_text
from usvit.records import SummaryRecord
from usvit.scoring import group_of, read_score_rows, read_scores

_EARLIEST = date(1990, 1, 1)
_SOURCE = re.compile(r"(?P<site>[^=@/\\]*)(?:@(?P<day>[^=/\\]*))?=(?P<folder>.+)")
_NUMBERS = ("score", "undecided", "positive", "novelty", "brightness", "contrast", "quality", "failures")


@dataclass(frozen=True)
class WatchedFolder:
    """A folder, with the site and the day that the user gave."""

    folder: Path
    site: str = ""
    day: date | None = None

    @classmethod
    def parse(cls, text: str | Path) -> "WatchedFolder":
        """Parse ``FOLDER``, ``SITE=FOLDER``, ``@2026-03=FOLDER`` or ``SITE@2026-03=FOLDER``.

        Raises:
            UsvitError: the date is none, or the folder does not exist.
        """
        found = None if isinstance(text, Path) or Path(text).exists() else _SOURCE.fullmatch(text)
        folder = Path(found["folder"] if found else text)
        if not folder.is_dir():
            raise UsvitError(f"{folder} is not a folder. Pass the folder that usvit score wrote, or that of a node.")
        try:
            day = day_of(found["day"]) if found and found["day"] else None
        except ValueError as error:
            raise UsvitError(f"{text}: {error}.") from None
        return cls(folder, found["site"] if found else "", day)


@dataclass(frozen=True)
class ModelKey:
    """What makes the decisions; images of different keys are never compared."""

    sha256: str
    threshold: float | None
    calibration: str | None


@dataclass
class ModelFacts:
    """What is known of a model besides its key."""

    threshold_origin: str = ""
    architectures: set[str] = field(default_factory=set)
    versions: set[str] = field(default_factory=set)


@dataclass
class Watched:
    """Everything that is watched.

    Attributes:
        rows: one row for each image and each failed file: ``day`` (datetime64, NaT if unknown), ``site``, ``device``,
            ``group``, ``model`` (index in ``models``), ``baseline`` (given as such), ``size``, ``code`` of a failure,
            ``decision``, and the quantities (NaN where they do not apply). ``frame`` is -1 for a failed file.
        models: the models, in the order of their first day.
        facts: what is known of each.
        warnings: what was left out or assumed.
    """

    rows: pd.DataFrame
    models: list[ModelKey]
    facts: list[ModelFacts]
    warnings: list[str]


def read_watched(
    sources: Sequence[WatchedFolder], baseline: Sequence[WatchedFolder], dates: WatchDates, today: date
) -> Watched:
    """Read all folders.

    Raises:
        UsvitError: a folder is damaged or holds no scores, or scores name different positive classes.
    """
    models: dict[ModelKey, ModelFacts] = {}
    tables: list[pd.DataFrame] = []
    classes: dict[str, Path] = {}
    for given, is_baseline in [*((one, True) for one in baseline), *((one, False) for one in sources)]:
        for part in _parts(given, dates):
            classes.setdefault(part.positive, given.folder)
            facts = models.setdefault(part.model, ModelFacts())
            facts.threshold_origin = facts.threshold_origin or part.origin
            facts.architectures |= part.facts.architectures
            facts.versions |= part.facts.versions
            number = list(models).index(part.model)
            tables.append(part.table.assign(model=number, baseline=is_baseline, site=given.site, folder=len(tables)))
    if len(classes) > 1:
        raise UsvitError(
            f"The scores have different positive classes: {', '.join(sorted(classes))}. Watch models of one task."
        )
    rows = pd.concat([one for one in tables if len(one)] or tables, ignore_index=True)
    if rows.empty:
        raise UsvitError("The folders hold neither a scored image nor a failed file.")
    failed = rows["frame"] < 0
    rows.loc[failed, "group"] += ":" + rows.loc[failed, "folder"].astype(str)
    warnings = _dated(rows, today)
    rows, twice = _once(rows)
    warnings += twice
    warnings += _unnamed(rows)
    first = rows.dropna(subset="day").groupby("model")["day"].min()
    order = sorted(range(len(models)), key=lambda k: (k not in first.index, str(first.get(k, "")), k))
    rows["model"] = rows["model"].map({old: new for new, old in enumerate(order)})
    keys, facts_of = list(models), list(models.values())
    return Watched(rows, [keys[k] for k in order], [facts_of[k] for k in order], warnings)


@dataclass(frozen=True)
class _Part:
    """The images that one job scored."""

    table: pd.DataFrame
    model: ModelKey
    positive: str
    origin: str
    facts: ModelFacts


def _parts(source: WatchedFolder, dates: WatchDates) -> Iterator[_Part]:
    if (source.folder / "node.sqlite").is_file():
        yield from _of_node(source, dates)
        return
    scored = read_scores(source.folder)
    summary = scored.summary
    day = source.day or (None if summary is None else _day(summary.started))
    if day is None:
        raise UsvitError(
            f"{source.folder} has no summary.json, so that its day is not known. Pass it as @2026-03={source.folder}."
        )
    table = _images(scored.rows, scored.positive, scored.fingerprint or "", day, dates, fixed=source.day is not None)
    key = scored.fingerprint or ""
    failed = scored.failures.assign(item_id=key + scored.failures["item_id"].astype(str)).drop_duplicates("item_id")
    partly = table["item_id"].isin(failed["item_id"]) & table["failures"].notna()
    table.loc[partly, "failures"] = 1.0
    table.loc[partly, "code"] = table.loc[partly, "item_id"].map(failed.set_index("item_id")["code"])
    whole = failed[~failed["item_id"].isin(table["item_id"])]
    known, facts = _model(summary, scored.model_sha256, scored.threshold)
    origin = scored.threshold_origin or ("" if summary is None else summary.threshold.origin)
    yield _Part(_joined(table, _failed(whole["item_id"], whole["code"], day)), known, scored.positive, origin, facts)


def _model(summary: SummaryRecord | None, sha256: str, threshold: float | None) -> tuple[ModelKey, ModelFacts]:
    if summary is None:
        return ModelKey(sha256, threshold, None), ModelFacts()
    model = summary.model
    calibration = None if model.calibration is None else model.calibration.sha256
    facts = ModelFacts("", {one.architecture for one in model.members}, {summary.versions.get("usvit", "unknown")})
    return ModelKey(model.sha256, summary.threshold.value, calibration), facts


def _of_node(source: WatchedFolder, dates: WatchDates) -> Iterator[_Part]:
    """Yield the studies that a node has scored, with the days and failures of its audit log."""
    events = _events(source.folder / "audit.jsonl")
    files = sorted((source.folder / "results").glob("*/*/scores.csv"))
    if not files and not events:
        raise UsvitError(f"The node in {source.folder} has not scored anything yet.")
    known: dict[str, tuple[ModelKey, str]] = {}
    lost: dict[str, list[pd.DataFrame]] = {}
    """Model -> failed files of studies without any scored image, whose threshold is not known."""
    for file in files:
        rows, _, positive = read_score_rows(file)
        study, revision = file.parts[-3], file.parts[-2]
        event = events.get((study, revision), {})
        day = source.day or _day(str(event.get("time", "")))
        n_failed = int(str(event.get("failed") or 0))
        failed = _failed([f"{study}/{revision}/{k}" for k in range(n_failed)], ["failed"] * n_failed, day)
        if rows.empty:
            lost.setdefault(str(event.get("model_sha256", "")), []).append(failed)
            continue
        first = rows.iloc[0]
        table = _joined(_images(rows, positive, "", day, dates, fixed=source.day is not None), failed)
        key = ModelKey(str(first["model_sha256"]), None if np.isnan(first["threshold"]) else first["threshold"], None)
        known[key.sha256] = (key, positive)
        yield _Part(table, key, positive, str(first["threshold_origin"]), ModelFacts())
    for sha256, tables in lost.items():
        if sha256 in known:
            key, positive = known[sha256]
            yield _Part(pd.concat(tables, ignore_index=True), key, positive, "", ModelFacts())


def _events(file: Path) -> dict[tuple[str, str], dict[str, object]]:
    """Return the events ``study_scored`` of the audit log of a node, by study and revision."""
    found: dict[tuple[str, str], dict[str, object]] = {}
    for line in read_text(file).splitlines() if file.is_file() else ():
        try:
            event = json.loads(line)
            if event["event"] == "study_scored":
                found[str(event["study"]), str(event["revision"])] = event
        except (ValueError, KeyError, TypeError) as error:
            raise UsvitError(f"{file} is damaged: a line is no event of a node. Restore it.") from error
    return found


def _images(
    rows: pd.DataFrame, positive: str, key: str, day: date | None, dates: WatchDates, *, fixed: bool
) -> pd.DataFrame:
    """Return the quantities of scored images; ``fixed``: the user gave the day of all of them."""
    decided = rows["decision"].map({positive: 1.0, "": np.nan}).fillna(0.0).where(rows["decision"] != "")
    has_threshold = rows["threshold"].notna()
    sized = rows["width"].notna() & rows["height"].notna()
    size = rows["width"].fillna(0).astype(int).astype(str) + "x" + rows["height"].fillna(0).astype(int).astype(str)
    own = pd.to_datetime(rows["study_date"].replace("", None), format="%Y-%m-%d", errors="coerce")
    if dates == "scoring" or fixed:
        own = pd.Series(pd.NaT, index=rows.index, dtype="datetime64[ns]")
    groups = [*map(group_of, rows["patient_id"], rows["study_id"], rows["file_sha256"])]
    return pd.DataFrame(
        {
            "item_id": key + rows["item_id"],
            "frame": rows["frame"],
            "file_sha256": rows["file_sha256"],
            "day": own if day is None else own.fillna(pd.Timestamp(day)),
            "has_date": own.notna(),
            "device": rows["device"],
            "group": [f"{key}{one}" for one in groups],
            "size": size.where(sized, ""),
            "code": "",
            "decision": decided.map({1.0: "positive", 0.0: "negative"}).fillna("none"),
            "score": rows[f"calibrated_{positive}"].astype(float),
            "positive": decided,
            "undecided": (rows["decision"] == "").astype(float).where(has_threshold),
            "novelty": rows["unusual"].astype(float).where(rows["novelty"].notna() | rows["unusual"]),
            **{name: rows[name].astype(float) for name in ("brightness", "contrast", "quality")},
            "failures": np.where(rows.duplicated("item_id"), np.nan, 0.0),
        }
    )


def _failed(items: Iterable[str], codes: Iterable[str], day: date | None) -> pd.DataFrame:
    """Return rows of files without any scored frame; each counts as a patient of its own, because none is known."""
    table = pd.DataFrame({"item_id": list(items), "code": list(codes)}, dtype=object)
    texts = dict.fromkeys(("device", "size", "decision", "file_sha256"), "")
    numbers = dict.fromkeys(_NUMBERS[:-1], np.nan)
    when = pd.Series(pd.Timestamp(day) if day else pd.NaT, index=table.index, dtype="datetime64[ns]")
    return table.assign(
        frame=-1, day=when, has_date=False, group="failed:" + table["item_id"], failures=1.0, **texts, **numbers
    )


def _joined(images: pd.DataFrame, failed: pd.DataFrame) -> pd.DataFrame:
    """Join both tables; one without rows would change the types of the other."""
    return pd.concat([one for one in (images, failed) if len(one)] or [images], ignore_index=True)


def _day(text: str) -> date | None:
    try:
        return datetime.fromisoformat(text).astimezone(UTC).date()
    except ValueError:
        return None


def _dated(rows: pd.DataFrame, today: date) -> list[str]:
    """Clear impossible days, and say what was assumed."""
    said = []
    impossible = (rows["day"] < pd.Timestamp(_EARLIEST)) | (rows["day"] > pd.Timestamp(today + timedelta(days=1)))
    if impossible.any():
        rows.loc[impossible, "day"] = pd.NaT
        said.append(
            f"{int(impossible.sum())} images or failed files have a date before {_EARLIEST.year} or in the future, "
            "from a wrong clock or header."
        )
    if (n := int(rows["day"].isna().sum())) == len(rows):
        raise UsvitError("No image has a possible date. Check the clock, or pass the dates as @2026-03=FOLDER.")
    if n:
        said.append(f"{n} images or failed files without a date are in no period.")
    partly = rows.groupby("folder")["has_date"].transform("any") & ~rows["has_date"] & (rows["frame"] >= 0)
    if partly.any():
        said.append(f"{int(partly.sum())} images without StudyDate count on the day on which they were scored.")
    return said


def _once(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Keep the first of several rows of one image that the same model scored.

    Failed files stay: nothing but a path within its input is known of them, and months may repeat paths.
    """
    ordered = rows.sort_values(["day", "baseline"], ascending=[True, False], kind="stable")
    again = ordered.duplicated(["item_id", "frame", "file_sha256", "model"]) & (ordered["frame"] >= 0)
    said = [f"{int(again.sum())} images are in several folders, and count once."] if again.any() else []
    return ordered[~again].reset_index(drop=True), said


def _unnamed(rows: pd.DataFrame) -> list[str]:
    images = rows[rows["frame"] >= 0]
    n = int(images["group"].str.contains("file:", regex=False).sum())
    if not n:
        return []
    return [f"{n} of {len(images)} images name no patient or study: each file counts as a patient of its own."]


def with_sites(sources: Sequence[WatchedFolder]) -> list[WatchedFolder]:
    """Return the sources with sites; where only some have one, the others are ``(other)``."""
    if not any(one.site for one in sources):
        return list(sources)
    return [replace(one, site=one.site or "(other)") for one in sources]
