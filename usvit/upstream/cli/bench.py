"""``usvit bench``: measure the speed and memory of networks."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.errors import EXIT_PARTLY
from usvit.upstream.config.bench import BenchmarkSettings


@takes_options()
def bench(
    models: Annotated[
        list[str], typer.Argument(help="Names from 'usvit models list', or timm:NAME.", metavar="MODEL...")
    ],
    settings: BenchmarkSettings,
    out: Annotated[Path | None, typer.Option(help="Folder for bench.json, bench.csv and bench.svg.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="Setting of the model, such as vit.stem=hmlp_bn; can be repeated.", metavar="KEY=VALUE"
        ),
    ] = None,
    json_: o.Json = False,
) -> None:
    """Measure images/s and peak memory of networks with the protocols of the papers.

    Weights are random and images are noise. Each measurement runs in a separate process.
    """
    from usvit.config import parse_overrides
    from usvit.progress import make_progress
    from usvit.upstream.bench import benchmark

    try:
        result = benchmark(
            models,
            settings=settings,
            out=out,
            progress=make_progress(),
            command=o.command_line(),
            overrides=parse_overrides(set_ or []),
        )
    except KeyboardInterrupt:
        if out is not None:
            print(f"Stopped. The measurements so far are in {out}.", file=sys.stderr)
        raise
    if json_:
        print(json.dumps(result.model_dump(exclude_unset=True), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        from usvit.upstream.bench import table

        print(table(result))
        if out is not None:
            print(f"\nwritten: {out / 'bench.json'}, bench.csv, bench.svg")
    if any(row.reported and row.status != "ok" for row in result.results):
        raise typer.Exit(EXIT_PARTLY)
