"""The command ``usvit test``."""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from usvit.cli import options as o
from usvit.cli.printing import print_contamination, with_interval
from usvit.cli.settings import takes_config, takes_options
from usvit.upstream.config.test import TestArguments, TestConfig

if TYPE_CHECKING:
    from usvit.experiments import RunResult
    from usvit.upstream.records.test import TestRecord

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
    overrides: dict[str, Any],
    base: o.Base = None,
    json_: o.Json = False,
) -> None:
    """Test fixed classifiers on labelled images, such as ImageNet, ReaL, ImageNet-V2, -A, -R, -Sketch and ObjectNet.

    Nothing is trained. Images are prepared as the weights require. Images that a classifier was trained on are refused,
    dropped with --set leaks=drop, or tested with a warning by --set leaks=report. With several classifiers, or several
    rules of --head, the result has the share of images that each pair decides differently.
    """
    from usvit.files import read_json
    from usvit.progress import make_progress
    from usvit.upstream import api

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
        _print(outcome)


def _print(outcome: "RunResult[TestRecord]") -> None:
    result = outcome.result
    print_contamination(result.contamination)
    for one in result.sources:
        told = [f"{one.n_images:,} images", f"{one.n_classes_with_images:,} of {one.n_classes:,} classes"]
        told += [f"{one.n_groups:,} patients or clusters"] if one.n_groups != one.n_images else []
        told += [f"{one.left_out:,} left out, which have no usable label"] if one.left_out else []
        told += [f"{one.seen:,} dropped, which a classifier was trained on"] if one.seen and one.seen_dropped else []
        print(f"{one.source}: {', '.join(told)}")
        if one.seen and not one.seen_dropped:
            print(f"Warning: a classifier was trained on {one.seen:,} of these images, or on others of their groups.")
    for classifier, known in result.sources[0].leaks.items():
        print(f"training images of {classifier}: {known}")
    width = 2 + max(len("classifier"), *(len(row.classifier) for row in result.results))
    place = 2 + max(len("source"), *(len(row.source) for row in result.results))
    print(f"{'classifier':{width}}{'source':{place}}{'top-1 [95 % interval]':24}{'top-5':8}{'classes':9}{'NLL':8}ECE")
    for row in result.results:
        top5 = "-" if row.top5 is None else f"{row.top5.value:.3f}"
        print(
            f"{row.classifier:{width}}{row.source:{place}}{with_interval(row.top1):24}{top5:8}"
            f"{row.mean_class_accuracy:<9.3f}{row.nll:<8.3f}{row.ece.value:.3f}"
        )
    for matrix in result.disagreement:
        print(f"different decisions on {matrix.source}:")
        name_width = 2 + max(map(len, matrix.names))
        for at, (name, shares) in enumerate(zip(matrix.names, matrix.share, strict=True)):
            print(f"  {name:{name_width}}" + "  ".join(f"{share:.3f}" for share in shares[: at + 1]))
    print(f"report: {outcome.path / 'report.html'}")
    print(f"all images: {outcome.path / 'predictions.csv'}; classes: {outcome.path / 'per_class.csv'}")
