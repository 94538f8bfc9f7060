"""The commands ``usvit cv`` and ``usvit train``."""

import itertools
import json
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

import typer

from usvit.cli import options as o
from usvit.errors import EXIT_PARTLY

if TYPE_CHECKING:
    from usvit.experiments import RunResult
    from usvit.records import MetricsRecord


def _command(kind: Literal["cv", "train"], help_text: str) -> Callable[..., None]:
    """Return the command of one kind of run; both take the same options."""

    def command(
        dataset: o.Dataset = None,
        model: o.Model = None,
        recipe: o.Recipe = None,
        weights: o.WeightsOption = None,
        data_root: o.DataRoot = None,
        table: o.Table = None,
        path_col: o.PathCol = None,
        label_col: o.LabelCol = None,
        patient_col: o.PatientCol = None,
        positive: o.Positive = None,
        manifest: o.Manifest = None,
        keep_list: o.KeepList = None,
        folds: o.Folds = None,
        split_by: o.SplitBy = None,
        repeats: o.Repeats = None,
        out: o.Out = None,
        seed: o.Seed = None,
        device: o.DeviceOption = None,
        precision: o.Precision = None,
        workers: o.Workers = None,
        skip_bad: o.SkipBad = False,
        keep_conflicts: o.KeepConflicts = False,
        keep_ids: o.KeepIds = False,
        allow_contaminated: o.AllowContaminated = False,
        set_: o.Set = None,
        json_: o.Json = False,
    ) -> None:
        from usvit import experiments
        from usvit.config import merge, parse_overrides
        from usvit.files import read_json
        from usvit.progress import make_progress

        options = o.given(
            data__keep_list=keep_list and str(keep_list),
            split__unit=split_by,
            split__repeats=repeats,
            data__skip_bad=skip_bad,
            data__keep_label_conflicts=keep_conflicts,
            data__keep_ids=keep_ids,
            allow_contaminated=allow_contaminated,
            device=device,
            precision=precision,
            workers=workers,
        )
        own = o.own_table(table, path_col, label_col, patient_col, positive)
        overrides = merge(merge(options, own), parse_overrides(set_ or []))
        with o.resumable():
            outcome = (experiments.cross_validate if kind == "cv" else experiments.train)(
                dataset if manifest else o.named_dataset(dataset, own),
                model,
                recipe=recipe,
                weights=weights,
                manifest=manifest,
                folds=folds,
                data_root=o.data_roots(data_root),
                out=out,
                seed=seed,
                progress=make_progress(),
                command=o.command_line(),
                overrides=overrides,
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
    from usvit.reports import headline_document

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
    print(terminal_text(headline_document(outcome.result)))
    print(f"report: {outcome.path / 'report.html'}")
