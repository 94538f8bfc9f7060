"""``usvit retest``: how far the scores of a run move when its test images are changed."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.retesting import RetestSettings


@takes_options()
def retest(
    run: Annotated[
        Path, typer.Argument(help="A finished run of usvit cv or train, or one fold of it.", metavar="RUN[/fold-N]")
    ],
    settings: RetestSettings,
    data_root: o.DataRoot = None,
    json_: o.Json = False,
) -> None:
    """Change the test images of a run in controlled ways, and score them again with its networks.

    Gain, depth, crop, compression, resolution and burned-in marks change by stated strengths. For each, the command
    prints bias, limits of agreement and ICC of the scores, and how many decisions flip at each operating point. It
    writes repeatability.json, repeatability.html and changes.csv. For copies of one frame or views of one lesion that
    the predictions already contain, use usvit evaluate --repeatability.
    """
    from usvit.documents import terminal_text
    from usvit.progress import make_progress
    from usvit.reports import repeatability_document
    from usvit.retesting import retest as retest_run

    record, folder = retest_run(run, settings=settings, data_root=o.data_roots(data_root), progress=make_progress())
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(terminal_text(repeatability_document(record)))
    print(f"page: {folder / 'repeatability.html'}")
