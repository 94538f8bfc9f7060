"""``usvit watch``: a model in use."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.watching import WatchSettings
from usvit.errors import EXIT_PARTLY


@takes_options()
def watch(
    scores: Annotated[
        list[str],
        typer.Argument(
            help="Folders that usvit score wrote, or the folder of a node. SITE=FOLDER names a site, @2026-03=FOLDER "
            "the date of all images.",
            metavar="[[SITE][@DATE]=]SCORES...",
        ),
    ],
    settings: WatchSettings,
    out: Annotated[Path, typer.Option(help="Folder to write.", metavar="DIR")] = Path("watch"),
    json_: o.Json = False,
) -> None:
    """Watch a model in use: compare scores, images, failures and decisions of each month with a baseline.

    No labels are needed. Alarms have a stated rate while nothing changes (--false-alarms). With --labels and a minimum,
    local cases are an acceptance test. Writes watch.html, watch.md and watch.json. The exit code is 3 on an alarm, on
    the verdict stop, or if the acceptance test is not met.
    """
    from usvit.documents import terminal_text
    from usvit.monitoring import watch as watch_scores
    from usvit.monitoring import watch_document

    hidden: dict[str, Path | str | None] = {f"scores-{k}": text for k, text in enumerate(scores, 1)}
    hidden |= {f"baseline-{k}": text for k, text in enumerate(settings.baseline, 1)}
    hidden |= {name: getattr(settings, name) for name in ("labels", "labelled", "key", "input_root")}
    record, folder = watch_scores(scores, settings=settings, out=out, command=o.command_line(out=out, **hidden))
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print(terminal_text(watch_document(record)))
        print(f"page: {folder / 'watch.html'}")
    if record.verdict in ("alarm", "stop"):
        raise typer.Exit(EXIT_PARTLY)
