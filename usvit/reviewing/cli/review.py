"""``usvit review``: serve a study, tell its progress, and export or join its answers."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.errors import UsvitError
from usvit.reviewing.serve import ServeSettings

Study = Annotated[Path, typer.Argument(help="File of the study, YAML.", metavar="STUDY")]


class _ServeByDefault(TyperGroup):
    """A group whose command ``serve`` need not be named: ``usvit review STUDY.yaml``."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands:
            args = ["serve", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0].startswith("-") and args[0] not in ("--help", "-h"):
            args = ["serve", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_ServeByDefault,
    help="Read cases in a browser, blinded or with the model, as a reader study.\n\n'usvit review STUDY' serves it.",
    no_args_is_help=True,
)


@app.command("serve")
@takes_options()
def serve(
    study: Annotated[Path | None, typer.Argument(help="File of the study, YAML.", metavar="STUDY")] = None,
    *,
    settings: ServeSettings,
    demo: Annotated[
        bool,
        typer.Option("--demo", help="Make a study of the embedded phantom in the folder review-demo, and serve it."),
    ] = False,
) -> None:
    """Serve a study to its readers until Ctrl-C; a study that was begun goes on where it was.

    The page is served on this machine alone, unless --host and the files of a certificate are given. See 'usvit docs
    review'.
    """
    from usvit.progress import make_progress
    from usvit.reviewing import review, write_demo

    if demo == (study is not None):
        raise UsvitError("Name the file of a study, or pass --demo.")
    progress = make_progress()
    review(study or write_demo(Path("review-demo"), progress=progress), settings=settings, progress=progress)


@app.command("status")
def status(study: Study, json_: o.Json = False) -> None:
    """Tell how far the readers are."""
    from usvit.reviewing import review_status

    record = review_status(study)
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(f"{record.title}: {record.n_cases} cases, {record.n_images} images")
    for one in record.readers:
        mean = "" if one.mean_seconds is None else f", {one.mean_seconds:.1f} s a reading"
        opens = "" if one.opens_at is None else f", session {one.session} opens at {one.opens_at}"
        print(f"{one.name}: {one.done} of {one.total} readings{mean}{opens}")


@app.command("export")
def export(
    study: Study,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. (default: export, beside the answers)", metavar="DIR")
    ] = None,
) -> None:
    """Write the answers as tables: answers.csv for usvit mrmc, every reading, labels, and a data dictionary."""
    from usvit.reviewing import export_review

    found = export_review(study, out=out)
    print(f"{found.n_readings} readings; {found.n_open} are not finished")
    print(f"written: {found.folder} ({', '.join(found.files)})")
    if "answers.csv" in found.files:
        print(f"analyse: usvit mrmc {found.folder / 'answers.csv'}")


@app.command("merge")
def merge(
    study: Study,
    folders: Annotated[list[Path], typer.Argument(help="Folders of answers of the same study.", metavar="FOLDER...")],
) -> None:
    """Add the readings of other folders of the same study, such as those of another machine."""
    from usvit.reviewing import merge_reviews

    print(f"{merge_reviews(study, folders)} readings added")
