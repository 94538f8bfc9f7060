"""``usvit score``: score images and DICOM files, and write tables and DICOM objects."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.data.io import PICTURE_NAMES
from usvit.errors import EXIT_PARTLY

if TYPE_CHECKING:
    from usvit.records import ModelSeen, SummaryRecord


def score(
    model: Annotated[
        list[Path],
        typer.Option(
            help="A run of 'usvit cv' or 'train', one fold of it, or an ensemble; repeat it to average the networks of "
            "several.",
            metavar="RUN",
        ),
    ],
    input_: Annotated[
        list[str],
        typer.Option(
            "--input",
            help="Folder, file, 'glob/**', zip archive, table with a column path, or DICOMDIR; can be repeated. Images "
            f"may be DICOM, {PICTURE_NAMES}.",
            metavar="PATH",
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="Folder for the results; the same command resumes an interrupted job.", metavar="DIR")
    ],
    fold: Annotated[
        str, typer.Option(help="Folds whose networks to use: all (ensemble), 0, or 0,2.", metavar="K")
    ] = "all",
    frames: Annotated[
        str, typer.Option(help="Frames of a loop: all, middle, every:K, or top:K by quality.", metavar="POLICY")
    ] = "all",
    operating_point: Annotated[
        str,
        typer.Option(help="sensitivity>=X, specificity>=X, youden, or a threshold as a number.", metavar="RULE"),
    ] = "sensitivity>=0.9",
    calibration: Annotated[
        Path | None, typer.Option(help="Temperature and thresholds written by 'usvit recalibrate'.", metavar="FILE")
    ] = None,
    flip: Annotated[
        bool, typer.Option("--flip", help="Average the result of each image and of its mirror image.")
    ] = False,
    abstain: Annotated[
        bool, typer.Option("--abstain", help="Make no decision on images unlike the training data.")
    ] = False,
    abstain_at: Annotated[
        str | None,
        typer.Option(
            help="Make no decision on uncertain images, studies and patients: calibrated probabilities such as "
            "0.05,0.6, or 'conformal' for the sets of --calibration.",
            metavar="LOW,HIGH",
        ),
    ] = None,
    sr: Annotated[bool, typer.Option("--sr", help="Write a DICOM SR (TID 1500) for each DICOM file.")] = False,
    sc: Annotated[
        bool, typer.Option("--sc", help="Write a DICOM Secondary Capture: image, saliency and result.")
    ] = False,
    gsps: Annotated[
        bool, typer.Option("--gsps", help="Write a DICOM presentation state: region and result, over the image.")
    ] = False,
    overlays: Annotated[bool, typer.Option("--overlays", help="Write the same pictures as PNG.")] = False,
    thumbnails: Annotated[bool, typer.Option("--thumbnails", help="Show small images in scores.html.")] = False,
    pictures: Annotated[
        bool,
        typer.Option(
            "--pictures",
            help="Also draw images whose tissue region is unknown; they may show a patient's name.",
        ),
    ] = False,
    keep_ids: Annotated[
        bool,
        typer.Option("--keep-ids", help="Keep paths and patient ids; the outputs are then as private as the input."),
    ] = False,
    key: Annotated[
        Path | None,
        typer.Option(
            help="Secret key of the pseudonyms, created if missing. (default: in your settings)", metavar="FILE"
        ),
    ] = None,
    link: Annotated[
        Path | None,
        typer.Option(
            help="Write a private table of ids and files, outside --out; you can also do this later.", metavar="FILE"
        ),
    ] = None,
    audit_log: Annotated[
        Path | None,
        typer.Option(
            help="Append who scored what and when, without patient data, to this file (mode 600).", metavar="FILE"
        ),
    ] = None,
    timeout: Annotated[
        float, typer.Option(help="Maximum time to decode one image, in seconds; the file fails after it.")
    ] = 60.0,
    memory_gb: Annotated[float, typer.Option(help="Maximum memory of a reader process, in GB.", min=0.1)] = 4.0,
    batch_size: Annotated[int, typer.Option(help="Number of images per batch.", min=1)] = 32,
    workers: Annotated[
        int | None, typer.Option(help="Number of reader processes. (default: one per core)", min=1)
    ] = None,
    device: o.DeviceOption = None,
    precision: o.Precision = None,
    engine: Annotated[str, typer.Option(help="local, or ray for the machines of a cluster.")] = "local",
    address: Annotated[
        str | None,
        typer.Option(help="Address of the Ray cluster. (default: start one on this machine)", metavar="HOST:PORT"),
    ] = None,
    cpus: Annotated[int | None, typer.Option(help="CPUs of each Ray worker. (default: 2)", min=1)] = None,
    base: o.Base = None,
    json_: o.Json = False,
) -> None:
    """Score every image in the inputs, and list what cannot be scored with the reason.

    Writes scores.csv and .parquet, files.csv, studies.csv, patients.csv, failures.csv, summary.json and the page
    scores.html. Ids are pseudonyms; --link writes a table with the file of each id. The exit code is 3 if something was
    not scored or not written. See 'usvit docs score'.
    """
    from usvit.progress import make_progress
    from usvit.scoring import score as score_all

    with o.resumable():
        outcome = score_all(
            model,
            input_,
            out,
            folds=fold,
            frames=frames,
            operating_point=operating_point,
            calibration=calibration,
            flip=flip,
            abstain=abstain,
            abstain_at=abstain_at,
            keep_ids=keep_ids,
            key=key,
            link=link,
            audit_log=audit_log,
            thumbnails=thumbnails,
            pictures=pictures,
            products=[
                name for name, wanted in (("sr", sr), ("sc", sc), ("gsps", gsps), ("overlay", overlays)) if wanted
            ],
            timeout=timeout,
            memory_gb=memory_gb,
            workers=workers,
            batch_size=batch_size,
            device=device or "auto",
            precision=precision or "auto",
            engine=engine,
            address=address,
            cpus=cpus,
            progress=make_progress(),
        )
    if json_:
        print(json.dumps(outcome.summary.content(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _show(outcome.summary, outcome.out, link)
    if outcome.partly:
        raise typer.Exit(EXIT_PARTLY)


def _show(summary: "SummaryRecord", out: Path, link: Path | None) -> None:
    counts, positive = summary.counts, summary.positive_class
    print(f"{counts.frames_scored} images of {counts.files_scored} files scored")
    threshold = summary.threshold
    if threshold.value is None:
        print(f"no decisions: {threshold.origin.removeprefix('none: ')}")
    else:
        print(f"{counts.frames_positive} {positive}, {counts.frames_negative} not {positive}")
        print(f"threshold {threshold.value:.4f}: {threshold.origin}")
    if summary.abstention is not None:
        zone = summary.abstention
        print(f"{counts.frames_uncertain} uncertain, without a decision: from {zone.low:.4f} to {zone.high:.4f}")
        print(f"abstention {zone.origin}")
    n_refused = counts.frames_abstained - (counts.frames_uncertain or 0)
    undecided = f", {n_refused} without a decision" if n_refused else ""
    print(f"{counts.frames_unusual} images unlike the training data{_expected(summary)}{undecided}")
    if counts.frames_seen:
        known = "or near-duplicates of them were used in training"
        known += ", or are of patients of the calibration" if summary.model.calibration else ""
        print(f"Warning: {counts.frames_seen} of these images {known}: their scores are not an independent test.")
    print(_recognised(summary.model.seen))
    if counts.failures:
        print(f"{counts.failures} not scored (failures.csv):")
        for code, one in sorted(summary.failures.items(), key=lambda pair: -pair[1].rows):
            print(f"  {one.rows:6}  {code}: {one.reason}")
    for kind, product in summary.products.items():
        failed = f", {product.failed} not (products.csv):" if product.failed else ""
        print(f"{kind}: {product.written} written{failed}")
        for code, why in sorted((product.reasons or {}).items(), key=lambda pair: -pair[1].rows):
            print(f"  {why.rows:6}  {code}: {why.reason}")
    print("For research use, not a medical device.")
    if link is not None:
        print(f"table of ids and files: {link} (private)")
    elif not summary.settings.get("keep_ids"):
        print("table of ids and files: run the same command with --link FILE to write it (private)")
    print(f"page: {out / 'scores.html'}")


def _recognised(seen: "ModelSeen | None") -> str:
    """Describe how images seen in training were recognised."""
    if seen is None:
        return "images seen in training: recognised by exact hash only"
    gaps = "; ".join(dict.fromkeys(gap.what for gap in seen.gaps))
    if seen.known == "copies":
        return f"images seen in training: recognised as near-duplicates, too ({seen.n_descriptions} on record)"
    if seen.known == "hashes":
        return f"images seen in training: some are recognised by exact hash only ({gaps})"
    return f"images seen in training: not all are on record ({gaps})"


def _expected(summary: "SummaryRecord") -> str:
    """Describe the share of unusual images, and the share expected among images like the training data."""
    ood = summary.novelty
    if not ood or not ood.found_rate or ood.stated_rate is None:
        return ""
    return f" ({100 * ood.found_rate:.1f} %; expected of images like the training data: {100 * ood.stated_rate:.1f} %)"
