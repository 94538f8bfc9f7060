"""``usvit study best``: the winner of a study."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o

if TYPE_CHECKING:
    from usvit.upstream.records.best import BestRecord, BestValidation


def best(
    study: Annotated[Path, typer.Argument(help="Folder of a finished study.", metavar="STUDY")],
    figure: Annotated[
        str, typer.Option(help="auc, auc_macro_ovr, accuracy, balanced_accuracy or brier.", metavar="FIGURE")
    ] = "auc",
    ensembles: Annotated[
        int, typer.Option(min=1, help="Let means of the best 2 to K runs compete, too.", metavar="K")
    ] = 1,
    json_: o.Json = False,
) -> None:
    """Pick the winner of a study by the one-standard-error rule, with the figure of a nested choice.

    Each fold chooses on its inner validation images and is measured on its test images, so that the figure includes
    what choosing costs. The command prints the winner and the command that scores with it, and writes best.json.
    """
    from usvit.upstream.studies import best_of_study

    record = best_of_study(study, figure=figure, ensembles=ensembles)
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print(record)


def _print(record: "BestRecord") -> None:
    from usvit.cli.printing import with_interval

    figure = f"AUC, {record.positive_class} vs rest" if record.figure == "auc" else record.figure.replace("_", " ")
    repeats = f" of {record.n_repeats} repeats" if record.n_repeats > 1 else ""
    print(f"{record.n_images} images in {record.n_groups} groups, {record.n_folds} folds{repeats}; {figure}")
    wide = max(len(one.name) for one in record.candidates)
    print(f"{'':{wide}}  {'parameters':>11}  {'inner validation (SE)':22}  test, mean of folds [95 %]")
    for one in record.candidates:
        mark = "*" if one.within_one_se else " "
        chosen_by = f"{_validation(one.validation)}{mark}"
        print(f"{one.name:{wide}}  {one.parameters:>11,}  {chosen_by:22}  {with_interval(one.test)}")
    print("* within one standard error of the best on inner validation images")
    for fold in record.folds:
        members = f" ({', '.join(fold.members)})" if fold.members else ""
        tested = "undefined" if fold.test is None else f"{fold.test:.3f}"
        print(f"fold {fold.fold} chooses {fold.chosen}{members}: {tested} on its test images")
    print(f"nested choice: {with_interval(record.nested)}   <- the figure to report")
    print(f"apparent best: {with_interval(record.apparent.test)} ({record.apparent.name}), chosen on the test images")
    print(
        f"apparent minus nested: {with_interval(record.apparent_minus_nested)}, which is the optimism of choosing on "
        "the test images and the loss from choosing on few inner validation images together"
    )
    winner = record.winner
    members = f" ({', '.join(winner.members)})" if winner.members else ""
    print(f"winner: {winner.name}{members}, {winner.parameters:,} parameters")
    for left in record.left_out:
        print(f"left out: {left.run}: {left.reason}")
    for warning in record.warnings:
        print(f"Warning: {warning}")
    print("For research use, not a medical device.")
    print("score with it:")
    for command in record.commands:
        print(f"  {command}")


def _validation(one: "BestValidation") -> str:
    error = "no SE" if one.standard_error is None else f"{one.standard_error:.3f}"
    return f"{one.value:.3f} ({error})"
