"""``usvit plan``: sample sizes of studies."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.planning import AccuracyPlanSettings, ComparisonPlanSettings, ValidationPlanSettings

if TYPE_CHECKING:
    from usvit.records import PlanRecord

app = typer.Typer(
    help="Plan the size of a study: how many patients it needs, and what other sizes give.",
    no_args_is_help=True,
)

_Out = Annotated[Path, typer.Option(help="Folder to write.", metavar="DIR")]


@app.command()
@takes_options()
def validation(settings: ValidationPlanSettings, out: _Out = Path("plan"), json_: o.Json = False) -> None:
    """Plan the external validation of a model, with precise O/E, calibration slope, AUC and net benefit.

    The largest of the sizes counts (Riley et al. 2021, BMJ 2024;384:e074821). Writes plan.html and plan.json.
    """
    from usvit.planning import plan_validation

    record, folder = plan_validation(settings=settings, out=out, command=o.command_line())
    _print(record, folder, json_)


@app.command()
@takes_options()
def accuracy(settings: AccuracyPlanSettings, out: _Out = Path("plan"), json_: o.Json = False) -> None:
    """Plan a study that measures sensitivity and specificity with a stated precision.

    Writes plan.html and plan.json.
    """
    from usvit.planning import plan_accuracy

    record, folder = plan_accuracy(settings=settings, out=out, command=o.command_line())
    _print(record, folder, json_)


@app.command()
@takes_options()
def compare(settings: ComparisonPlanSettings, out: _Out = Path("plan"), json_: o.Json = False) -> None:
    """Plan the comparison of the AUCs of two models on the same images.

    Writes plan.html and plan.json.
    """
    from usvit.planning import plan_comparison

    record, folder = plan_comparison(settings=settings, out=out, command=o.command_line())
    _print(record, folder, json_)


def _print(record: "PlanRecord", folder: Path, as_json: bool) -> None:
    """Print the answer, the size of each criterion and what other sizes give."""
    from usvit.documents import terminal_text
    from usvit.planning import plan_document

    if as_json:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(terminal_text(plan_document(record)))
    print(f"page: {folder / 'plan.html'}")
