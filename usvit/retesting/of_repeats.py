"""Repeatability from predictions that exist: copies of one frame, views of a lesion, or any column of repeats."""

from contextlib import nullcontext
from pathlib import Path

from usvit.config.evaluation import Columns, PredictionSettings, RepeatsSettings, UnitSettings
from usvit.config.fields import part
from usvit.config.keywords import takes_settings
from usvit.errors import UsvitError
from usvit.evaluation import at_units, open_predictions, repeats_section
from usvit.records import RepeatabilityRecord, fitting
from usvit.retesting.output import output_folder, repeatability_record, written

USUAL = Columns()
_SPLIT_BY_IMAGE = (
    "The run was split by image, on request: a repeat of a test image may be among the images that its network was "
    "trained on. Sets with images in several folds are left out, but the scores of a hold-out may still agree better "
    "than those of new repeats."
)


@takes_settings
def repeatability(
    predictions: str | Path,
    settings: RepeatsSettings,
    *,
    repeats: str | None = None,
    columns: Columns = USUAL,
    out: str | Path | None = None,
) -> RepeatabilityRecord:
    """Measure how far the scores of repeats differ, from predictions that exist; no network runs.

    Args:
        predictions: a run directory, or a CSV or Parquet table of any tool.
        repeats: column of the table or of its manifest whose equal values name the repeats of one thing, such as a
            lesion's id. None takes the near-duplicates of one frame, which usvit groups.
        columns: which column of the table holds what; a run's columns are known.
        settings: see ``RepeatsSettings``. With a unit, two of them are compared, such as the exams of a patient.
        out: folder to write repeatability.json and repeatability.html into; None writes none.

    Returns:
        The content of repeatability.json (docs/reference/repeatability.schema.json).

    Raises:
        UsvitError: as ``evaluate``; there is no such column; a unit without a column; fewer than three groups have
            repeats.
        LeakageError: as ``evaluate``.

    Example:
        >>> import usvit
        >>> found = usvit.repeatability("runs/small", repeats="patient_id").repeats
        >>> found.n_images > found.n_sets, found.scales.logit.icc_form
        (True, 'ICC(1,1)')
    """
    path, folder = Path(predictions), None if out is None else output_folder(Path(out))
    if folder is not None:
        folder.refuse_other_files()
    if repeats is None and not settings.of_images:
        raise UsvitError(
            f"--unit {settings.unit} needs --repeats COLUMN, whose equal values name the {settings.unit}s that repeat "
            "each other, such as --unit exam --repeats patient_id: near-duplicates are of single images."
        )
    with fitting(path):
        found = open_predictions(path, settings=part(settings, PredictionSettings), columns=columns)
        found = at_units(found, part(settings, UnitSettings))
        section, pairs = repeats_section(found, repeats)
    warnings = [*found.warnings]
    if found.split_by_image:
        warnings.append(_SPLIT_BY_IMAGE)
    if section.n_identical:
        warnings.append(
            f"{section.n_identical} of {section.n_pairs} pairs have identical pixels, so that their scores are "
            "equal whatever the network is."
        )
    with nullcontext() if folder is None else folder.opened():
        record = repeatability_record(found.name, found.positive, warnings, found.unit, repeats=section)
        return written(record, None if folder is None else folder.path, pairs)
