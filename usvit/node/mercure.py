"""Scoring of one task of mercure, the DICOM orchestrator: its folder contract of a processing module.

mercure starts a container for each series or study. It puts the DICOM files and ``task.json`` into the folder
``MERCURE_IN_DIR``, and sends the DICOM files that it finds in ``MERCURE_OUT_DIR`` to the targets of its rule. It keeps
``result.json`` of that folder, whose key ``__mercure_notification`` is the text of the notification. Settings of the
module are in ``task.json`` under ``process.settings``; usvit reads the section ``usvit`` of them.

Source: mercure documentation, "Module Development", https://mercure-imaging.org/docs/modules.html.
"""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from usvit import __version__
from usvit.config.sections import Section
from usvit.config.settings import cannot_be_used
from usvit.errors import UsvitError
from usvit.files import read_json, read_parquet, write_json
from usvit.node.records import MercureFrame, MercureNotification, MercureResult
from usvit.records import SummaryRecord
from usvit.scoring import score

_MOST_LISTED = 1000
"""Frames that are listed in ``result.json``, those with the highest probability."""


class MercureSettings(Section):
    """The section ``usvit`` of the settings of the module or the rule."""

    model: Path | None = None
    """Folder of the model inside of the container."""
    folds: str = "all"
    outputs: tuple[Literal["sr", "sc", "gsps"], ...] = ("sr", "sc")
    frames: str = "all"
    operating_point: str = "sensitivity>=0.9"
    calibration: Path | None = None
    abstain: bool = False
    identity: Literal["keep", "pseudonym"] = "keep"
    """``keep``: the results belong to the patient's own study. ``pseudonym``: they are de-identified."""
    pictures: bool = False
    key: Path | None = None
    """Key of the pseudonyms and of the UIDs of results. Without one (and without ``USVIT_KEY``), each task has its own,
    so that a task that runs twice gives two sets of results."""


def score_mercure_task(
    in_dir: str | Path, out_dir: str | Path, *, model: str | Path | None = None, device: str = "auto"
) -> MercureResult:
    """Score the images of one task of mercure, and write the results as mercure expects them.

    Args:
        in_dir: folder with DICOM files and ``task.json`` (``MERCURE_IN_DIR``).
        out_dir: folder for ``result.json`` and the DICOM results (``MERCURE_OUT_DIR``).
        model: folder of the model; the setting ``model`` of the task goes before it.
        device: ``auto``, ``cpu`` or ``cuda``.

    Returns:
        The content of ``result.json``: counts, and the scores by pseudonym of the instance.

    Raises:
        UsvitError: a folder or the model is missing, a setting is wrong, or no image could be scored.

    Example:
        >>> from usvit.node import score_mercure_task
        >>> score_mercure_task("in", "out", model="runs/x").n_scored  # doctest: +SKIP
        12
    """
    source, target = Path(in_dir), Path(out_dir)
    for name, folder in (("MERCURE_IN_DIR", source), ("MERCURE_OUT_DIR", target)):
        if not folder.is_dir():
            raise UsvitError(f"The folder {folder} ({name}) does not exist. mercure mounts it into the container.")
    settings = _settings(source / "task.json")
    chosen = settings.model or model
    if chosen is None:
        raise UsvitError(
            "No model is given. Set 'model' in the section 'usvit' of the settings of the module, or USVIT_MODEL."
        )
    with tempfile.TemporaryDirectory(prefix="usvit-mercure-") as temporary:
        out = Path(temporary) / "scores"
        result = score(
            chosen,
            str(source / "*.dcm"),
            out,
            folds=settings.folds,
            frames=settings.frames,
            operating_point=settings.operating_point,
            calibration=settings.calibration,
            abstain=settings.abstain,
            keep_ids=settings.identity == "keep",
            pictures=settings.pictures,
            key=settings.key or (None if os.environ.get("USVIT_KEY") else Path(temporary) / "pseudonym.key"),
            products=settings.outputs,
            device=device,
        )
        counts = result.summary.counts
        if not counts.frames_scored:
            codes = ", ".join(f"{code} {one.rows}" for code, one in result.summary.failures.items())
            raise UsvitError(
                f"No image of the task could be scored ({codes or 'there is none'}). See 'usvit docs node'."
            )
        for path in sorted((out / "dicom").glob("*.dcm")):
            shutil.copyfile(path, target / path.name)
        found = _result(out, result.summary)
    write_json(target / "result.json", found.content())
    return found


def _settings(path: Path) -> MercureSettings:
    """Read the section ``usvit`` of the settings; without ``task.json``, as in a trial by hand, the defaults hold."""
    if not path.exists():
        return MercureSettings()
    process = read_json(path).get("process") or {}
    steps = process if isinstance(process, list) else [process]
    found = [
        step["settings"]["usvit"]
        for step in steps
        if isinstance(step, dict) and isinstance(step.get("settings"), dict) and "usvit" in step["settings"]
    ]
    try:
        return MercureSettings.model_validate(found[0] if found else {})
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in problem["loc"])
        raise cannot_be_used(f"The setting 'usvit.{where}' of the mercure module", problem) from error


def _result(out: Path, summary: SummaryRecord) -> MercureResult:
    counts, positive = summary.counts, summary.positive_class
    column = f"calibrated_{positive}"
    rows = read_parquet(out / "scores.parquet").sort_values(column, ascending=False, kind="stable")
    text = f"usvit (for research only): {counts.frames_positive} of {counts.frames_scored} frames called {positive}"
    failed = f"; {counts.failures} files or frames could not be scored" if counts.failures else ""
    return MercureResult(
        usvit_version=__version__,
        model_sha256=summary.model.sha256,
        positive_class=positive,
        operating_point=summary.settings["rule"],
        n_scored=counts.frames_scored,
        n_failed=counts.failures,
        n_called_positive=counts.frames_positive,
        n_unusual=counts.frames_unusual,
        frames=[
            MercureFrame(
                instance=row["instance_id"],
                frame=int(row["frame"]),
                probability=float(row[column]),
                decision=row["decision"] or None,
            )
            for row in rows.head(_MOST_LISTED).to_dict("records")
        ],
        notification=MercureNotification(text=text + failed, requested=bool(counts.frames_positive or counts.failures)),
    )
