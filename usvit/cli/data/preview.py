"""``usvit data preview``: show the effect of an augmentation policy."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o


def preview(
    out: Annotated[Path, typer.Option(help="PNG file to write; must not exist.", metavar="FILE.png")],
    dataset: o.Dataset = None,
    data_root: o.DataRoot = None,
    policy: Annotated[str, typer.Option(help="none, light, us, trivial, or all.")] = "us",
    n: Annotated[int, typer.Option(help="Number of images, from the classes in turn.", min=1, max=50)] = 6,
    variants: Annotated[int, typer.Option(help="Number of variants of each image.", min=1, max=20)] = 5,
    size: Annotated[int, typer.Option(help="Side of the network's input in pixels.", min=32, max=1024)] = 224,
    resize: Annotated[str, typer.Option(help="pad (keeps the aspect ratio) or squash.")] = "pad",
    seed: Annotated[int, typer.Option(help="Random seed of the choice of images and of the variants.", min=0)] = 0,
    json_: o.Json = False,
) -> None:
    """Write a picture that shows images, with their lesions outlined, and variants by an augmentation policy."""
    from usvit.data.audit import write_preview
    from usvit.progress import make_progress

    shown = write_preview(
        out,
        dataset or "phantom",
        roots=o.data_roots(data_root),
        policy=policy,
        n=n,
        variants=variants,
        size=size,
        resize=resize,
        seed=seed,
        progress=make_progress(),
    )
    if json_:
        images = [{"dataset": one.dataset, "image_id": one.record.image_id, "label": one.record.label} for one in shown]
        print(json.dumps({"out": str(out), "policy": policy, "images": images}, indent=2, ensure_ascii=False))
        return
    print(f"{len(shown)} images, {variants} variants each: {out}")
