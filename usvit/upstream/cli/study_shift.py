"""``usvit study shift``: leave one data set, or one device, out."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.errors import UsvitError

if TYPE_CHECKING:
    from usvit.upstream.records.shift import ShiftRecord, ShiftSpread


def shift(
    sets: Annotated[
        list[str],
        typer.Argument(
            help="Data cards, manifests (.parquet) or folders of images, each of which is left out once; NAME=SET "
            "names one.",
            metavar="[NAME=]SET...",
        ),
    ],
    by: Annotated[
        str | None,
        typer.Option(help="Column whose values are left out, such as device, instead of whole sets.", metavar="COLUMN"),
    ] = None,
    model: o.Model = None,
    recipe: o.Recipe = None,
    weights: o.WeightsOption = None,
    hold_out: Annotated[
        bool, typer.Option("--hold-out", help="Train once for each left-out set, instead of a cross-validation.")
    ] = False,
    rule: Annotated[
        str,
        typer.Option(help="Rule of the frozen thresholds: sensitivity>=S, specificity>=S, youden or a number."),
    ] = "sensitivity>=0.9",
    prevalence: Annotated[
        float | None, typer.Option(help="Share of positives for PPV and NPV. (default: that of all sets together)")
    ] = None,
    sizes: Annotated[
        str,
        typer.Option(help="Numbers of patients of the left-out set to recalibrate on, or none.", metavar="N,...|none"),
    ] = "10,20,50,100",
    draws: Annotated[int, typer.Option(help="Random draws of these patients for each number.")] = 200,
    out: Annotated[Path | None, typer.Option(help="Folder of the measurement. (default: studies/shift-<sets>)")] = None,
    runs: Annotated[
        Path | None,
        typer.Option(help="Folder of the trainings; measurements with the same one share equal trainings."),
    ] = None,
    data_root: o.DataRoot = None,
    seed: o.Seed = None,
    engine: Annotated[
        str, typer.Option(help="sequential, or ray, which starts as many trainings at once as CPUs allow.")
    ] = "sequential",
    cpus: Annotated[
        int | None, typer.Option(min=1, help="Number of CPU threads of each training. (default: PyTorch's choice)")
    ] = None,
    device: o.DeviceOption = None,
    precision: o.Precision = None,
    workers: o.Workers = None,
    skip_bad: o.SkipBad = False,
    keep_ids: o.KeepIds = False,
    keep_list: o.KeepList = None,
    allow_contaminated: o.AllowContaminated = False,
    set_: o.Set = None,
    json_: o.Json = False,
) -> None:
    """Measure shift: train without one set, test on it with frozen thresholds, and compare with the other sets.

    For each left-out set, the command prints AUC, sensitivity, specificity and calibration inside (on held-out images
    of the other sets) and outside (on the left-out set) with the difference, PPV and NPV at one prevalence, and the
    effect of a recalibration on some of its patients. The same command resumes a stopped
    measurement.
    """
    from usvit.config import merge, parse_overrides
    from usvit.files import read_json
    from usvit.progress import make_progress
    from usvit.upstream.studies import measure_shift

    options = o.given(
        data__keep_list=keep_list and str(keep_list),
        data__skip_bad=skip_bad,
        data__keep_ids=keep_ids,
        allow_contaminated=allow_contaminated,
        device=device,
        precision=precision,
        workers=workers,
    )
    with o.resumable():
        outcome = measure_shift(
            *sets,
            by=by,
            model=model,
            recipe=recipe,
            weights=weights,
            hold_out=hold_out,
            rule=rule,
            prevalence=prevalence,
            sizes=_sizes(sizes),
            draws=draws,
            out=out,
            runs=runs,
            data_root=o.data_roots(data_root),
            seed=seed,
            engine=engine,
            cpus=cpus,
            progress=make_progress(),
            command=o.command_line(),
            overrides=merge(options, parse_overrides(set_ or [])),
        )
    if json_:
        print(json.dumps(read_json(outcome.path / "shift.json"), indent=2, ensure_ascii=False, allow_nan=False))
        return
    _print(outcome.record)
    print(f"page: {outcome.page}")


def _sizes(text: str) -> list[int]:
    if text.strip() == "none":
        return []
    try:
        return [int(part) for part in text.split(",")]
    except ValueError as error:
        raise UsvitError(f"--sizes {text}: give whole numbers, such as 10,20,50, or none.") from error


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
