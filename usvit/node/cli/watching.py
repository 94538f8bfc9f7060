"""``usvit node status`` and ``usvit node doctor``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o

Config = Annotated[Path, typer.Argument(help="Configuration of the node, a YAML file.", metavar="CONFIG")]


def status(config: Config, json_: o.Json = False) -> None:
    """Show what a node holds and does: counts, queues, throughput, disk and the last problems.

    It shows no name, id or UID of a patient; studies appear by their pseudonyms.
    """
    from usvit.documents import terminal_text
    from usvit.node import node_status
    from usvit.node.page import node_document

    found = node_status(config)
    if json_:
        print(json.dumps(found.content(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(terminal_text(node_document(found)))


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
