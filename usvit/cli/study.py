"""``usvit study``: many runs as one study."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.errors import EXIT_PARTLY, UsvitError


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
    from usvit.studies.specification import load_study

    config = load_study(file)
    overrides = parse_overrides(set_ or [])
    if engine not in ("sequential", "ray"):
        raise UsvitError(f"Unknown engine '{engine}'. Known: sequential, ray.")
    from usvit.progress import make_progress
    from usvit.studies.engines import make_engine
    from usvit.studies.execution import run_study  # this import takes seconds
    from usvit.studies.formatters import terminal
    from usvit.studies.plan import make_plan

    plan = make_plan(
        config,
        dataset=dataset,
        n_seeds=seeds,
        options=o.given(device=device, precision=precision, workers=workers),
        overrides=overrides,
        changed=tuple(set_ or []),
    )
    if dry_run:
        print("\n".join(run.id for run in plan.runs))
        return
    chosen = make_engine(
        engine,
        address=address,
        cpus=cpus or config.resources.cpus,
        gpus=gpus if gpus is not None or engine == "sequential" else config.resources.gpus,
        device=device,
    )
    with o.resumable():
        outcome = run_study(
            plan,
            engine=chosen,
            roots=o.data_roots(data_root),
            out=out,
            command=o.command_line(),
            progress=make_progress(),
        )
    if json_:
        print(json.dumps(outcome.record, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(f"{terminal(outcome.record)}\n\npage: {outcome.page}")
    if outcome.failed:
        raise typer.Exit(EXIT_PARTLY)
