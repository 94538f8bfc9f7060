"""The commands ``usvit cv`` and ``usvit train``."""

import itertools
import json
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_config, takes_options
from usvit.config import RunConfig
from usvit.config.arguments import RunArguments
from usvit.config.own_table import TableSettings
from usvit.errors import EXIT_PARTLY
from usvit.plain_data import Settings

if TYPE_CHECKING:
    from usvit.experiments import RunResult
    from usvit.records import MetricsRecord


def _command(kind: Literal["cv", "train"], help_text: str) -> Callable[..., None]:
    """Return the command of one kind of run; both take the same options."""

    @takes_options(without=["seed"])
    @takes_config(
        RunConfig,
        "split.unit",
        "split.repeats",
        "units.unit",
        "units.pooling",
        "units.unit_labels",
        "seed",
        "device",
        "precision",
        "workers",
        "data.keep_list",
        "data.skip_bad",
        "data.keep_label_conflicts",
        "data.keep_ids",
        "allow_contaminated",
    )
    def command(
        *,
        dataset: o.Dataset = None,
        model: o.Model = None,
        settings: RunArguments,
        data_root: o.DataRoot = None,
        own: TableSettings,
        out: o.Out = None,
        overrides: Settings,
        json_: o.Json = False,
    ) -> None:
        from usvit import experiments
        from usvit.config import merge
        from usvit.files import read_json
        from usvit.progress import make_progress

        with o.resumable():
            outcome = (experiments.cross_validate if kind == "cv" else experiments.train)(
                dataset if settings.manifest else own.dataset(dataset),
                model,
                settings=settings,
                data_root=o.data_roots(data_root),
                out=out,
                progress=make_progress(),
                command=o.command_line(),
                overrides=merge({"data": own.data()}, overrides),
            )
        if json_:
            print(json.dumps(read_json(outcome.path / "metrics.json"), indent=2, ensure_ascii=False, allow_nan=False))
        else:
            _print(outcome)
        if outcome.record.data.skipped:
            raise typer.Exit(EXIT_PARTLY)

    command.__doc__ = help_text
    return command


cv = _command(
    "cv",
    """Cross-validate a model: make folds that separate patients and near-duplicates, train, and report metrics.

    Without options, it runs the demo on the embedded phantom. The same command resumes an interrupted run.
    """,
)
train = _command("train", "Train once on a 70/15/15 hold-out; files and report are the same as those of 'usvit cv'.")


def _print(outcome: "RunResult[MetricsRecord]") -> None:
    from usvit.documents import terminal_text
    from usvit.reports import flow_of_folder, headline_document

    reason_of = attrgetter("reason")
    data, folds = outcome.record.data, outcome.record.folds
    for reason, images in itertools.groupby(sorted(data.excluded or [], key=reason_of), reason_of):
        names = [f"{image.image_id} of {image.dataset}" for image in images]
        print(f"left out: {names[0] if len(names) == 1 else f'{len(names)} images'}: {reason}")
    for skipped in data.skipped or []:
        print(f"could not be read: {skipped.path}: {skipped.reason}")
    if folds.unit == "image":
        print(f"LEAKING SPLIT (by image, as requested): {folds.leaking_groups} groups are in two splits of a fold.")
    print(f"{data.n_images} images in {data.n_groups} groups; test predictions: {outcome.result.n_images}")
    print(terminal_text(headline_document(outcome.result, flow_of_folder(outcome.path, outcome.result))))
    print(f"report: {outcome.path / 'report.html'}")
