"""``usvit ensemble``: the mean of runs that have the same folds, as a run of its own."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.evaluation import UnitSettings

if TYPE_CHECKING:
    from usvit.experiments import RunResult
    from usvit.records import MetricsRecord


@takes_options()
def ensemble(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Two or more runs of 'usvit cv' or 'train' with the same folds.", metavar="RUN RUN..."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the ensemble, which is a run directory.", metavar="DIR")],
    settings: UnitSettings,
    weights: Annotated[
        str,
        typer.Option(
            help="equal, or validation for the smallest log loss on the inner validation images of each fold."
        ),
    ] = "equal",
    json_: o.Json = False,
) -> None:
    """Average runs with the same folds: each test image by the networks that were not trained on it.

    The result is a run directory for 'usvit score --model', 'evaluate', 'compare' and 'report'. It refers to its
    members and copies no weights. Its unit (--unit) is by default that of its members, if they have one in common: its
    thresholds of the unit then decide studies or patients in 'usvit score'. See 'usvit docs ensembles'.
    """
    from usvit.experiments import ensemble as ensemble_of_runs
    from usvit.files import read_json

    outcome = ensemble_of_runs(*runs, settings=settings, out=out, weights=weights, command=o.command_line())
    if json_:
        print(json.dumps(read_json(outcome.path / "metrics.json"), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print(outcome)


def _print(outcome: "RunResult[MetricsRecord]") -> None:
    from usvit.documents import Table, numbers, terminal_text
    from usvit.evaluation import load_ensemble
    from usvit.reports import flow_of_folder, headline_document

    record, data = load_ensemble(outcome.path), outcome.record.data
    print(f"{len(record.members)} runs, {data.n_images} images in {data.n_groups} groups, {len(record.folds)} folds")
    folds = numbers(*(f"fold {one.fold}" for one in record.folds))
    rows = [
        (member.name, *(f"{one.weights[k]:.3f}" for one in record.folds)) for k, member in enumerate(record.members)
    ]
    print(terminal_text([Table("Weights", ["Weight", *folds], rows)]))
    print(terminal_text(headline_document(outcome.result, flow_of_folder(outcome.path, outcome.result))))
    print(f"score with it: usvit score --model {outcome.path} --input IMAGES --out SCORES")
    print(f"report: {outcome.path / 'report.html'}")
