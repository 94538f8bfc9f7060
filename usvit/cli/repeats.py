"""``usvit evaluate --repeatability``: repeats that the predictions contain."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

from usvit.config.evaluation import Columns, PredictionSettings

if TYPE_CHECKING:
    from usvit.records import RepeatabilityRecord


def show_repeatability(
    predictions: Path,
    repeats: str | None,
    columns: Columns,
    settings: PredictionSettings,
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    """Call ``usvit.repeatability`` and print its figures, or its record."""
    from usvit.retesting import repeatability

    record = repeatability(predictions, settings=settings, repeats=repeats, columns=columns, out=out)
    if as_json:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    _print(record)
    if out is not None:
        print(f"\npage: {out / 'repeatability.html'}")
    print("For research use, not a medical device.")


def _print(record: "RepeatabilityRecord") -> None:
    from usvit.cli.printing import with_interval

    found = record.repeats
    if found is None:
        return
    patients = "" if found.n_patients is None else f", {found.n_patients} known patients"
    print(f"{found.n_images} images in {found.n_sets} sets of repeats, {found.n_groups} groups{patients}")
    for one in found.left_out:
        print(f"left out: {one.n} {one.reason}, such as {one.example}")
    for name, scale in (("probability", found.scales.probability), ("logit", found.scales.logit)):
        print(f"\n{name} of {record.positive_class} [95 %]")
        print(f"  {scale.icc_form:24}{with_interval(scale.icc)}")
        print(f"  {'within-set SD':24}{with_interval(scale.within_sd)}")
        print(f"  {'limits of agreement':24}plus and minus {with_interval(scale.repeatability_coefficient)}")
        print(f"  {'bias':24}none: {scale.bias.reason}")
    print(f"\ndecisions that flip, of {found.n_pairs} pairs [95 %]")
    for flip in found.flips:
        print(f"  {flip.rule:24}{flip.n_flips}: {with_interval(flip.rate)}")
    for rule, reason in found.undecided.items():
        print(f"  {rule}: none, {reason}")
    warnings = dict.fromkeys([found.scales.logit.icc.warning, *(flip.rate.warning for flip in found.flips[:1])])
    for warning in [*record.warnings, *(f"Intervals are {one}." for one in warnings if one)]:
        print(f"Warning: {warning}")
