"""``usvit data preview``: show the effect of an augmentation policy."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.data_commands import PreviewSettings


@takes_options()
def preview(
    *,
    out: Annotated[Path, typer.Option(help="PNG file to write; must not exist.", metavar="FILE.png")],
    dataset: o.Dataset = None,
    data_root: o.DataRoot = None,
    settings: PreviewSettings,
    json_: o.Json = False,
) -> None:
    """Write a picture that shows images, with their lesions outlined, and variants by an augmentation policy."""
    from usvit.data.audit import write_preview
    from usvit.progress import make_progress

    shown = write_preview(
        out,
        dataset or "phantom",
        roots=o.data_roots(data_root),
        settings=settings,
        progress=make_progress(),
    )
    if json_:
        images = [{"dataset": one.dataset, "image_id": one.record.image_id, "label": one.record.label} for one in shown]
        print(json.dumps({"out": str(out), "policy": settings.policy, "images": images}, indent=2, ensure_ascii=False))
        return
    print(f"{len(shown)} images, {settings.variants} variants each: {out}")
