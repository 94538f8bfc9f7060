"""``usvit retest``: how far the scores of a run move when its test images are changed."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o

if TYPE_CHECKING:
    from usvit.records import ChangeRecord, RepeatabilityRecord


def retest(
    run: Annotated[
        Path, typer.Argument(help="A finished run of usvit cv or train, or one fold of it.", metavar="RUN[/fold-N]")
    ],
    change: Annotated[
        list[str] | None,
        typer.Option(
            help="gain, depth-gain, depth, crop, jpeg, resize, text, calipers or marks-off. Can be repeated. (default: "
            "all)",
            metavar="NAME",
        ),
    ] = None,
    images: Annotated[
        int | None,
        typer.Option(help="Number of test images, from the classes in turn. (default: all)", min=1, metavar="N"),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to write. (default: RUN/retest)", metavar="DIR")] = None,
    data_root: o.DataRoot = None,
    json_: o.Json = False,
) -> None:
    """Change the test images of a run in controlled ways, and score them again with its networks.

    Gain, depth, crop, compression, resolution and burned-in marks change by stated strengths. For each, the command
    prints bias, limits of agreement and ICC of the scores, and how many decisions flip at each operating point. It
    writes repeatability.json, repeatability.html and changes.csv. For copies of one frame or views of one lesion that
    the predictions already contain, use usvit evaluate --repeatability.
    """
    from usvit.progress import make_progress
    from usvit.retesting import retest as retest_run

    record, folder = retest_run(
        run,
        changes=change or (),
        images=images,
        data_root=o.data_roots(data_root),
        out=out,
        progress=make_progress(),
    )
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    _print(record)
    print(f"\npage: {folder / 'repeatability.html'}")
    print("For research use, not a medical device.")


def _print(record: "RepeatabilityRecord") -> None:
    from usvit.cli.printing import with_interval

    changes = record.changes or []
    rules = list(dict.fromkeys(flip.rule for one in changes for flip in one.flips))
    chosen = [rule for rule in rules if rule.startswith("sensitivity")][:1] or rules[:1]
    print(f"Probability of {record.positive_class}, changed less original [95 %]; flips at '{', '.join(chosen)}'")
    for one in changes:
        print(f"{one.change} {one.strength}: {_counted(one)}")
        if one.scales is None:
            print(f"  not measured: {one.reason}")
            continue
        scale = one.scales.probability
        print(f"  bias {with_interval(scale.bias)}; {scale.icc_form} {with_interval(scale.icc)}")
        print(f"  limits {with_interval(scale.lower_limit)} to {with_interval(scale.upper_limit)}")
        for flip in one.flips:
            if flip.rule in chosen:
                print(f"  flips {flip.n_flips} of {flip.n_pairs}: {with_interval(flip.rate)}")
    print("\nMost flips")
    for rule in rules:
        print(f"  {rule}: {(record.most_flips or {}).get(rule, 'no change flips a decision')}")
    for warning in record.warnings:
        print(f"Warning: {warning}")


def _counted(one: "ChangeRecord") -> str:
    left_out = "".join(f"; {part.n} {part.reason}" for part in one.left_out)
    return f"{one.n_images} images in {one.n_groups} groups{left_out}"
