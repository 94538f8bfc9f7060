"""The command ``usvit test``."""

import json
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_config, takes_options
from usvit.plain_data import Settings
from usvit.upstream.config.test import TestArguments, TestConfig

ClassifierArguments = Annotated[
    list[str] | None,
    typer.Argument(
        help="A run or one of its folds; MODEL (the hub's recommended weights); or MODEL=WEIGHTS, the weights being "
        "hub, hub:UPSTREAM or a file.",
        metavar="[RUN|MODEL[=WEIGHTS]]...",
    ),
]


@takes_options()
@takes_config(TestConfig, "source.path", "model.image_size", "device", "precision", "allow_contaminated")
def test(
    *,
    classifiers: ClassifierArguments = None,
    settings: TestArguments,
    data_root: o.DataRoot = None,
    out: o.UpstreamOut = None,
    overrides: Settings,
    base: o.Base = None,
    json_: o.Json = False,
) -> None:
    """Test fixed classifiers on labelled images, such as ImageNet, ReaL, ImageNet-V2, -A, -R, -Sketch and ObjectNet.

    Nothing is trained. Images are prepared as the weights require. Images that a classifier was trained on are refused,
    dropped with --set leaks=drop, or tested with a warning by --set leaks=report. With several classifiers, or several
    rules of --head, the result has the share of images that each pair decides differently.
    """
    from usvit.documents import terminal_text
    from usvit.files import read_json
    from usvit.progress import make_progress
    from usvit.upstream import api
    from usvit.upstream.reports.test_page import test_document

    with o.resumable():
        outcome = api.test(
            *(classifiers or ()),
            settings=settings,
            data_root=o.data_roots(data_root),
            out=out,
            progress=make_progress(),
            command=o.command_line(),
            overrides=overrides,
        )
    if json_:
        print(json.dumps(read_json(outcome.path / "test.json"), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(terminal_text(test_document(outcome.record, outcome.result)))
        print(f"report: {outcome.path / 'report.html'}")
        print(f"all images: {outcome.path / 'predictions.csv'}; classes: {outcome.path / 'per_class.csv'}")
