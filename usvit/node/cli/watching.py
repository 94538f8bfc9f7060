"""``usvit node status`` and ``usvit node doctor``."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o

if TYPE_CHECKING:
    from usvit.node.records import NodeStatusRecord

Config = Annotated[Path, typer.Argument(help="Configuration of the node, a YAML file.", metavar="CONFIG")]


def status(config: Config, json_: o.Json = False) -> None:
    """Show what a node holds and does: counts, queues, throughput, disk and the last problems.

    It shows no name, id or UID of a patient; studies appear by their pseudonyms.
    """
    from usvit.node import node_status

    found = node_status(config)
    if json_:
        print(json.dumps(found.content(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print_status(found)


def doctor(
    config: Config,
    models: Annotated[bool, typer.Option("--models/--no-models", help="Load the models, too.")] = True,
    peers: Annotated[bool, typer.Option("--peers/--no-peers", help="Ask the peers, too.")] = True,
    json_: o.Json = False,
) -> None:
    """Check a configuration against this machine and its peers, and say what is wrong, one line each.

    It checks ports, AE titles, peers (by C-ECHO or a DICOMweb query), disk, permissions, models, keys, certificates,
    clock and rules. It changes nothing. The exit code is 2 if anything keeps the node from working.
    """
    from usvit.node import check_node

    found = check_node(config, models=models, peers=peers)
    if json_:
        print(json.dumps(found.content(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        for one in found.findings:
            print(f"{one.level:5}  {one.check}: {one.text}")
    if found.faults:
        raise typer.Exit(2)


def mercure(
    in_dir: Annotated[Path, typer.Option("--in", envvar="MERCURE_IN_DIR", help="Folder with the task.", metavar="DIR")],
    out_dir: Annotated[
        Path, typer.Option("--out", envvar="MERCURE_OUT_DIR", help="Folder for the results.", metavar="DIR")
    ],
    model: Annotated[
        Path | None,
        typer.Option(envvar="USVIT_MODEL", help="Model, unless the settings of the task name one.", metavar="RUN"),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.", metavar="DEVICE")] = "auto",
) -> None:
    """Score one task of mercure, as a processing module: DICOM results and result.json.

    Settings are read from task.json (process.settings.usvit). See 'usvit docs node'.
    """
    from usvit.node import score_mercure_task

    print(score_mercure_task(in_dir, out_dir, model=model, device=device).notification.text)


def _print_status(found: "NodeStatusRecord") -> None:
    from usvit.node.page import size_in_words

    dead = [one.name for one in found.processes if not one.alive]
    print(f"service: {'runs' if found.running else 'does not run'}{f'; dead: {chr(44).join(dead)}' if dead else ''}")
    for title, counts in (("images", found.instances), ("studies", found.studies), ("results", found.results)):
        print(f"{title}: {', '.join(f'{name} {number:,}' for name, number in counts.items())}")
    speed = found.throughput
    print(
        f"last minute: {speed.received_minute:,} images received, {speed.scored_minute:,} scored; last hour: "
        f"{speed.received_hour:,} received, {speed.scored_hour:,} scored"
    )
    if found.oldest_study_seconds is not None:
        print(f"oldest study that is not done: {found.oldest_study_seconds:.0f} s")
    for one in found.deliveries:
        queue = ", ".join(f"{name} {getattr(one, name):,}" for name in ("waiting", "sent", "committed", "gave_up"))
        held = f", dry_run {one.dry_run:,}" if one.dry_run else ""
        print(f"peer {one.peer}: {queue}{held}{f'; last error: {one.last_error}' if one.last_error else ''}")
    disk = found.disk
    print(
        f"disk: {size_in_words(disk.free_bytes)} free, {size_in_words(disk.images_bytes)} images, "
        f"{size_in_words(disk.results_bytes)} results"
    )
    for problem in found.problems[:5]:
        print(f"problem: {problem.time} {problem.event} {problem.study or ''} {problem.detail}".rstrip())
