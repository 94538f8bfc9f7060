"""``usvit study``: many runs as one study."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from usvit.cli import options as o
from usvit.errors import EXIT_PARTLY, UsvitError
from usvit.upstream.cli import study_best, study_shift

if TYPE_CHECKING:
    from usvit.upstream.studies import StudyOutcome


def study(
    names: Annotated[
        list[str],
        typer.Argument(
            help="YAML file of a study, or names of built-in studies; 'list' lists them, 'all' stands for all of them.",
            metavar="FILE|NAME...|list|all",
        ),
    ],
    paper: Annotated[
        str | None, typer.Option(help="With list and all: only the studies of this paper.", metavar="PAPER")
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            help="paper, or tiny: the same runs with tiny networks on generated images, which shows that the "
            "study works, in minutes."
        ),
    ] = "paper",
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the study; with several, the folder of their folders. (default: studies/<name>)"),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the runs. Studies with the same folder share equal runs. (default: runs, in the folder of "
            "the study; with several studies, in the folder of their folders)"
        ),
    ] = None,
    dataset: Annotated[
        str | None,
        typer.Option(
            help="Use this data set in cross-validations and hold-outs instead of the file's, such as phantom.",
            metavar="D[+D]",
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of seeds, counted up from the file's first seed. The table shows their spread."
        ),
    ] = None,
    engine: Annotated[
        str, typer.Option(help="sequential, or ray, which starts as many runs at once as CPUs and GPUs allow.")
    ] = "sequential",
    address: Annotated[
        str | None,
        typer.Option(
            help="Address of the Ray cluster: HOST:PORT, or auto. (default: a new cluster on this machine)", metavar="A"
        ),
    ] = None,
    cpus: Annotated[
        int | None, typer.Option(min=1, help="Number of CPU threads of each run. (default: PyTorch's choice)")
    ] = None,
    gpus: Annotated[
        float | None, typer.Option(min=0, help="Number of GPUs of each run, with Ray. (default: 1 if there are any)")
    ] = None,
    data_root: o.DataRoot = None,
    device: o.DeviceOption = None,
    precision: o.Precision = None,
    workers: o.Workers = None,
    set_: o.Set = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and list the runs without starting them.")
    ] = False,
    json_: o.Json = False,
) -> None:
    """Run the runs of a table, each after those that it needs, and print the table beside the paper's.

    A row may be a cross-validation, or a chain of pre-training, fine-tuning, transfers, tests and measurements of
    speed. 'usvit study list' shows the printed tables of the papers that are built in. The same command resumes a
    stopped study: finished runs are kept, and failed runs are tried again (exit code 3 while any run fails).

    'usvit study best' picks the winner of a finished study, and 'usvit study shift' leaves one data set or one device
    out: see 'usvit study best --help' and 'usvit study shift --help'.
    """
    from usvit.config import parse_overrides
    from usvit.progress import make_progress
    from usvit.upstream.studies import run_study, select_studies

    if names == ["list"]:
        _list(paper, json_)
        return
    if names == ["all"]:
        names = select_studies(paper)
    elif paper is not None:
        raise UsvitError("--paper belongs to 'usvit study list' and 'usvit study all'.")
    several = len(names) > 1
    folder = (out or Path("studies")) if several else out
    failed = False
    for name in names:
        with o.resumable():
            outcome = run_study(
                name,
                out=_folder_of(folder, name, scale) if several and folder is not None else folder,
                runs=runs or (folder / "runs" if several and folder is not None else None),
                dataset=dataset,
                seeds=seeds,
                engine=engine,
                address=address,
                cpus=cpus,
                gpus=gpus,
                data_root=o.data_roots(data_root),
                device=device,
                precision=precision,
                workers=workers,
                scale=scale,
                dry_run=dry_run,
                progress=make_progress(),
                command=o.command_line(),
                overrides=parse_overrides(set_ or []),
            )
        failed = failed or bool(outcome.failed)
        _print(outcome, dry_run, json_)
    if failed:
        raise typer.Exit(EXIT_PARTLY)


def _folder_of(folder: Path, name: str, scale: str) -> Path:
    stem = Path(name).stem
    return folder / (stem if scale == "paper" else f"{stem}-{scale}")


def _print(outcome: "StudyOutcome", dry_run: bool, json_: bool) -> None:
    from usvit.files import read_json
    from usvit.upstream.studies import terminal

    if dry_run:
        print("\n".join(run.id for run in outcome.record.runs))
    elif json_:
        print(json.dumps(read_json(outcome.path / "study.json"), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(f"{terminal(outcome.record)}\n\npage: {outcome.page}")


def _list(paper: str | None, json_: bool) -> None:
    from usvit.terminal import aligned
    from usvit.upstream.studies import list_studies

    found = list_studies(paper)
    if json_:
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=2, ensure_ascii=False))
        return
    lines = [[one.name, one.table, str(one.n_rows), str(one.n_runs), _hours(one.h200_hours)] for one in found]
    print(aligned(["study", "table", "rows", "runs", "H200-hours (estimate)"], lines))


def _hours(value: float | None) -> str:
    return "not known" if value is None else f"{value:,.1f}" if value >= 0.1 else "< 0.1"


DEFAULT = "run"


class StudyGroup(TyperGroup):
    """``usvit study FILE|NAME...`` means ``usvit study run FILE|NAME...``; other first words are commands."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # the type of Typer's contexts is private
        return super().parse_args(ctx, args if args and args[0] in self.commands else [DEFAULT, *args])


app = typer.Typer(cls=StudyGroup, help="Run the runs of a table, pick the best, or measure shift.")
app.command(DEFAULT)(study)
app.command("best")(study_best.best)
app.command("shift")(study_shift.shift)
