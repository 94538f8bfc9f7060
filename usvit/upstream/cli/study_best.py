"""``usvit study best``: the winner of a study."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.upstream.config.study import ChoiceSettings


@takes_options()
def best(
    study: Annotated[Path, typer.Argument(help="Folder of a finished study.", metavar="STUDY")],
    settings: ChoiceSettings,
    json_: o.Json = False,
) -> None:
    """Pick the winner of a study by the one-standard-error rule, with the figure of a nested choice.

    Each fold chooses on its inner validation images and is measured on its test images, so that the figure includes
    what choosing costs. The command prints the winner and the command that scores with it, and writes best.json.
    """
    from usvit.documents import terminal_text
    from usvit.upstream.studies import best_document, best_of_study

    record = best_of_study(study, settings=settings)
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(terminal_text(best_document(record)))
