"""``protocol.json`` of ``usvit review export``: what a study asked whom, and how, without any answer or case."""

from typing import ClassVar

from usvit.records.base import Count, FileRecord, Name, Number, Record, Text, key


class ProtocolQuestion(Record):
    """A question that the readers were asked."""

    name: Name
    asked: Text = key("The question as the reader saw it.")
    kind: Name
    answers: Text = key("Words or range of the answers; empty for texts and places.")


class StudyProtocol(FileRecord):
    """The protocol of a study that 'usvit review' ran; it fills the checklist of 'usvit mrmc'."""

    KIND: ClassVar[str] = "protocol"
    title: Text
    protocol: Name
    design: Name
    instructions: Text
    stages: list[Name]
    n_readers: Count
    unit: Name = key("What a case is.")
    drawn: Count | None = key("Number of cases that were drawn at random; null: all.")
    training: Count = key("Training cases of each reader.")
    repeats: Count
    washout_days: Number | None = key("Null without a second session.")
    masks: Name = key("When outlines of lesions were shown.")
    positive: Name
    model: Text = key("Empty without a model.")
    threshold: Number | None = key("Of the model's decision on its score.")
    questions: list[ProtocolQuestion]
    rating: Name | None = key("Question whose answers are the ratings.")
