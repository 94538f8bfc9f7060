"""``usvit study shift``: leave one data set, or one device, out."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_config, takes_options
from usvit.config import RunConfig
from usvit.plain_data import Settings
from usvit.upstream.config.study import ShiftSettings

if TYPE_CHECKING:
    from usvit.upstream.records.shift import ShiftRecord, ShiftSpread


@takes_options()
@takes_config(
    RunConfig,
    "device",
    "precision",
    "workers",
    "data.skip_bad",
    "data.keep_ids",
    "data.keep_list",
    "allow_contaminated",
)
def shift(
    *,
    sets: Annotated[
        list[str],
        typer.Argument(
            help="Data cards, manifests (.parquet) or folders of images, each of which is left out once; NAME=SET "
            "names one.",
            metavar="[NAME=]SET...",
        ),
    ],
    settings: ShiftSettings,
    data_root: o.DataRoot = None,
    overrides: Settings,
    json_: o.Json = False,
) -> None:
    """Measure shift: train without one set, test on it with frozen thresholds, and compare with the other sets.

    For each left-out set, the command prints AUC, sensitivity, specificity and calibration inside (on held-out images
    of the other sets) and outside (on the left-out set) with the difference, PPV and NPV at one prevalence, and the
    effect of a recalibration on some of its patients. The same command resumes a stopped
    measurement.
    """
    from usvit.files import read_json
    from usvit.progress import make_progress
    from usvit.upstream.studies import measure_shift

    with o.resumable():
        outcome = measure_shift(
            *sets,
            settings=settings,
            data_root=o.data_roots(data_root),
            progress=make_progress(),
            command=o.command_line(),
            overrides=overrides,
        )
    if json_:
        print(json.dumps(read_json(outcome.path / "shift.json"), indent=2, ensure_ascii=False, allow_nan=False))
        return
    _print(outcome.record)
    print(f"page: {outcome.page}")


def _print(record: "ShiftRecord") -> None:
    from usvit.estimate_text import BRACKETS, Style, estimate_text, fixed

    signed = Style(fixed(3, "+"))
    for one in record.sets:
        share = f"{one.positive_share:.0%} {record.positive_class}"
        print(f"{one.name}: {one.n_images} images in {one.n_groups} groups, {share}")
    print(f"\n{'':14}{'':16}{'inside':24}{'outside':24}change")
    for row in record.rows:
        for title, name in (("AUC", "auc"), ("sensitivity", "sensitivity"), ("specificity", "specificity")):
            inside, outside = getattr(row.internal, name), getattr(row.external, name)
            head = row.left_out if name == "auc" else ""
            sides = f"{estimate_text(inside, BRACKETS):24}{estimate_text(outside, BRACKETS):24}"
            cells = f"{sides}{estimate_text(getattr(row.change, name), signed)}"
            print(f"{head:14}{title:16}{cells}")
        print(f"{'':14}{'AUC, paired':16}{'':48}{estimate_text(row.paired.auc, signed)}")
        for drawn in row.recalibration:
            figures = f"sensitivity {_spread(drawn.sensitivity)}, specificity {_spread(drawn.specificity)}"
            calibrated = f"slope {_spread(drawn.slope)}, O:E {_spread(drawn.observed_expected)}"
            print(f"  {drawn.n_patients:>4} patients, {drawn.fitted:12}{figures}, {calibrated}")
        for skipped in row.skipped:
            print(f"  {skipped.n_patients:>4} patients: skipped, {skipped.reason}")
    print(f"\nThresholds by {record.rule} on inner validation images; intervals are 95 % and count patients.")
    for sentence in record.says:
        print(sentence)
    print("For research use, not a medical device.")


def _spread(spread: "ShiftSpread") -> str:
    if spread.median is None or spread.interval is None:
        return "-"
    return f"{spread.median:.2f} [{spread.interval[0]:.2f}, {spread.interval[1]:.2f}]"
