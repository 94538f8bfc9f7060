"""``usvit study``: many runs as one study."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.errors import EXIT_PARTLY


def study(
    file: Annotated[
        str, typer.Argument(help="YAML file of a study, or the name of a built-in study.", metavar="FILE|NAME")
    ],
    out: Annotated[Path | None, typer.Option(help="Folder of the study. (default: studies/<name>)")] = None,
    dataset: Annotated[
        str | None, typer.Option(help="Use this data set instead of the file's, such as phantom.", metavar="D[+D]")
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
    """Run a grid of models x data sets x recipes x seeds, and print a table beside the paper's.

    The same command resumes a stopped study: finished runs are kept, and failed runs are tried again (exit code 3 while
    any run fails).
    """
    from usvit.config import parse_overrides
    from usvit.files import read_json
    from usvit.progress import make_progress
    from usvit.studies import run_study

    with o.resumable():
        outcome = run_study(
            file,
            out=out,
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
            dry_run=dry_run,
            progress=make_progress(),
            command=o.command_line(),
            overrides=parse_overrides(set_ or []),
        )
    if dry_run:
        print("\n".join(run.id for run in outcome.record.runs))
        return
    if json_:
        print(json.dumps(read_json(outcome.path / "study.json"), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        from usvit.studies import terminal

        print(f"{terminal(outcome.record)}\n\npage: {outcome.page}")
    if outcome.failed:
        raise typer.Exit(EXIT_PARTLY)
