"""``usvit study``: many runs as one study."""

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.errors import EXIT_PARTLY, UsvitError
from usvit.upstream.cli import study_best, study_shift, study_translation
from usvit.upstream.config.study import StudySettings

if TYPE_CHECKING:
    from usvit.upstream.studies import StudyOutcome


@takes_options()
def study(
    *,
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
    hours: Annotated[
        bool, typer.Option("--hours", help="With list: also plan the runs of each study and estimate their time.")
    ] = False,
    settings: StudySettings,
    data_root: o.DataRoot = None,
    set_: o.Set = None,
    json_: o.Json = False,
) -> None:
    """Run the runs of a table, each after those that it needs, and print the table beside the paper's.

    A row may be a cross-validation, or a chain of pre-training, fine-tuning, transfers, tests and measurements of
    speed. 'usvit study list' shows the printed tables of the papers that are built in. The same command resumes a
    stopped study: finished runs are kept, and failed runs are tried again (exit code 3 while any run fails).

    'usvit study best' picks the winner of a finished study, and 'usvit study shift' leaves one data set or one device
    out: see 'usvit study best --help' and 'usvit study shift --help'. 'usvit study translation' compares translators.
    """
    from usvit.config import parse_overrides
    from usvit.progress import make_progress
    from usvit.upstream.studies import run_study, select_studies

    if names == ["list"]:
        _list(paper, hours, json_)
        return
    if hours:
        raise UsvitError("--hours belongs to 'usvit study list'.")
    if names == ["all"]:
        names = select_studies(paper)
    elif paper is not None:
        raise UsvitError("--paper belongs to 'usvit study list' and 'usvit study all'.")
    out, runs = settings.out, settings.runs
    if several := len(names) > 1:
        out = out or Path("studies")
        runs = runs or out / "runs"
    failed = False
    for name in names:
        with o.resumable():
            outcome = run_study(
                name,
                settings=settings.model_copy(
                    update={"out": _folder_of(out, name, settings.scale) if several and out else out, "runs": runs}
                ),
                data_root=o.data_roots(data_root),
                progress=make_progress(),
                command=o.command_line(),
                overrides=parse_overrides(set_ or []),
            )
        failed = failed or bool(outcome.failed)
        _print(outcome, settings.dry_run, json_)
    if failed:
        raise typer.Exit(EXIT_PARTLY)


def _folder_of(folder: Path, name: str, scale: str) -> Path:
    stem = Path(name).stem
    return folder / (stem if scale == "paper" else f"{stem}-{scale}")


def _print(outcome: "StudyOutcome", dry_run: bool, json_: bool) -> None:
    from usvit.documents import terminal_text
    from usvit.files import read_json
    from usvit.upstream.studies import study_document

    if dry_run:
        print("\n".join(run.id for run in outcome.record.runs))
    elif json_:
        print(json.dumps(read_json(outcome.path / "study.json"), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        text = terminal_text(study_document(outcome.record))
        print(f"{outcome.record.title}\n{text}\n\npage: {outcome.page}")


def _list(paper: str | None, hours: bool, json_: bool) -> None:
    from usvit.documents import Table, numbers, terminal_text
    from usvit.upstream.studies import list_studies

    found = list_studies(paper, with_hours=hours)
    if json_:
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=2, ensure_ascii=False))
        return
    columns = ["rows", "runs", "H200-hours (estimate)"][: 3 if hours else 1]
    rows = [(one.name, one.table or one.title, one.n_rows, one.n_runs, _hours(one.h200_hours)) for one in found]
    table = Table("Studies", ["study", "table", *numbers(*columns)], [row[: 2 + len(columns)] for row in rows])
    print(terminal_text([table]))


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
app.command("translation")(study_translation.translation)
