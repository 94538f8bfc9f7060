"""What the server of ``usvit review`` tells its page; docs/reference/review-page.md lists the same keys."""

from typing import Any, Literal

from usvit.records.base import Count, Name, Number, Record, Share, Text, key
from usvit.reviewing.records import ReaderProgress
from usvit.reviewing.settings import Kind, ReviewSettings, Stage


class StudyWords(Record):
    """What a study says about itself."""

    title: Text
    protocol: Name
    instructions: Text


class ReadingCount(Record):
    """How far a reader is."""

    done: Count
    total: Count
    session: Count
    sessions: Count


class ImageAhead(Record):
    """An image that the page may fetch in advance."""

    id: Name
    frames: Count


class TaskImage(ImageAhead):
    """An image of the case."""

    width: Count
    height: Count
    spacing_mm: Number | None
    label: Text
    frame_ms: Number | None = key("Of a loop.")


class OfferedAnswer(Record):
    """An answer that can be chosen."""

    value: Text
    label: Text


class AskedQuestion(Record):
    """A question as the page asks it."""

    name: Name
    label: Text
    help: Text
    kind: Kind
    required: bool
    choices: list[OfferedAnswer]
    multiple: bool
    low: Number
    high: Number
    step: Number


class EarlierAnswers(Record):
    """Answers of the stage before, or of each reader for the arbiter."""

    label: Text
    answers: dict[str, Any]


class PagePicture(Record):
    """A picture over or beside an image."""

    image: Count = key("Position of the image in the case.")
    url: Text
    label: Text


class ModelAid(Record):
    """What the model says about the case."""

    model: Text
    score: Share
    positive: Name
    decision: Text | None
    threshold: Number | None
    pictures: list[PagePicture]


class CaseFeedback(Record):
    """What is shown after a training case."""

    truth: Text = key("The reference class.")


class ReadingTask(Record):
    """The case that is read now."""

    id: Count
    number: Count
    stage: Stage
    stage_label: Text
    training: bool
    phase: Literal["answer", "feedback"]
    images: list[TaskImage]
    questions: list[AskedQuestion]
    answers: dict[str, Any]
    earlier: list[EarlierAnswers]
    aid: ModelAid | None
    masks: list[PagePicture]
    feedback: CaseFeedback | None
    active_seconds: Number


class ReaderState(Record):
    """The state for a reader."""

    role: Literal["reader"] = "reader"
    study: StudyWords
    reader: Name
    progress: ReadingCount
    task: ReadingTask | None
    finished: bool
    opens_at: Name | None
    can_undo: bool
    upcoming: list[ImageAhead]


class HostReader(ReaderProgress):
    """A reader, for the host."""

    link: Text


class HostState(Record):
    """The state for who runs the study."""

    role: Literal["host"] = "host"
    study: StudyWords
    readers: list[HostReader]
    export: Text


def study_words(settings: ReviewSettings) -> StudyWords:
    """Return what a study says about itself."""
    return StudyWords(title=settings.title, protocol=settings.protocol, instructions=settings.instructions)
