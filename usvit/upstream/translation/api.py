"""The public function of a comparison of translators. PyTorch is imported after the arguments have been checked."""

from typing import TYPE_CHECKING

from usvit.config.keywords import takes_settings
from usvit.progress import Progress, shown_progress
from usvit.upstream.config.translation import TranslationSettings

if TYPE_CHECKING:
    from usvit.upstream.records.translation import TranslationRecord
    from usvit.upstream.records.written_record import WrittenRecord


@takes_settings
def compare_translators(
    *,
    settings: TranslationSettings,
    progress: Progress | None = None,
    command: str = "usvit.compare_translators",
) -> "WrittenRecord[TranslationRecord]":
    """Train a sequence-to-sequence ResMLP and a Transformer of its size on the same pairs, and compare their BLEU.

    Source: Touvron (2022), thesis, section 4.3.5 and Table 4.5. The vocabulary is learnt from the training pairs, in
    lower case. Translations are searched by a beam of 4, and scored by sacrebleu.

    Args:
        settings: See ``TranslationSettings``.
        progress: Where progress is shown. Default: a bar in a terminal, lines in a notebook.
        command: What the user called, for the record.

    Returns:
        The content of ``translation.json`` (``record``), the folder (``path``) and the page.

    Raises:
        UsvitError: sacrebleu is missing, or pairs, device or folder cannot be used.
        LeakageError: A test sentence is a training sentence, too.

    Example:
        >>> import usvit
        >>> found = usvit.compare_translators(scale="tiny", steps=2, device="cpu", out="translation")
        >>> [one.name for one in found.record.networks]
        ['resmlp-2', 'transformer-2']
    """
    from usvit.upstream.translation.comparison import compare

    return compare(settings, shown_progress(progress), command)
