"""The command ``usvit transfer``."""

import json
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from usvit.cli import options as o
from usvit.cli.printing import go_on, print_contamination, with_interval
from usvit.cli.settings import takes_config, takes_options
from usvit.upstream.config.transfer import TransferArguments, TransferConfig

if TYPE_CHECKING:
    from usvit.experiments import RunResult
    from usvit.upstream.records.training import Recommended, TransferRecord

HowOption = Annotated[
    str | None,
    typer.Option(
        help="fewshot, linear, knn or retrieval on frozen features; or finetune. (default: the recipe's, else fewshot)",
        metavar="HOW",
    ),
]
WeightsOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--weights",
        help="A run of 'usvit pretrain', hub, hub:UPSTREAM, scratch or a file. If repeated, the best is chosen.",
        metavar="W",
    ),
]
FEW = 50
"""With fewer validation images than this, the choice between several settings depends mostly on chance."""


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
    overrides: dict[str, Any],
    json_: o.Json = False,
    list_recipes: o.ListRecipes = False,
) -> None:
    """Transfer upstream weights to other images by a few-shot, linear or nearest-neighbour probe, or by fine-tuning.

    Hyperparameters are chosen on validation images; the test images are used once. With several --weights, one network
    is chosen by its upstream validation, and one by adapting all; the output shows both and the difference. Retrieval
    without --source searches a run's training images with its validation images.
    """
    if list_recipes:
        return _print_recipes()
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
    return None


def _print(outcome: "RunResult[TransferRecord]") -> None:
    result = outcome.result
    images, of_card = result.images, (outcome.record.config.source or {}).get("name") == "data"
    print_contamination(result.contamination)
    dropped = {why: count for why, count in result.dropped.model_dump().items() if count}
    print(
        f"{images.source}: {len(images.classes)} classes; {images.n_train} training, {images.n_val} "
        f"validation and {images.n_test} test images"
    )
    for why, count in dropped.items():
        print(f"left out of the test: {count} images ({why.replace('_', ' ')})")
    if result.how in ("knn", "retrieval"):
        print("chosen on: the training images, by leave-one-out")
    elif images.chosen_on != "none":
        print(f"chosen on: {images.chosen_on}")
        if images.n_val < FEW:
            advice = " Set source.val to a split, or source.val_share to a larger share." if not of_card else ""
            print(f"Warning: {images.n_val} images are too few for a reliable choice.{advice}")
    if result.weights.source == "scratch":
        print("Warning: the initial weights are random (scratch). Pass pre-trained weights with --weights.")
    if result.recommended is not None:
        _print_recommended(result.recommended)
    print(f"{'':30}{'test accuracy [95 % interval]':32}mean over classes")
    for line in result.summary:
        precision = line.intervals.mean_average_precision if line.intervals else None
        tail = "" if precision is None else f"   mAP {with_interval(precision)}"
        print(f"{line.name[:29]:30}{with_interval(line.accuracy):32}{line.mean_class_accuracy:.3f}{tail}")
        if line.coarse_accuracy is not None:
            of_coarse = [("conditioned on the predicted coarse class", line.map_conditioned)]
            of_coarse += [("on the true one", line.map_oracle)]
            told = ", ".join(f"{what} {'-' if value is None else f'{value:.3f}'}" for what, value in of_coarse)
            print(f"  mAP {told}; accuracy of the coarse class {line.coarse_accuracy:.3f}")
    last = result.summary[-1]
    if last.first_draw is not None:
        print(f"These intervals cover {last.accuracy.covers or 'the draw of the training images alone'}.")
        print(f"Interval over test images, for the first draw: {last.name} {with_interval(last.first_draw)}")
    print(f"report: {outcome.path / 'report.html'}")
    print(f"all results: {outcome.path / 'results.csv'}")
    if result.predictions is not None:
        print(f"more figures: usvit evaluate {shlex.quote(str(outcome.path / result.predictions))}")
    print(f"weights: {outcome.path}\nnext: {go_on(outcome.path, outcome.record)}")
    if of_card and result.how in ("fewshot", "linear"):
        data = outcome.record.config.data
        name = data.dataset if data else "the data set"
        print(f"For folds of {name}, start from the upstream weights: these weights were trained on its images.")


def _print_recommended(found: "Recommended") -> None:
    width = max(len("upstream network"), *(len(one.name) for one in found.candidates)) + 2
    print(f"{'upstream network':{width}}{'upstream val':>14}{'downstream val':>16}{'test [95 % interval]':>28}")
    for one in found.candidates:
        values = [one.upstream_val_accuracy, one.downstream_val_accuracy]
        known = ["-" if value is None else f"{value:.3f}" for value in values]
        print(f"{one.name:{width}}{known[0]:>14}{known[1]:>16}{with_interval(one.test):>28}")
    for way, choice in (("upstream validation", found.by_upstream_validation), ("adapting all", found.by_adapting_all)):
        print(f"by {way}: {choice.name or f'not known: {choice.reason}'}")
    if found.difference is not None:
        print(f"difference on the test: {with_interval(found.difference.accuracy)}")


def _print_recipes() -> None:
    from usvit.config import recipe_names
    from usvit.resources import configs_dir

    for name in recipe_names("transfer"):
        first = (configs_dir() / "transfer" / f"{name}.yaml").read_text(encoding="utf-8").partition("\n")[0]
        print(f"{name:24} {first.lstrip('# ')}")
