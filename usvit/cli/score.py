"""``usvit score``: score images and DICOM files, and write tables and DICOM objects."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.scoring import ProductOptions, ScoringSettings
from usvit.data.io import PICTURE_NAMES
from usvit.errors import EXIT_PARTLY

if TYPE_CHECKING:
    from usvit.records import ModelSeen, SummaryRecord


@takes_options(without=["products"])
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
    settings: ScoringSettings,
    wanted: ProductOptions,
    base: o.Base = None,
    json_: o.Json = False,
) -> None:
    """Score every image in the inputs, and list what cannot be scored with the reason.

    Writes scores.csv and .parquet, files.csv, studies.csv, patients.csv, breasts.csv if a side is stated, failures.csv,
    summary.json and the page scores.html. Ids are pseudonyms; --link writes a table with the file of each id. The exit
    code is 3 if something was not scored or not written. See 'usvit docs score'.
    """
    from usvit.progress import make_progress
    from usvit.scoring import score as score_all

    with o.resumable():
        outcome = score_all(model, input_, out, settings=settings, products=wanted.products(), progress=make_progress())
    if json_:
        print(json.dumps(outcome.summary.content(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _show(outcome.summary, outcome.out, settings.link)
    if outcome.partly:
        raise typer.Exit(EXIT_PARTLY)


def _show(summary: "SummaryRecord", out: Path, link: Path | None) -> None:
    from usvit.reports import units_sentence

    counts, positive = summary.counts, summary.positive_class
    print(f"{counts.frames_scored} images of {counts.files_scored} files scored")
    threshold = summary.threshold
    if threshold.value is None:
        print(f"no decisions: {threshold.origin.removeprefix('none: ')}")
    else:
        print(f"{counts.frames_positive} {positive}, {counts.frames_negative} not {positive}")
        print(f"threshold {threshold.value:.4f}: {threshold.origin}")
        print(units_sentence(summary))
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
