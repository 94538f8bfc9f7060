"""``translation.json`` of ``usvit study translation``: translators of one size, trained on the same pairs."""

from typing import ClassVar, Literal

from usvit.estimate import Estimate
from usvit.records.base import Count, FileRecord, Name, Number, Record, Text, key
from usvit.upstream.config.translation import TranslatorName


class TrainedTranslator(Record):
    """One network and its figures on the test pairs."""

    name: Name
    kind: TranslatorName
    depth: Count = key("Layers of the encoder, and of the decoder.", minimum=1)
    parameters: Count
    loss: Number = key("Mean loss of the last tenth of the steps.")
    seconds: Number = key("Time of the training.")
    bleu: Estimate = key("BLEU of all test sentences together, 0 to 100; the interval is a bootstrap over sentences.")
    difference: Estimate | None = key(
        "BLEU minus that of the Transformer, on the same draws; null for the Transformer."
    )
    printed: Number | None = key("BLEU that the thesis prints for English to German (tokenised, newstest2014).")


class TranslationRecord(FileRecord):
    """Comparison of a sequence-to-sequence ResMLP with a Transformer, as 'usvit study translation' writes it."""

    KIND: ClassVar[str] = "translation"
    command: Text
    usvit_version: Name
    scale: Literal["paper", "tiny"]
    generated: bool = key("true: the pairs were generated, and are no language.")
    seed: Count
    steps: Count = key(minimum=1)
    vocabulary: Count = key("Entries of the vocabulary of both languages.")
    n_train: Count = key(minimum=1)
    n_too_long: Count = key("Training pairs that are longer than the context and were left out.")
    n_test: Count = key(minimum=1)
    signature: Text = key("Signature of the score, by sacrebleu.")
    networks: list[TrainedTranslator] = key(minItems=2)
