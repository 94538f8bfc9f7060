"""``usvit bench``: measure the speed and memory of networks."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.errors import EXIT_PARTLY


def bench(
    models: Annotated[
        list[str], typer.Argument(help="Names from 'usvit models list', or timm:NAME.", metavar="MODEL...")
    ],
    protocol: Annotated[
        str,
        typer.Option(
            help="fixed: one batch size (32, or --batch). Protocols of the papers: deit (largest batch that fits, 30 "
            "runs), resmlp (batch size 32), deit3 (batch size 256, mixed precision), sweep (doubles the batch size "
            "while speed grows), latency (batch sizes 1 to 64; parallel branches sequentially and at once).",
            metavar="NAME",
        ),
    ] = "fixed",
    mode: Annotated[
        str | None,
        typer.Option(help="Measure train, infer or both. (default: infer; both with fixed)", metavar="MODE"),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(min=1, help="Batch size, or first batch size of a search. (default: the protocol's)")
    ] = None,
    max_batch: Annotated[
        int | None, typer.Option(min=1, help="Largest batch size of a search. (default: 4096; latency: 64)")
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Number of timed steps; the median is reported.")] = 30,
    seconds: Annotated[
        float, typer.Option(min=1, help="Time limit of each measurement, without building and compiling the model.")
    ] = 60.0,
    image_size: Annotated[
        int | None, typer.Option(help="Side of the input in pixels. (default: the network's)")
    ] = None,
    classes: Annotated[int, typer.Option(min=1, help="Number of classes; 1000 in the papers.")] = 1000,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE")] = "auto",
    precision: Annotated[
        str | None,
        typer.Option(help="auto, fp32, bf16 or both. (default: the protocol's: deit3 bf16, fixed auto, else fp32)"),
    ] = None,
    compile_: Annotated[
        bool, typer.Option("--compile", help="Use torch.compile; its time is reported separately.")
    ] = False,
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Use the memory layout NHWC.")] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Number of CPU threads. (default: PyTorch's choice)")
    ] = None,
    memory_gb: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Limit of the memory; 16 simulates a GPU with 16 GB. (default: nearly all free memory)"
        ),
    ] = None,
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
            protocol=protocol,
            mode=mode,
            batch=batch,
            max_batch=max_batch,
            repeats=repeats,
            seconds=seconds,
            image_size=image_size,
            classes=classes,
            device=device,
            precision=precision,
            compile=compile_,
            channels_last=channels_last,
            threads=threads,
            memory_gb=memory_gb,
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
