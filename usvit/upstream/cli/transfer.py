"""The command ``usvit transfer``."""

import json
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.printing import go_on
from usvit.cli.settings import takes_config, takes_options
from usvit.plain_data import Settings
from usvit.upstream.config.transfer import TransferArguments, TransferConfig

if TYPE_CHECKING:
    from usvit.experiments import RunResult
    from usvit.upstream.records.training import TransferRecord

HowOption = Annotated[
    str | None,
    typer.Option(
        help="fewshot, linear, knn, retrieval or text on frozen features; segment; or finetune. (default: the "
        "recipe's, else fewshot)",
        metavar="HOW",
    ),
]
WeightsOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--weights",
        help="A run of 'usvit pretrain', hub[:UPSTREAM], package, scratch or a file. If repeated, the best is chosen.",
        metavar="W",
    ),
]


@takes_options(without=["seed"])
@takes_config(
    TransferConfig,
    "source.path",
    "model.tune",
    "model.image_size",
    "seed",
    "device",
    "precision",
    "workers",
    "allow_contaminated",
)
def transfer(
    *,
    how: HowOption = None,
    weights: WeightsOptions = None,
    settings: TransferArguments,
    data_root: o.DataRoot = None,
    out: o.UpstreamOut = None,
    overrides: Settings,
    json_: o.Json = False,
) -> None:
    """Transfer upstream weights to other images by a few-shot, linear or nearest-neighbour probe, or by fine-tuning.

    Hyperparameters are chosen on validation images; the test images are used once. With several --weights, one network
    is chosen by its upstream validation, and one by adapting all; the output shows both and the difference. Retrieval
    without --source searches a run's training images with its validation images.
    """
    from usvit.files import read_json
    from usvit.progress import make_progress
    from usvit.upstream import api

    with o.resumable():
        outcome = api.transfer(
            how,
            weights,
            settings=settings,
            data_root=o.data_roots(data_root),
            out=out,
            progress=make_progress(),
            command=o.command_line(),
            overrides=overrides,
        )
    if json_:
        print(json.dumps(read_json(outcome.path / "transfer.json"), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print(outcome)


def _print(outcome: "RunResult[TransferRecord]") -> None:
    from usvit.documents import terminal_text
    from usvit.upstream.reports.training_page import transfer_document

    result, record = outcome.result, outcome.record
    print(terminal_text(transfer_document(record, result)))
    print(f"report: {outcome.path / 'report.html'}")
    print(f"all results: {outcome.path / 'results.csv'}")
    if result.predictions is not None:
        print(f"more figures: usvit evaluate {shlex.quote(str(outcome.path / result.predictions))}")
    following = go_on(outcome.path, record)
    if result.model == "unet":  # it is no network of the zoo
        following = shlex.join(
            ["usvit", "score", "--model", "RUN", "--input", "IMAGES", "--seg-from", str(outcome.path)]
        )
    print(f"weights: {outcome.path}\nnext: {following}")
    if (record.config.source or {}).get("name") == "data" and result.how in ("fewshot", "linear"):
        name = record.config.data.dataset if record.config.data else "the data set"
        print(f"For folds of {name}, start from the upstream weights: these weights were trained on its images.")
