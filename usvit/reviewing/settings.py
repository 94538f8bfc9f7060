"""Settings of a study that ``usvit review`` runs: one YAML file, which is checked as a whole before anything starts.

Relative paths are relative to the folder of the file.
"""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from usvit.config.sections import Section
from usvit.config.settings_file import PathOfFile, load_settings_file
from usvit.reviewing.lexicon import BIRADS, QUESTIONS

Protocol = Literal["triage", "reader_study", "labelling"]
Design = Literal["independent", "sequential", "crossover"]
Stage = Literal["unaided", "aided", "arbitration"]
Kind = Literal["choice", "scale", "birads", "text", "point", "box"]
Reader = Annotated[str, Field(pattern=r"^[^\W_][\w .@-]{0,63}$")]
_Word = Annotated[str, Field(pattern="^[A-Za-z][A-Za-z0-9_]{0,39}$")]
_Line = Annotated[str, Field(max_length=300)]
RESERVED = frozenset(
    [
        "reader",
        "modality",
        "session",
        "position",
        "case_id",
        "image_id",
        "patient_id",
        "truth",
        "label",
        "rating",
        "training",
        "repeat",
        "seconds",
        "shown_at",
        "answered_at",
        "study",
    ]
)
"""Columns of the exported tables that no question may have as its name."""
MODEL = "model"
"""Reader of the model's scores in the exported answers."""


def _choice(given: Any) -> Any:
    return {"value": str(given)} if isinstance(given, str | int | float) and not isinstance(given, bool) else given


class AnswerChoice(Section):
    """One answer that can be chosen."""

    value: Annotated[str, Field(min_length=1, max_length=100)]
    """Word that is exported."""
    label: _Line = ""
    """Text that the reader sees. (default: the value)"""


class QuestionSettings(Section):
    """A question that the reader answers for each case."""

    name: _Word
    """Column of the exported tables."""
    label: _Line = ""
    """The question as the reader sees it. (default: the name)"""
    help: Annotated[str, Field(max_length=1000)] = ""
    """Explanation below the question."""
    kind: Kind = "choice"
    """``choice``: one of ``choices``, or several; ``scale``: a number from ``low`` to ``high``; ``birads``: a BI-RADS
    category, 0 to 6 with 4a, 4b and 4c; ``text``: free text; ``point`` and ``box``: a place in an image."""
    required: bool = True
    """Whether a case can be finished only with an answer."""
    choices: tuple[Annotated[AnswerChoice, BeforeValidator(_choice)], ...] = ()
    """``choice``: the answers, as words or with ``value`` and ``label``."""
    multiple: bool = False
    """``choice``: several answers can be chosen."""
    low: float = 0
    """``scale``: lowest number."""
    high: float = 100
    """``scale``: highest number."""
    step: Annotated[float, Field(gt=0)] = 1
    """``scale``: distance between numbers."""
    stages: tuple[Stage, ...] = ()
    """Stages in which the question is asked. (default: all)"""

    @model_validator(mode="after")
    def _answers(self) -> "QuestionSettings":
        if self.name in RESERVED:
            raise ValueError(f"'{self.name}' is a column of the exported tables: give the question another name")
        if self.kind == "birads":
            object.__setattr__(self, "choices", tuple(AnswerChoice(value=one) for one in BIRADS))
        if self.kind == "choice" and len(self.choices) < 2:
            raise ValueError(f"the question {self.name} has {len(self.choices)} answers: give at least two in choices")
        if twice := _twice(one.value for one in self.choices):
            raise ValueError(f"the question {self.name} has the answer '{twice}' twice")
        if self.kind == "scale" and not self.low < self.high:
            raise ValueError(f"the question {self.name} has low {self.low} and high {self.high}: give the lower first")
        return self

    @property
    def is_rating(self) -> bool:
        """Whether its answers are ordered, so that an ROC curve can be made of them."""
        return self.kind in ("scale", "birads")


class SourceSettings(Section):
    """Where the cases come from: a run, a data set, or images."""

    run: PathOfFile | None = None
    """A run of ``usvit cv`` or ``usvit train``: its test images, with the scores of networks that were not trained on
    them."""
    dataset: str | None = None
    """Name or file of a data card, as for ``usvit cv``."""
    images: tuple[PathOfFile, ...] = ()
    """Folders, files or archives of images or DICOM, as for ``usvit score``."""
    data_root: PathOfFile | None = None
    """Folder of the images of ``run`` or ``dataset``. (default: the environment variable ``USVIT_DATA``)"""
    table: PathOfFile | None = None
    """``dataset: table``: the file that lists the images."""
    scores: PathOfFile | None = None
    """``images``: the folder that ``usvit score`` wrote for them, with the same key of the pseudonyms."""
    labels: PathOfFile | None = None
    """``images``: table (CSV, Excel or Parquet) with the columns ``path``, relative to the folder of the images, and
    ``label``: the reference class."""
    maps: PathOfFile | None = None
    """``run``: the folder that ``usvit explain`` wrote, whose pictures the aided stage shows."""
    positive: str | None = None
    """The positive class. (default: that of the run or of the data set, or ``malignant``)"""
    unit: Literal["image", "lesion", "exam", "patient"] = "image"
    """What a case is; the images of a lesion, exam or patient are shown side by side. Images of a folder do not name
    lesions."""
    cases: Annotated[int, Field(ge=1)] | None = None
    """Number of cases, drawn at random. (default: all)"""
    crop: Literal["tissue", "whole"] = "tissue"
    """Part of a DICOM image that is shown: the tissue region that the header describes, without the text around it, in
    which names may be burned in; or the whole image."""

    @model_validator(mode="after")
    def _one(self) -> "SourceSettings":
        given = [name for name in ("run", "dataset", "images") if getattr(self, name)]
        if len(given) != 1:
            named = ", ".join(given) if given else "none"
            raise ValueError(f"name one of source.run, source.dataset and source.images (given: {named})")
        for name, of in (("scores", "images"), ("labels", "images"), ("maps", "run"), ("table", "dataset")):
            if getattr(self, name) is not None and of not in given:
                raise ValueError(f"source.{name} belongs to source.{of}")
        return self

    @property
    def has_model(self) -> bool:
        """Whether the cases have scores of a model."""
        return self.run is not None or self.scores is not None


class ReviewSettings(Section):
    """A study: its cases, its readers, what they see, and what they are asked."""

    title: Annotated[str, Field(min_length=1, max_length=200)] = "Review"
    """Title of the page."""
    instructions: Annotated[str, Field(max_length=20_000)] = ""
    """Text that the readers see first."""
    protocol: Protocol = "reader_study"
    """``reader_study``: readers rate cases, for ``usvit mrmc``; ``triage``: readers agree or disagree with the model;
    ``labelling``: readers give labels, blinded to each other, and an arbiter decides where they differ."""
    design: Design = "independent"
    """``reader_study``: ``independent``: each case is read without the model; ``sequential``: without and, at once
    afterwards, with the model; ``crossover``: in two sessions, a half of the cases with the model in the first and the
    other half in the second."""
    source: SourceSettings
    """Where the cases come from."""
    readers: Annotated[tuple[Reader, ...], Field(min_length=1, max_length=100)] = ("reader",)
    """Names of the readers; initials or numbers protect their privacy."""
    arbiter: Reader | None = None
    """``labelling``: who decides the cases in which the readers differ."""
    questions: tuple[QuestionSettings, ...] = ()
    """What is asked. (default: the usual questions of the protocol)"""
    rating: _Word | None = None
    """The question whose answers are analysed by ``usvit mrmc``. (default: the last ``scale`` or ``birads``)"""
    label: _Word | None = None
    """``labelling``: the question that gives the label. (default: the first with choices)"""
    training: Annotated[int, Field(ge=0, le=1000)] = 0
    """Number of further cases that each reader reads first, and whose reference class is then shown."""
    masks: Literal["never", "feedback", "aided"] = "feedback"
    """When the outlines of the lesion masks are shown: ``never``; with the reference class of a training case
    (``feedback``); or also with the model (``aided``), although they are a reference, which no model gives."""
    repeats: Annotated[int, Field(ge=0)] = 0
    """Number of cases that each reader reads twice, for the agreement of readers with themselves."""
    washout_days: Annotated[float, Field(ge=0, le=3650)] = 28
    """``crossover``: days after the last reading of the first session before the second one opens."""
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    """Seed of the choice and order of cases."""
    out: PathOfFile | None = None
    """Folder of the answers. (default: ``review-NAME`` beside the file NAME.yaml)"""

    @model_validator(mode="after")
    def _fits(self) -> "ReviewSettings":
        if not self.questions:
            named = [QuestionSettings.model_validate(one) for one in QUESTIONS[self.protocol]]
            object.__setattr__(self, "questions", tuple(named))
        everyone = [*self.readers, *([self.arbiter] if self.arbiter else [])]
        if twice := _twice(one.lower() for one in everyone):
            raise ValueError(f"the reader {twice} is named twice")
        if MODEL in (one.lower() for one in everyone):
            raise ValueError(f"no reader can be named {MODEL}: the exported answers hold the scores of the model so")
        if twice := _twice(one.name for one in self.questions):
            raise ValueError(f"two questions have the name {twice}")
        if self.protocol != "reader_study" and self.design != "independent":
            raise ValueError(f"design {self.design} belongs to protocol reader_study")
        if self.arbiter is not None and (self.protocol != "labelling" or len(self.readers) < 2):
            raise ValueError("an arbiter belongs to protocol labelling with two readers or more")
        if "aided" in self.stages and not self.source.has_model:
            what = "protocol triage" if self.protocol == "triage" else f"design {self.design}"
            raise ValueError(f"{what} shows a model: name source.run, or source.images with source.scores")
        for stage in self.stages:
            if not self.asked(stage):
                raise ValueError(f"no question is asked in the stage {stage}")
        for what in ("rating", "label"):
            name = getattr(self, what)
            if name is not None and name not in [one.name for one in self.questions]:
                raise ValueError(f"{what} names the question {name}, which does not exist")
        if self.rating is not None and not self.question(self.rating).is_rating:
            raise ValueError(f"rating names {self.rating}, which is neither a scale nor birads")
        return self

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Stages of the readers, in their order."""
        if self.protocol == "triage":
            return ("aided",)
        return ("unaided",) if self.design == "independent" else ("unaided", "aided")

    @property
    def rating_question(self) -> QuestionSettings | None:
        """The question that is analysed; None if there is none."""
        if self.rating is not None:
            return self.question(self.rating)
        return next((one for one in reversed(self.questions) if one.is_rating), None)

    @property
    def label_question(self) -> QuestionSettings | None:
        """The question that gives the label; None for another protocol."""
        if self.protocol != "labelling":
            return None
        if self.label is not None:
            return self.question(self.label)
        return next((one for one in self.questions if one.choices and not one.multiple), None)

    def question(self, name: str) -> QuestionSettings:
        """Return the question of this name."""
        return next(one for one in self.questions if one.name == name)

    def asked(self, stage: str) -> tuple[QuestionSettings, ...]:
        """Return the questions of a stage."""
        return tuple(one for one in self.questions if not one.stages or stage in one.stages)


def load_review(path: Path | str) -> ReviewSettings:
    """Read and check the file of a study.

    Raises:
        UsvitError: The file cannot be read, is not YAML, or a setting is unknown or wrong; the text names it.
    """
    path = Path(path)
    settings = load_settings_file(path, ReviewSettings, "study", "All settings: 'usvit docs review-settings'.")
    if settings.out is None:
        return settings.model_copy(update={"out": path.absolute().parent / f"review-{path.stem}"})
    return settings


def _twice(names: Any) -> str | None:
    return next((name for name, n in Counter(names).items() if n > 1), None)
