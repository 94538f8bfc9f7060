"""``usvit study translation``: a sequence-to-sequence ResMLP beside a Transformer."""

import json

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.upstream.config.translation import TranslationSettings


@takes_options()
def translation(settings: TranslationSettings, json_: o.Json = False) -> None:
    """Train translators on the same pairs, and compare BLEU: a sequence-to-sequence ResMLP, and a Transformer.

    The table is Table 4.5 of the thesis of Touvron (2022). '--scale tiny' generates the pairs and takes a minute.
    """
    from usvit.documents import terminal_text
    from usvit.progress import make_progress
    from usvit.upstream.translation.api import compare_translators
    from usvit.upstream.translation.comparison import translation_document

    found = compare_translators(settings=settings, progress=make_progress(), command=o.command_line())
    if json_:
        print(json.dumps(found.record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(f"{terminal_text(translation_document(found.record))}\n\npage: {found.page}")
