"""``usvit study best``: the winner of a study."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o


def best(
    study: Annotated[Path, typer.Argument(help="Folder of a finished study.", metavar="STUDY")],
    figure: Annotated[
        str, typer.Option(help="auc, auc_macro_ovr, accuracy, balanced_accuracy or brier.", metavar="FIGURE")
    ] = "auc",
    ensembles: Annotated[
        int, typer.Option(min=1, help="Let means of the best 2 to K runs compete, too.", metavar="K")
    ] = 1,
    json_: o.Json = False,
) -> None:
    """Pick the winner of a study by the one-standard-error rule, with the figure of a nested choice.

    Each fold chooses on its inner validation images and is measured on its test images, so that the figure includes
    what choosing costs. The command prints the winner and the command that scores with it, and writes best.json.
    """
    from usvit.documents import terminal_text
    from usvit.upstream.studies import best_document, best_of_study

    record = best_of_study(study, figure=figure, ensembles=ensembles)
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(terminal_text(best_document(record)))
