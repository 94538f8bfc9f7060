"""``usvit score``: folders of images and DICOM in, tables and coded DICOM out."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from usvit.cli import options as o
from usvit.errors import EXIT_PARTLY


def score(
    model: Annotated[Path, typer.Option(help="A run of 'usvit cv' or 'train', or one fold of it.", metavar="RUN")],
    input_: Annotated[
        list[str],
        typer.Option(
            "--input",
            help="Folder, file, 'glob/**', zip archive, table with a column path, or DICOMDIR; may be repeated.",
            metavar="PATH",
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for the results; the same command resumes.", metavar="DIR")],
    fold: Annotated[str, typer.Option(help="Networks of these folds: all (ensemble), 0, or 0,2.", metavar="K")] = "all",
    frames: Annotated[
        str, typer.Option(help="Of a loop: all, middle, every:K, or top:K by quality.", metavar="POLICY")
    ] = "all",
    operating_point: Annotated[
        str,
        typer.Option(help="sensitivity>=X, specificity>=X, youden, or a threshold as a number.", metavar="RULE"),
    ] = "sensitivity>=0.9",
    calibration: Annotated[
        Path | None, typer.Option(help="Temperature and thresholds that 'usvit recalibrate' wrote.", metavar="FILE")
    ] = None,
    flip: Annotated[bool, typer.Option("--flip", help="Average each image with its mirror image.")] = False,
    abstain: Annotated[bool, typer.Option("--abstain", help="No decision on images unlike the training data.")] = False,
    sr: Annotated[bool, typer.Option("--sr", help="Write a DICOM SR (TID 1500) for each DICOM file.")] = False,
    sc: Annotated[
        bool, typer.Option("--sc", help="Write a DICOM Secondary Capture: image, where the networks look, result.")
    ] = False,
    overlays: Annotated[bool, typer.Option("--overlays", help="Write the same pictures as PNG.")] = False,
    thumbnails: Annotated[bool, typer.Option("--thumbnails", help="Show small images in scores.html.")] = False,
    pictures: Annotated[
        bool,
        typer.Option(
            "--pictures",
            help="Draw images without a known tissue region, too: they may show a name.",
        ),
    ] = False,
    keep_ids: Annotated[
        bool,
        typer.Option("--keep-ids", help="Keep paths and patient ids: the outputs are then as private as the input."),
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(help="Secret of the pseudonyms; made where missing. (default: in your settings)", metavar="FILE"),
    ] = None,
    link: Annotated[
        Path | None,
        typer.Option(help="Write which id is which file, for you alone; outside --out, later too.", metavar="FILE"),
    ] = None,
    audit_log: Annotated[
        Path | None,
        typer.Option(help="Append who scored, when, with what and how many; no patients; mode 600.", metavar="FILE"),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Seconds that a decoder may take for one image, else the file fails.")
    ] = 60.0,
    memory_gb: Annotated[float, typer.Option(help="GB that one reader process may use.", min=0.1)] = 4.0,
    batch_size: Annotated[int, typer.Option(help="Images that the networks see at once.", min=1)] = 32,
    workers: Annotated[int | None, typer.Option(help="Reader processes. (default: one a core)", min=1)] = None,
    device: o.DeviceOption = None,
    precision: o.Precision = None,
    engine: Annotated[str, typer.Option(help="local, or ray: over the machines of a cluster.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster. (default: one of our own, here)", metavar="HOST:PORT")
    ] = None,
    cpus: Annotated[int | None, typer.Option(help="CPUs of each worker of Ray. (default: 2)", min=1)] = None,
    json_: o.Json = False,
) -> None:
    """Score every image below the inputs, whatever its name; what cannot be scored is listed with its reason.

    Writes scores.csv and .parquet, files.csv, studies.csv, patients.csv, failures.csv, summary.json and the page
    scores.html. Ids are pseudonyms: --link writes which file each one is. Exit code 3 where something was not scored
    or not written. More: docs/how-to/score.md.
    """
    from usvit.progress import make_progress
    from usvit.score.run import Request
    from usvit.score.run import score as score_all

    products = {name for name, wanted in (("sr", sr), ("sc", sc), ("overlay", overlays)) if wanted}
    request = Request(
        model=model,
        inputs=tuple(input_),
        out=out,
        folds=fold,
        frames=frames,
        rule=operating_point,
        calibration=calibration,
        flip=flip,
        abstain=abstain,
        keep_ids=keep_ids,
        key=key,
        link=link,
        audit_log=audit_log,
        thumbnails=thumbnails,
        pictures=pictures,
        products=frozenset(products),
        timeout=timeout,
        memory_gb=memory_gb,
        workers=workers,
        batch_size=batch_size,
        device=device or "auto",
        precision=precision or "auto",
        engine=engine,
        address=address,
        cpus=cpus,
    )
    with o.resumable():
        outcome = score_all(request, make_progress())
    if json_:
        print(json.dumps(outcome.summary, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _show(outcome.summary, outcome.out, link)
    if outcome.partly:
        raise typer.Exit(EXIT_PARTLY)


def _show(summary: dict[str, Any], out: Path, link: Path | None) -> None:
    counts, positive = summary["counts"], summary["positive_class"]
    print(f"{counts['frames_scored']} images of {counts['files_scored']} files scored")
    threshold = summary["threshold"]
    if threshold["value"] is None:
        print(f"no decisions: {threshold['origin'].removeprefix('none: ')}")
    else:
        print(f"{counts['frames_positive']} {positive}, {counts['frames_negative']} not {positive}")
        print(f"threshold {threshold['value']:.4f}: {threshold['origin']}")
    undecided = f", {counts['frames_abstained']} without a decision" if counts["frames_abstained"] else ""
    print(f"{counts['frames_unusual']} images unlike the training data{_expected(summary)}{undecided}")
    if counts["frames_seen"]:
        known = "had a part in training, themselves or as a copy"
        known += " or are of patients of the calibration" if summary["model"].get("calibration") else ""
        print(f"Warning: {counts['frames_seen']} of these images {known}: their scores prove nothing.")
    print(_recognised(summary["model"].get("seen")))
    if counts["failures"]:
        print(f"{counts['failures']} not scored (failures.csv):")
        for code, one in sorted(summary["failures"].items(), key=lambda pair: -pair[1]["rows"]):
            print(f"  {one['rows']:6}  {code}: {one['reason']}")
    for kind, one in summary["products"].items():
        failed = f", {one['failed']} not (products.csv):" if one["failed"] else ""
        print(f"{kind}: {one['written']} written{failed}")
        for code, why in sorted(one.get("reasons", {}).items(), key=lambda pair: -pair[1]["rows"]):
            print(f"  {why['rows']:6}  {code}: {why['reason']}")
    print("For research use, not a medical device.")
    if link is not None:
        print(f"which id is which file: {link} (private)")
    elif not summary["settings"]["keep_ids"]:
        print("which id is which file: the same command with --link FILE writes it, for you alone")
    print(f"page: {out / 'scores.html'}")


def _recognised(seen: dict[str, Any] | None) -> str:
    """By what images that the model has seen were recognised."""
    if seen is None:
        return "images that the model has seen: recognised by exact hash alone"
    gaps = "; ".join(dict.fromkeys(gap["what"] for gap in seen["gaps"]))
    if seen["known"] == "copies":
        return f"images that the model has seen: recognised by copy descriptions ({seen['n_descriptions']} on record)"
    if seen["known"] == "hashes":
        return f"images that the model has seen: some are recognised by exact hash alone ({gaps})"
    return f"images that the model has seen: not all are on record ({gaps})"


def _expected(summary: dict[str, Any]) -> str:
    """How many images unlike the training data there would be, were all of them like it."""
    found, stated = summary["novelty"]["found_rate"], summary["novelty"]["stated_rate"]
    if not found or stated is None:
        return ""
    return f" ({100 * found:.1f} %; of images like it {100 * stated:.1f} % would be)"
