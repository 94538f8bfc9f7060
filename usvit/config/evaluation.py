"""Settings of evaluations: columns of tables, opening of predictions, figures, external tests, and label tables."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from usvit.config.fields import Option
from usvit.config.sections import Section, Unit
from usvit.errors import UsvitError

ScoredUnit = Literal["image", "file", "lesion", "breast", "exam", "patient"]
UnitLabels = Literal["any", "lesion", "refuse"]


def _pooling(given: str) -> str:
    if re.fullmatch("mean|max|noisy-or|top-[1-9][0-9]{0,3}|attention", given) is None:
        raise ValueError("it must be mean, max, noisy-or, attention, or top-K with a number, such as top-3")
    return given


def _limits(given: Mapping[str, Sequence[float] | None] | Sequence[str]) -> Mapping[str, Sequence[float] | None]:
    """Parse ``["device", "size=10,20"]`` as ``{"device": None, "size": [10, 20]}``."""
    if isinstance(given, Mapping):
        return given
    limits: dict[str, Sequence[float] | None] = {}
    for text in given:
        name, equals, numbers = text.partition("=")
        try:
            limits[name] = [float(number) for number in numbers.split(",")] if equals else None
        except ValueError as error:
            raise UsvitError(f"--by {text}: expected COLUMN, or COLUMN=10,20 with ascending numbers.") from error
    return limits


def _classes_of_words(given: Mapping[str, str] | Sequence[str]) -> Mapping[str, str]:
    """Parse ``["bösartig=malignant", "unklar="]`` as ``{"bösartig": "malignant", "unklar": ""}``."""
    if isinstance(given, Mapping):
        return given
    classes: dict[str, str] = {}
    for text in given:
        word, equals, name = text.rpartition("=")
        if not equals:
            raise UsvitError(f"--map {text}: pass WORD=CLASS, or WORD= to leave its images out.")
        if word.strip() in classes:
            raise UsvitError(f"--map names the word '{word.strip()}' twice.")
        classes[word.strip()] = name.strip()
    return classes


class ReferenceColumns(Section):
    """Columns of a table that names the reference class of each image."""

    panel = "Columns of the table"

    label: Annotated[str | None, Option(metavar="COL")] = None
    """Column of the reference class. (default: ``label``)"""
    patient: Annotated[str | None, Option(metavar="COL")] = None
    """Column of the patient. (default: ``patient_id``; for the labels of scored images, none)"""


class UnitColumns(Section):
    """Columns of a table that name the lesion and the breast of each image."""

    panel = "Columns of the table"

    lesion: Annotated[str | None, Option(metavar="COL", rare=True)] = None
    """Column of the lesion, unique in its data set. (default: ``lesion_id``; for the labels of scored images, none)"""
    side: Annotated[str | None, Option(metavar="COL", rare=True)] = None
    """Column of the side of the breast, such as left or R. (default: 'side'; for the labels of scored images, what
    the scores state)"""


class Columns(ReferenceColumns, UnitColumns):
    """Columns of a table of predictions; a column that is not named has its usual name, if the table has it."""

    panel = "Columns of the table"

    exam: Annotated[str | None, Option(metavar="COL", rare=True)] = None
    """Column of the exam, unique in its data set. (default: ``exam_id``)"""
    prob: Annotated[tuple[str, ...], Option(metavar="[CLASS=]COL")] = ()
    """Column of each class's probability, ``CLASS=COL``; with two classes, one ``COL`` for the positive class.
    (default: ``prob_<class>``)"""
    group: Annotated[str | None, Option(metavar="COL", rare=True)] = None
    """Column of groups of dependent images. (default: ``group_id``, otherwise the patient)"""
    fold: Annotated[str | None, Option(metavar="COL", rare=True)] = None
    """Column of the fold. (default: ``fold``, otherwise a single set)"""
    image: Annotated[str | None, Option(metavar="COL", rare=True)] = None
    """Column of the image id. (default: ``image_id``, otherwise the number of the row)"""


class ContaminationSettings(Section):
    """What to do with test data that a foundation model may have seen."""

    allow_contaminated: Annotated[bool, Option(rare=True)] = False
    """Test also on data sets that a foundation model behind the network was pre-trained on; the results say so. A run
    has its own setting."""


class PredictionSettings(ContaminationSettings):
    """How a run or a table of predictions is opened."""

    positive: Annotated[str | None, Option(metavar="CLASS")] = None
    """The positive class. (default: that of the run, or ``malignant``)"""
    manifest: Annotated[Path | None, Option(metavar="FILE")] = None
    """Table with more columns of the images, such as device or birads. (default: that of the run)"""
    metadata: Annotated[Path | None, Option(metavar="FILE", aliases=("--passport",), rare=True)] = None
    """``model.json`` of the network that made the table, to refuse images that it was trained on; it needs a manifest.
    (default: that of the run)"""


class FigureSettings(Section):
    """Figures to compute besides the usual ones."""

    by: Annotated[
        Mapping[str, Sequence[float] | None],
        BeforeValidator(_limits, json_schema_input_type=Mapping[str, Sequence[float] | None] | Sequence[str]),
        Option(metavar="COL[=10,20]"),
    ] = Field(default_factory=dict)
    """Columns of subgroups, each with ascending limits that cut its numbers, or None; ``COL`` or ``COL=10,20`` on the
    command line."""
    prevalence: Annotated[float | None, Field(gt=0, lt=1), Option(metavar="P")] = None
    """Also compute PPV and NPV at this prevalence, such as 0.006."""


class UnitSettings(Section):
    """What one row of the figures is, and how the images of one unit become one row."""

    panel = "Unit of analysis"

    unit: Annotated[Unit | None, Option(metavar="UNIT")] = None
    """Unit of analysis: ``image``, ``lesion``, ``breast``, ``exam`` or ``patient``. Figures, thresholds and calibration
    are those of the unit. (default: that of the run; of a new run, the level at which the labels were made, by the
    data card)"""
    pooling: Annotated[str, AfterValidator(_pooling), Option(metavar="HOW")] = "mean"
    """Probability of a unit from those of its images: ``mean``; ``max`` (the image with the highest probability of the
    positive class); ``top-K``, such as top-3 (mean of the K highest); ``noisy-or`` (one minus the product of one minus
    each); ``attention`` (weighted by the attention that ``loss.attention`` trains)."""
    unit_labels: Annotated[UnitLabels, Option(metavar="RULE", rare=True)] = "any"
    """Label of a unit with images of several labels: ``any`` (positive if one image is, else the first class in order);
    ``lesion`` (the images of a lesion must agree, and of several lesions as any); ``refuse``."""

    @property
    def of_images(self) -> bool:
        """Whether a row is an image, so that nothing is pooled."""
        return self.unit in (None, "image")

    def at(self, level: Unit | None) -> "UnitSettings":
        """Return the settings with the level of the labels as unit, if no unit is set."""
        return self if self.unit is not None or level in (None, "image") else self.model_copy(update={"unit": level})


class RepeatsSettings(PredictionSettings, UnitSettings):
    """Settings of the repeatability of the scores of images, or of units, in predictions that exist."""


class EvaluationSettings(PredictionSettings, FigureSettings, UnitSettings):
    """Settings of the evaluation of a run or of a table of predictions."""


class ScoredUnitSettings(Section):
    """What one row of the figures of a scored set is, and how the images of one unit become one row."""

    panel = "Unit of analysis"

    unit: Annotated[ScoredUnit, Option(metavar="UNIT")] = "image"
    """Unit of analysis: image (each frame of a file), file, lesion, breast (a side of a patient), exam (the study) or
    patient."""
    pooling: Annotated[str, AfterValidator(_pooling), Option(metavar="HOW")] = "mean"
    """Combine the images of a unit by ``mean`` (for several files, the mean of the means, as in ``patients.csv``),
    ``max`` (the image with the highest calibrated probability), ``top-K``, such as top-3 (mean of the K highest),
    ``noisy-or`` (one minus the product of one minus each), or ``attention``, if the images were scored with it."""


class ExternalTestSettings(ContaminationSettings, FigureSettings, ScoredUnitSettings):
    """Settings of an external test: a scored set, compared with labels."""

    drop_seen: bool = False
    """Omit patients with an image that was seen in training, instead of an error."""
    calibration: Annotated[Path | None, Option(metavar="FILE")] = None
    """File of ``usvit recalibrate``, which was fitted on other patients; its temperature and thresholds replace those
    of the scores."""
    dataset: Annotated[str | None, Option(metavar="D[+D]")] = None
    """Public data set that the images are from, if the labels do not name it in a column ``dataset``."""


class LabelSettings(ReferenceColumns):
    """How a table of reference labels is read and joined to scored images."""

    panel = "Joining labels to images"

    words: Annotated[
        Mapping[str, str],
        BeforeValidator(_classes_of_words, json_schema_input_type=Mapping[str, str] | Sequence[str]),
        Option("--map", metavar="WORD=CLASS"),
    ] = Field(default_factory=dict)
    """Class of a word in the label column; an empty class omits its images."""
    join: Annotated[str | None, Option(metavar="KIND[=COL]")] = None
    """Column that names the scored image of each row: its kind, or ``KIND=COL`` if the column has another name, such as
    ``path=File``. Kinds: ``item_id``, ``instance_id``, ``study_id`` and ``patient_id`` (pseudonyms), ``path``,
    ``sop_instance_uid``, ``study_instance_uid``, ``original_patient_id``. (default: the first that exists)"""
    key: Annotated[Path | None, Option(metavar="FILE", rare=True)] = None
    """Secret key of the pseudonyms, read to join original ids. (default: in your settings)"""
    input_root: Annotated[str | None, Option(metavar="DIR", rare=True)] = None
    """Prefix to remove from the paths of the label table before matching."""


class LabelTableSettings(LabelSettings, UnitColumns):
    """How a table of reference labels is read, joined to scored images, and grouped into units."""


class LabelTable(LabelTableSettings):
    """A table of reference labels.

    Example:
        >>> LabelTable("labels.xlsx", label="Befund", join="path=Datei").path.name
        'labels.xlsx'
    """

    path: Path
    """CSV, TSV, Parquet or XLSX file."""

    def __init__(self, path: str | Path, **settings: Any):
        super().__init__(**{"path": path, **settings})

    @property
    def label_column(self) -> str:
        return self.label or "label"
