"""Paired comparison of runs on the same images: every pair, with Holm's correction, as compare.json contains it."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from usvit.config.comparison import MarginTest
from usvit.data.splits import contamination_warning
from usvit.errors import UsvitError
from usvit.estimate import Difference
from usvit.evaluation.comparison import compare_tables, fold_ratio, paired_tables
from usvit.evaluation.cross_validation_headline import headline_section, share_of
from usvit.evaluation.decision_comparison import (
    AREA,
    FIGURES,
    Section,
    compare_accuracy,
    compare_decisions,
    compare_subgroups,
    correct_claims,
    correct_section,
    judge_margin,
)
from usvit.evaluation.decisions import KEY, Decided, decided_by_repeat
from usvit.evaluation.evaluate_predictions import Predictions, open_predictions, run_of
from usvit.evaluation.foreign_tables import Columns
from usvit.evaluation.metrics_sections import SUBGROUP_COLUMNS
from usvit.evaluation.pooled_figures import figure_points, figures_with_intervals, mean_and_sd
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.predictions import first_repeat
from usvit.evaluation.tables_beside_runs import open_beside
from usvit.figure_table import COMPARED
from usvit.metrics.checks import group_codes
from usvit.metrics.paired_tests import holm
from usvit.metrics.support import few_groups_sentences
from usvit.records import ComparedRun, CompareRecord, McNemar, Pair
from usvit.wording import listed

TESTS = ("headline", "auc", "auc_macro_ovr", "mcnemar", "auc_over_folds")

_FEW_FOR_CLAIMS = (
    "With so few groups, non-inferiority and equivalence are claimed wrongly slightly more often than stated: in "
    "simulated studies of 38 patients in up to 4 % of the studies at the margin instead of 2.5 %."
)
"""Measured by the table ``margins`` of ``benchmarks.coverage``."""


def open_all(paths: Sequence[Path], positive: str | None, columns: Columns) -> list[Predictions]:
    """Open runs and tables; a table that lies in no run is read as one of the images of the first run."""
    alone = [path.is_file() and run_of(path) is None for path in paths]
    run = next(
        (open_predictions(path, positive=positive) for path, no_run in zip(paths, alone, strict=True) if not no_run),
        None,
    )
    if run is None:
        return [open_predictions(path, positive=positive, columns=columns) for path in paths]
    return [
        open_beside(path, run, columns) if no_run else open_predictions(path, positive=positive)
        for path, no_run in zip(paths, alone, strict=True)
    ]


def names_of(opened: Sequence[Predictions], paths: Sequence[Path], asked: Sequence[str]) -> list[str]:
    """Return the names of all runs and tables, with those that were asked for.

    Raises:
        UsvitError: the number of names fits neither the tables nor all runs, or two are equal.
    """
    usual = _usual_names(opened, paths)
    tables = [at for at, one in enumerate(opened) if one.record is None or one.record.kind == "evaluation"]
    if not asked:
        return usual
    if len(asked) not in (len(tables), len(usual)):
        raise UsvitError(
            f"--name was given {len(asked)} times. Give it once for each table ({len(tables)}), or for each run and "
            f"table ({len(usual)}), in their order."
        )
    places = range(len(usual)) if len(asked) == len(usual) else tables
    named = [*usual]
    for at, name in zip(places, asked, strict=True):
        named[at] = name
    if len(set(named)) < len(named):
        raise UsvitError(f"Two runs or tables have one name: {', '.join(named)}. Give different ones with --name.")
    return named


def _usual_names(opened: Sequence[Predictions], paths: Sequence[Path]) -> list[str]:
    """Return the name of each folder or file, with its parent folder if two names are equal."""
    names = [one.name for one in opened]
    if len(set(names)) < len(names):
        names = [f"{path.resolve().parent.name}/{name}" for path, name in zip(paths, names, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{number}: {name}" for number, name in enumerate(names, 1)]
    return names


def compare_predictions(
    opened: Sequence[Predictions],
    names: Sequence[str],
    margin: float | None = None,
    claim: MarginTest = "noninferiority",
    primary: str = AREA,
) -> CompareRecord:
    """Compare all pairs; ``margin``, ``claim`` (its test), ``primary`` and raises as ``compare``."""
    first = opened[0]
    for other, name in zip(opened[1:], names[1:], strict=True):
        paired_tables(first.table, other.table, (names[0], name))
        if other.positive != first.positive:
            raise UsvitError(
                f"The positive class of {names[0]} is {first.positive}, that of {name} is {other.positive}: "
                "name one with --positive."
            )
    test_rows = first_repeat(first.table).sort_values(KEY, kind="stable")
    test_rows = test_rows[test_rows["part"] == "test"]
    decided = {
        name: decided_by_repeat(one.table, first.positive, first.classes)
        for one, name in zip(opened, names, strict=True)
    }
    pairs: list[Pair] = []
    for (a, name_a), (b, name_b) in itertools.combinations(zip(opened, names, strict=True), 2):
        of_a, of_b = decided[name_a], decided[name_b]
        ratios = [one.test_over_train for one in (a, b) if one.test_over_train is not None]
        ratio = float(np.mean(ratios)) if ratios else _ratio(of_a)
        found = compare_tables(a.table, b.table, positive=first.positive, names=(name_a, name_b), ratio=ratio)
        pairs.append(
            Pair(
                **dict(found),
                decisions=compare_decisions(of_a, of_b, ratio),
                accuracy=compare_accuracy(of_a, of_b, ratio),
                subgroups=compare_subgroups(of_a[0], of_b[0], test_rows, first.columns, SUBGROUP_COLUMNS),
            )
        )
    pairs = correct_section(_corrected(pairs), "decisions", FIGURES)
    pairs = correct_section(pairs, "subgroups", ("auc",))
    declared = None
    if margin is not None:
        pairs, declared = _with_claims(pairs, decided, margin, claim, primary)
    n_groups = int(test_rows["group_id"].nunique())
    poolings = [one.unit.pooling if one.unit else None for one in opened]
    if len(set(poolings)) == 1:
        poolings = [None] * len(opened)
    contaminated = [(name, contamination_warning(one.contamination)) for one, name in zip(opened, names, strict=True)]
    said = [f"{name}: {warning}" for name, warning in contaminated if warning]
    said += [*dict.fromkeys(warning for one in opened for warning in one.warnings)]
    tested = rows_of(first.table, "test", first.classes)
    few = few_groups_sentences(tested.label, group_codes(tested.group, len(tested))[0], first.classes)
    said += [*few, *([_FEW_FOR_CLAIMS] if few and margin is not None else [])]
    said += _unlike_shares(opened, names, first.positive)
    if any(one.split_by_image for one in opened):
        said.append("LEAKING SPLIT: the images were split one by one, so patients occur in both training and test.")
    return CompareRecord(
        positive_class=first.positive,
        classes=first.classes,
        n_images=len(test_rows),
        n_groups=n_groups,
        n_folds=int(test_rows["fold"].nunique()),
        class_counts={name: int((test_rows["label"] == name).sum()) for name in first.classes},
        unit=first.unit,
        runs=[
            _own(one, name, first.classes, first.positive, pooling)
            for one, name, pooling in zip(opened, names, poolings, strict=True)
        ],
        pairs=pairs,
        n_compared=len(pairs),
        non_inferiority_margin=margin if claim == "noninferiority" else None,
        equivalence_margin=margin if claim == "equivalence" else None,
        primary_figure=declared,
        warnings=said,
    )


def _corrected(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the pairs with p-values after Holm's correction, each test over all pairs."""
    p_holm = {
        test: holm({index: getattr(pair, test).p for index, pair in enumerate(pairs)}) for test in (*TESTS, "accuracy")
    }

    def corrected(test: Difference | McNemar, adjusted: float | None) -> Difference | McNemar:
        if isinstance(test, McNemar):
            return test.model_copy(update={"p_holm": adjusted})
        return test if test.p is None else test.replace(p_holm=adjusted)

    return [
        pair.model_copy(update={test: corrected(getattr(pair, test), p_holm[test][index]) for test in p_holm})
        for index, pair in enumerate(pairs)
    ]


def _ratio(decided: Sequence[Decided]) -> float:
    return fold_ratio(np.concatenate([one.rows.fold for one in decided]), len(decided[0].rows))


def _with_claims(
    pairs: Sequence[Pair],
    decided: Mapping[str, Sequence[Decided]],
    margin: float,
    test: MarginTest,
    primary: str,
) -> tuple[list[Pair], str]:
    """Return the pairs with claims of non-inferiority or equivalence, and the name of the primary figure."""
    section: Section = "non_inferiority" if test == "noninferiority" else "equivalence"
    judged = [
        pair.model_copy(update={section: judge_margin(decided[pair.a], decided[pair.b], pair, margin, test)})
        for pair in pairs
    ]
    return correct_claims(judged, section, primary)


def _own(one: Predictions, name: str, classes: list[str], positive: str, pooling: str | None) -> ComparedRun:
    """Return the figures of a run: the AUC within folds as headline, pooled figures, and the spread over folds."""
    rows = rows_of(one.table, "test", classes)
    pooled = figures_with_intervals(rows.label, rows.prob, rows.group, classes=classes, positive=positive, ranked=False)
    every = rows_of(one.table, "test", classes, every_repeat=True)
    folds = [
        figure_points(part.label, part.prob, part.group, classes=classes, positive=positive)
        for part in (every[every.fold == k] for k in np.unique(every.fold))
    ]
    return ComparedRun(
        name=name,
        headline=headline_section(one.table, positive, pooled).auc,
        **{row.key: pooled.figure(row.key, positive) for row in COMPARED},
        pooling=pooling,
        mean_sd={row.key: mean_and_sd([fold.figure(row.key, positive) for fold in folds]) for row in COMPARED},
    )


def _unlike_shares(opened: Sequence[Predictions], names: Sequence[str], positive: str) -> list[str]:
    """Say that intervals of runs are of unlike length if the training share of some of them cannot be estimated."""
    shares = {
        name: share_of([one.table], positive)
        for one, name in zip(opened, names, strict=True)
        if one.table.loc[one.table["part"] == "test", "fold"].nunique() > 1
    }
    assumed = [name for name, share in shares.items() if share.reason]
    known = [name for name in shares if name not in assumed]
    if not assumed or not known:
        return []
    return [
        f"The AUCs within folds of {listed(assumed)} have longer intervals than the same scores would have in "
        f"{listed(known)}: without inner validation rows, the training share cannot be estimated, and the "
        "largest is assumed. The interval of a difference to such a table is long for the same reason."
    ]
