"""``usvit node pull``: fetch studies from an archive."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.errors import EXIT_PARTLY


def pull(
    config: Annotated[Path, typer.Argument(help="Configuration of the node, a YAML file.", metavar="CONFIG")],
    peer: Annotated[str, typer.Option(help="Name of the archive in the configuration.", metavar="NAME")],
    study: Annotated[str | None, typer.Option(help="StudyInstanceUID of one study.", metavar="UID")] = None,
    query: Annotated[
        list[str] | None,
        typer.Option(
            help="Studies with this attribute, such as StudyDate=20260101-20260131 or ModalitiesInStudy=US; repeat it "
            "for several conditions.",
            metavar="KEY=VALUE",
        ),
    ] = None,
    retrieve: Annotated[
        str, typer.Option(help="Service of an application entity: auto, get (C-GET) or move (C-MOVE).", metavar="WAY")
    ] = "auto",
    json_: o.Json = False,
) -> None:
    """Fetch studies from an archive; the running node scores them.

    Images that the node already has are not fetched again. The exit code is 3 if an image is missing.
    """
    from usvit.node import parse_query, pull_studies
    from usvit.progress import make_progress

    found = pull_studies(
        config,
        peer,
        study=study,
        query=parse_query(query) if query else None,
        retrieve=retrieve,
        progress=make_progress(),
    )
    if json_:
        print(json.dumps(asdict(found), indent=2, ensure_ascii=False))
    else:
        print(f"{found.fetched} images of {found.studies} studies fetched")
        if found.known:
            print(f"{found.known} images were stored before")
        if found.left_out:
            print(f"{found.left_out} other objects are left out: they are not images that can be scored")
        if found.failed:
            print(f"{sum(found.failed.values())} images not fetched:")
            for reason, n in sorted(found.failed.items(), key=lambda pair: -pair[1]):
                print(f"  {n:6}  {reason}")
    if found.partly:
        raise typer.Exit(EXIT_PARTLY)
