"""``usvit plan``: sample sizes of studies."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o

if TYPE_CHECKING:
    from usvit.records import PlanRecord

app = typer.Typer(
    help="Plan the size of a study: how many patients it needs, and what other sizes give.",
    no_args_is_help=True,
)

_Prevalence = Annotated[
    float | None, typer.Option(help="Share of positive images. (default: that of --like)", metavar="P")
]
_Like = Annotated[
    Path | None,
    typer.Option(
        help="Run or predictions table whose predictions are typical: it gives what is not stated.", metavar="RUN"
    ),
]
_Positive = Annotated[
    str | None, typer.Option(help="The positive class of --like. (default: its own, or malignant)", metavar="CLASS")
]
_Images = Annotated[
    float | None,
    typer.Option(help="Mean number of images of a patient. (default: that of --like, or 1)", metavar="M"),
]
_ImagesCv = Annotated[
    float | None, typer.Option(help="SD / mean of the number of images. (default: that of --like, or 0)", metavar="CV")
]
_Icc = Annotated[
    float | None,
    typer.Option(
        help="Correlation of the scores of two images of one patient and class. (default: that of --like; else 1, "
        "further images add nothing)",
        metavar="R",
    ),
]
_Out = Annotated[Path, typer.Option(help="Folder to write.", metavar="DIR")]


@app.command()
def validation(
    auc: Annotated[
        float | None, typer.Option(help="Expected AUC of the model. (default: that of --like)", metavar="A")
    ] = None,
    prevalence: _Prevalence = None,
    like: _Like = None,
    linear_predictor: Annotated[
        str | None,
        typer.Option(
            help="Distribution of the log-odds that a paper reports: normal:MEAN,SD or beta:A,B of the probabilities. "
            "(default: normal in each class, from the AUC)",
            metavar="D",
        ),
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(help="Threshold probability of the net benefit. (default: not planned)", metavar="T")
    ] = None,
    sensitivity: Annotated[
        float | None, typer.Option(help="Sensitivity at --threshold. (default: from the distribution)", metavar="P")
    ] = None,
    specificity: Annotated[
        float | None, typer.Option(help="Specificity at --threshold. (default: from the distribution)", metavar="P")
    ] = None,
    oe: Annotated[float, typer.Option(help="Expected ratio of observed to expected positives.")] = 1.0,
    oe_width: Annotated[float, typer.Option(help="Width of the 95 % interval of O/E.", metavar="W")] = 0.2,
    slope_width: Annotated[
        float, typer.Option(help="Width of the 95 % interval of the calibration slope.", metavar="W")
    ] = 0.2,
    auc_width: Annotated[float, typer.Option(help="Width of the 95 % interval of the AUC.", metavar="W")] = 0.1,
    net_benefit_width: Annotated[
        float, typer.Option(help="Width of the 95 % interval of the standardised net benefit.", metavar="W")
    ] = 0.2,
    images: _Images = None,
    images_cv: _ImagesCv = None,
    icc: _Icc = None,
    positive: _Positive = None,
    out: _Out = Path("plan"),
    json_: o.Json = False,
) -> None:
    """Plan the external validation of a model, with precise O/E, calibration slope, AUC and net benefit.

    The largest of the sizes counts (Riley et al. 2021, BMJ 2024;384:e074821). Writes plan.html and plan.json.
    """
    from usvit.planning import plan_validation

    record, folder = plan_validation(
        auc=auc,
        prevalence=prevalence,
        like=like,
        positive=positive,
        linear_predictor=linear_predictor,
        threshold=threshold,
        sensitivity=sensitivity,
        specificity=specificity,
        oe=oe,
        oe_width=oe_width,
        slope_width=slope_width,
        auc_width=auc_width,
        net_benefit_width=net_benefit_width,
        images=images,
        images_cv=images_cv,
        icc=icc,
        out=out,
        command=o.command_line(),
    )
    _print(record, folder, json_)


@app.command()
def accuracy(
    sensitivity: Annotated[
        float | None, typer.Option(help="Expected sensitivity. (default: that of --like)", metavar="P")
    ] = None,
    specificity: Annotated[
        float | None, typer.Option(help="Expected specificity. (default: that of --like)", metavar="P")
    ] = None,
    prevalence: _Prevalence = None,
    like: _Like = None,
    half_width: Annotated[
        float, typer.Option(help="Half the width of both 95 % intervals: 0.05 for plus or minus 5 points.", metavar="H")
    ] = 0.05,
    sensitivity_half_width: Annotated[
        float | None, typer.Option(help="Half width for the sensitivity. (default: --half-width)", metavar="H")
    ] = None,
    specificity_half_width: Annotated[
        float | None, typer.Option(help="Half width for the specificity. (default: --half-width)", metavar="H")
    ] = None,
    images: _Images = None,
    images_cv: _ImagesCv = None,
    icc: _Icc = None,
    positive: _Positive = None,
    out: _Out = Path("plan"),
    json_: o.Json = False,
) -> None:
    """Plan a study that measures sensitivity and specificity with a stated precision.

    Writes plan.html and plan.json.
    """
    from usvit.planning import plan_accuracy

    record, folder = plan_accuracy(
        sensitivity=sensitivity,
        specificity=specificity,
        prevalence=prevalence,
        like=like,
        positive=positive,
        half_width=half_width,
        sensitivity_half_width=sensitivity_half_width,
        specificity_half_width=specificity_half_width,
        images=images,
        images_cv=images_cv,
        icc=icc,
        out=out,
        command=o.command_line(),
    )
    _print(record, folder, json_)


@app.command()
def compare(
    auc: Annotated[
        float | None, typer.Option(help="Expected AUC of the first model. (default: that of --like)", metavar="A")
    ] = None,
    auc_b: Annotated[
        float | None,
        typer.Option(help="Expected AUC of the second model. (default: that of the second --like)", metavar="A"),
    ] = None,
    correlation: Annotated[
        float | None,
        typer.Option(
            help="Correlation of the two models' scores within a class. (default: that of two runs in --like)",
            metavar="R",
        ),
    ] = None,
    prevalence: _Prevalence = None,
    like: Annotated[
        list[Path] | None,
        typer.Option(
            help="Run or predictions table whose predictions are typical; give it for each model.", metavar="RUN"
        ),
    ] = None,
    test: Annotated[
        str | None,
        typer.Option(
            help="difference, noninferiority or equivalence. (default: difference; with --margin, noninferiority)",
            metavar="TEST",
        ),
    ] = None,
    margin: Annotated[
        float | None, typer.Option(help="Difference of the AUCs that would not matter, such as 0.05.", metavar="M")
    ] = None,
    power: Annotated[
        float, typer.Option(help="Power: the probability that the test succeeds if the expected values are true.")
    ] = 0.8,
    alpha: Annotated[
        float, typer.Option(help="Two-sided level; non-inferiority has half of it, one-sided.", metavar="L")
    ] = 0.05,
    images: _Images = None,
    images_cv: _ImagesCv = None,
    icc: _Icc = None,
    positive: _Positive = None,
    out: _Out = Path("plan"),
    json_: o.Json = False,
) -> None:
    """Plan the comparison of the AUCs of two models on the same images.

    Writes plan.html and plan.json.
    """
    from usvit.planning import plan_comparison

    record, folder = plan_comparison(
        auc=auc,
        auc_b=auc_b,
        correlation=correlation,
        prevalence=prevalence,
        like=like or [],
        positive=positive,
        test=test,
        margin=margin,
        power=power,
        alpha=alpha,
        images=images,
        images_cv=images_cv,
        icc=icc,
        out=out,
        command=o.command_line(),
    )
    _print(record, folder, json_)


def _print(record: "PlanRecord", folder: Path, as_json: bool) -> None:
    """Print the answer, the size of each criterion and what other sizes give."""
    from usvit.planning import aim_in_words, in_words

    if as_json:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    from usvit.terminal import aligned

    print(in_words(record))
    several = record.assumptions.images_per_patient > 1 or record.assumptions.images_cv > 0
    header = ["figure", "expected", "aim", *(["images", "design effect"] if several else []), "patients"]
    rows = []
    for one in record.criteria:
        row = [one.name, f"{one.value:.3f}" if one.value is not None else "-", aim_in_words(one)]
        if several:
            row += [_number(one.n_images), f"{one.design_effect:.2f}" if one.design_effect else "-"]
        rows.append([*row, _number(one.n_patients) if one.reason is None else one.reason])
    print("\n" + aligned(header, rows))
    if record.curve:
        names = list(record.curve[0].half_widths)
        power = record.design == "comparison"
        header = ["patients", "images", *(f"{name} ±" for name in names), *(["power"] if power else [])]
        points = [
            [_number(point.n_patients), _number(point.n_images)]
            + [f"{point.half_widths[name]:.3f}" for name in names]
            + ([f"{point.power:.2f}"] if point.power is not None else [])
            for point in record.curve
        ]
        print("\nexpected half widths of the 95 % intervals\n" + aligned(header, points))
    for note in record.assumptions.notes:
        print(f"note: {note}")
    for warning in record.warnings:
        print(f"Warning: {warning}")
    print(f"page: {folder / 'plan.html'}")


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
