"""Comparison of runs: one page, and the same content as JSON, Markdown and LaTeX."""

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.figure import Figure

from usvit.arguments import checked_arguments
from usvit.data.splits import contamination_warning
from usvit.errors import UsvitError
from usvit.estimate import Estimate
from usvit.estimate_text import WORDS, clear_of_zero, estimate_text
from usvit.evaluation import (
    AREA,
    SUBGROUP_COLUMNS,
    USUAL_COLUMNS,
    Columns,
    Decided,
    Predictions,
    compare_accuracy,
    compare_decisions,
    compare_subgroups,
    compare_tables,
    correct_claims,
    correct_section,
    decided_by_repeat,
    figure_points,
    figures_with_intervals,
    first_repeat,
    fold_ratio,
    headline_section,
    judge_margin,
    mean_and_sd,
    open_beside,
    open_predictions,
    paired_tables,
    rows_of,
    run_of,
    share_of,
)
from usvit.evaluation import FIGURES as DECISION_FIGURES
from usvit.evaluation import KEY as DECIDED_KEY
from usvit.files import OutputFolder, write_text
from usvit.markup import latex_text, markdown_text
from usvit.metrics.basic import roc
from usvit.metrics.checks import group_codes
from usvit.metrics.figure_table import HEADLINE
from usvit.metrics.margin_tests import MarginTest, check_margin, check_test
from usvit.metrics.paired_tests import holm
from usvit.metrics.support import few_groups_sentences
from usvit.records import CompareRecord, MeanSd, write_record
from usvit.reports.claims import claim_lines, claims_title
from usvit.reports.formatting import listed as listed_words
from usvit.reports.formatting import p_words
from usvit.reports.svg import DASHES, GRID, INK, MUTED, N_SERIES, SERIES, drawing_style, to_svg

FILES = ("compare.json", "compare.md", "compare.tex", "compare.html")
FIGURES = tuple(row.key for row in HEADLINE if row.key not in ("auc", "brier"))
TESTS = ("headline", "auc", "auc_macro_ovr", "mcnemar", "auc_over_folds")
TITLES = {
    "headline": "mean difference of AUCs within folds, corrected",
    "auc": "difference of AUCs, pooled",
    "auc_macro_ovr": "difference of macro AUCs",
    "mcnemar": "McNemar",
    "auc_over_folds": "Nadeau-Bengio t",
}

FEW_FOR_CLAIMS = (
    "With so few groups, non-inferiority and equivalence are claimed wrongly slightly more often than stated: in "
    "simulated studies of 38 patients in up to 4 % of the studies at the margin instead of 2.5 %."
)
"""Measured by the table ``margins`` of ``benchmarks.coverage``."""

# Braces and per cent signs are LaTeX's own.
_TEX_SIGNS: dict[str, Any] = {"variable_start_string": "<<", "variable_end_string": ">>"}
_TEX_SIGNS |= {"comment_start_string": "<#", "comment_end_string": "#>"}


@checked_arguments
def compare(
    *runs: str | Path,
    positive: str | None = None,
    margin: float | None = None,
    test: str | None = None,
    primary: str = AREA,
    columns: Columns = USUAL_COLUMNS,
    names: Sequence[str] = (),
    out: str | Path | None = None,
) -> tuple[CompareRecord, Path]:
    """Compare two or more runs (or predictions tables) on the same images, pair by pair, and write the page.

    Args:
        runs: two or more run directories or predictions tables.
        positive: the positive class; None takes the runs' own, or 'malignant'.
        margin: difference of AUC, accuracy, sensitivity and specificity in (0, 0.5) that would not matter; None makes
            no claim.
        test: ``noninferiority`` (each run is not worse than the other by the margin or more) or ``equivalence`` (they
            differ by less than the margin either way); None takes ``noninferiority``.
        primary: the figure that was declared beforehand, which alone gets verdicts: ``AUC``, ``accuracy``,
            ``sensitivity`` or ``specificity`` (of the most probable class), or one of an operating point, such as
            ``specificity, sensitivity >= 0.95``. Only with a margin.
        columns: which column of the tables holds what. Beside a run, columns are also found by the names of its images
            and classes, and labels, groups and folds are those of the run (``evaluation.open_beside``).
        names: names of the tables on the page, in their order; or of all runs and tables.
        out: the folder to write; None takes ``compare-<run>-<run>...`` in the current folder.

    Returns:
        The content of compare.json (docs/reference/compare.schema.json), and the folder with ``FILES``.

    Raises:
        UsvitError: fewer than two runs or one twice; images, labels, groups, folds or positive classes of two runs
            differ (the difference is named); ``out`` holds other files; there is no such ``primary`` figure; and as
            ``open_predictions``.

    Example:
        >>> import usvit
        >>> record, folder = usvit.compare("runs/small", "runs/other", out="comparison")
        >>> len(record.pairs), (folder / "compare.html").is_file()
        (1, True)
    """
    paths = [Path(run) for run in runs]
    claim = check_test(test) if test is not None else "noninferiority"
    if margin is not None:
        check_margin(margin)
    elif test is not None:
        raise UsvitError(f"--test {claim} needs a --margin, such as 0.05: the difference that would not matter.")
    elif primary != AREA:
        raise UsvitError(
            f"--primary {primary} needs a --margin, such as 0.05: it is the figure that a verdict is about."
        )
    if len(paths) < 2:
        raise UsvitError("Name at least two runs or predictions tables to compare.")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsvitError("The same run is named twice. Name different runs.")
    opened = _opened(paths, positive, columns)
    names = _named(_names(opened, paths), names, opened)
    folder = Path(out) if out else Path("compare-" + re.sub(r"[^\w.+-]+", "-", "-".join(names)))
    output = OutputFolder(folder, "a comparison", files=FILES)
    output.refuse_other_files()
    content = compare_predictions(opened, names, margin, claim, primary)
    tables = [rows_of(one.table, "test", opened[0].classes) for one in opened]
    k = opened[0].classes.index(opened[0].positive)
    curves = [roc(rows.label == k, rows.prob[:, k]) for rows in tables]
    with output.opened():
        record = write_record(folder / "compare.json", content, CompareRecord)
        write_text(folder / "compare.md", _render("compare.md.j2", record))
        write_text(folder / "compare.tex", _render("compare.tex.j2", record))
        drawings = {"roc": _draw_roc(curves), "differences": _draw_differences(record)}
        write_text(folder / "compare.html", _render("compare.html.j2", record, drawings=drawings))
    return record, folder


def compare_predictions(
    opened: Sequence[Predictions],
    names: Sequence[str],
    margin: float | None = None,
    claim: MarginTest = "noninferiority",
    primary: str = AREA,
) -> dict[str, Any]:
    """The content of compare.json; ``margin``, ``claim`` (its test), ``primary`` and raises as ``compare``."""
    first = opened[0]
    for other, name in zip(opened[1:], names[1:], strict=True):
        paired_tables(first.table, other.table, (names[0], name))
        if other.positive != first.positive:
            raise UsvitError(
                f"The positive class of {names[0]} is {first.positive}, that of {name} is {other.positive}: "
                "name one with --positive."
            )
    runs = [{"name": name, **_own(one, first.classes, first.positive)} for one, name in zip(opened, names, strict=True)]
    pairs: list[dict[str, Any]] = []
    decided = {
        name: decided_by_repeat(one.table, first.positive, first.classes)
        for one, name in zip(opened, names, strict=True)
    }
    for (a, name_a), (b, name_b) in itertools.combinations(zip(opened, names, strict=True), 2):
        ratios = [one.test_over_train for one in (a, b) if one.test_over_train is not None]
        ratio = float(np.mean(ratios)) if ratios else _ratio(decided[name_a])
        found = compare_tables(a.table, b.table, positive=first.positive, names=(name_a, name_b), ratio=ratio)
        pair = {"a": name_a, "b": name_b, **{test: found[test] for test in TESTS}}
        pair["decisions"] = compare_decisions(decided[name_a], decided[name_b], ratio)
        pair["accuracy"] = compare_accuracy(decided[name_a], decided[name_b], ratio)
        pairs.append(pair)
    for test in (*TESTS, "accuracy"):
        adjusted = holm({index: _p_of(pair[test]) for index, pair in enumerate(pairs)})
        for index, pair in enumerate(pairs):
            pair[test] = _with_holm(pair[test], adjusted[index])
    correct_section(pairs, "decisions", DECISION_FIGURES)
    _add_subgroups(pairs, first, decided)
    declared = None if margin is None else _add_claims(pairs, decided, margin, claim, primary)
    test_rows = first_repeat(first.table)
    test_rows = test_rows[test_rows["part"] == "test"]
    n_groups = int(test_rows["group_id"].nunique())
    contaminated = [(name, contamination_warning(one.contamination)) for one, name in zip(opened, names, strict=True)]
    said = [f"{name}: {warning}" for name, warning in contaminated if warning]
    said += [*dict.fromkeys(warning for one in opened for warning in one.warnings)]
    tested = rows_of(first.table, "test", first.classes)
    few = few_groups_sentences(tested.label, group_codes(tested.group, len(tested))[0], first.classes)
    said += [*few, *([FEW_FOR_CLAIMS] if few and margin is not None else [])]
    said += _unlike_shares(opened, names, first.positive)
    if any(one.split_by_image for one in opened):
        said.append("LEAKING SPLIT: the images were split one by one, so patients occur in both training and test.")
    return {
        "schema_version": CompareRecord.VERSION,
        "positive_class": first.positive,
        "classes": first.classes,
        "n_images": len(test_rows),
        "n_groups": n_groups,
        "n_folds": int(test_rows["fold"].nunique()),
        "class_counts": {name: int((test_rows["label"] == name).sum()) for name in first.classes},
        "runs": runs,
        "pairs": pairs,
        "n_compared": len(pairs),
        "non_inferiority_margin": margin if claim == "noninferiority" else None,
        "equivalence_margin": margin if claim == "equivalence" else None,
        "primary_figure": declared,
        "warnings": said,
    }


def _p_of(test: Estimate | dict[str, Any]) -> float | None:
    p: float | None = test.p if isinstance(test, Estimate) else test["p"]
    return p


def _with_holm(test: Estimate | dict[str, Any], p_holm: float | None) -> Estimate | dict[str, Any]:
    """Add a corrected p to a difference, or to McNemar's test."""
    if isinstance(test, Estimate):
        return test if test.p is None else test.replace(p_holm=p_holm)
    return {**test, "p_holm": p_holm}


def _ratio(decided: Sequence[Decided]) -> float:
    return fold_ratio(np.concatenate([one.rows.fold for one in decided]), len(decided[0].rows))


def _add_subgroups(pairs: list[dict[str, Any]], first: Predictions, decided: Mapping[str, Sequence[Decided]]) -> None:
    """Add the differences within subgroups to each pair; of the first repeat, as all pooled figures."""
    test = first_repeat(first.table).sort_values(DECIDED_KEY, kind="stable")
    test = test[test["part"] == "test"]
    for pair in pairs:
        a, b = decided[pair["a"]][0], decided[pair["b"]][0]
        pair["subgroups"] = compare_subgroups(a, b, test, first.columns, SUBGROUP_COLUMNS)
    correct_section(pairs, "subgroups", ("auc",))


def _add_claims(
    pairs: list[dict[str, Any]],
    decided: Mapping[str, Sequence[Decided]],
    margin: float,
    test: MarginTest,
    primary: str,
) -> str:
    """Add the claims of non-inferiority or equivalence to each pair; return the name of the primary figure."""
    section = "non_inferiority" if test == "noninferiority" else "equivalence"
    for pair in pairs:
        pair[section] = judge_margin(decided[pair["a"]], decided[pair["b"]], pair, margin, test)
    return correct_claims(pairs, section, primary)


def _own(one: Predictions, classes: list[str], positive: str) -> dict[str, Any]:
    """Return the figures of a run: the AUC within folds as headline, pooled figures, and the spread over folds."""
    rows = rows_of(one.table, "test", classes)
    pooled = figures_with_intervals(rows.label, rows.prob, rows.group, classes=classes, positive=positive, ranked=False)
    every = rows_of(one.table, "test", classes, every_repeat=True)
    folds = [
        figure_points(part.label, part.prob, part.group, classes=classes, positive=positive)
        for part in (every[every.fold == k] for k in np.unique(every.fold))
    ]

    def headline(figures: dict[str, Any]) -> dict[str, Any]:
        own = {"auc": figures["auc"][f"{positive}_vs_rest"]}
        for name in FIGURES:
            own[name] = figures[name] if isinstance(figures[name], Estimate) else figures[name][positive]
        return own

    own = headline(pooled)
    by_fold = [headline(figures) for figures in folds]
    spread = {name: mean_and_sd(own[name], [figures[name] for figures in by_fold]) for name in own}
    return {"headline": headline_section(one.table, positive, pooled)["auc"], **own, "mean_sd": spread}


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
        f"The AUCs within folds of {listed_words(assumed)} have longer intervals than the same scores would have in "
        f"{listed_words(known)}: without inner validation rows, the training share cannot be estimated, and the "
        "largest is assumed. The interval of a difference to such a table is long for the same reason."
    ]


def _opened(paths: Sequence[Path], positive: str | None, columns: Columns) -> list[Predictions]:
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


def _named(usual: list[str], asked: Sequence[str], opened: Sequence[Predictions]) -> list[str]:
    """Return the names of all runs and tables, with those that were asked for."""
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


def _names(opened: Sequence[Predictions], paths: Sequence[Path]) -> list[str]:
    """Return the name of each folder or file, with its parent folder if two names are equal."""
    names = [one.name for one in opened]
    if len(set(names)) < len(names):
        names = [f"{path.resolve().parent.name}/{name}" for path, name in zip(paths, names, strict=True)]
    if len(set(names)) < len(names):
        names = [f"{number}: {name}" for number, name in enumerate(names, 1)]
    return names


def _draw_roc(curves: Sequence[tuple[np.ndarray, np.ndarray] | None]) -> Markup:
    with drawing_style():
        figure = Figure(figsize=(3.6, 3.6), layout="constrained")
        axes = figure.add_subplot()
        axes.plot([0, 1], [0, 1], color=GRID, linewidth=1)
        for k, curve in enumerate(curves):
            if curve is not None:
                (line,) = axes.plot(*curve, color=SERIES[k % N_SERIES], linewidth=1.5)
                if DASHES[k % N_SERIES]:
                    line.set_dashes(DASHES[k % N_SERIES])
        axes.set(xlabel="1 - specificity", ylabel="Sensitivity", xlim=(-0.01, 1.01), ylim=(-0.01, 1.01), aspect="equal")
        return to_svg(
            figure, name="plot-roc", title="ROC curves of all runs, pooled test images; the AUCs are in the table"
        )


def _draw_differences(record: CompareRecord) -> Markup:
    """Draw the headline differences, the margin if there is one, and the 90 % intervals of equivalence as bars."""
    pairs, margin = record.pairs, record.non_inferiority_margin or record.equivalence_margin
    with drawing_style():
        figure = Figure(figsize=(4.6, 0.7 + 0.28 * len(pairs)), layout="constrained")
        axes = figure.add_subplot()
        axes.axvline(0, color=MUTED, linewidth=1)
        for side in (-1, 1) if margin is not None else ():
            axes.axvline(side * (margin or 0.0), color=SERIES[1], linewidth=1.2, dashes=(4, 2))
        for row, pair in enumerate(pairs):
            area = pair.headline
            if area.ci95 is not None:
                axes.plot(area.ci95, [row, row], color=INK, linewidth=1.4)
            if pair.equivalence is not None and pair.equivalence.auc.ci90 is not None:
                axes.plot(pair.equivalence.auc.ci90, [row, row], color=INK, linewidth=4, solid_capstyle="butt")
            if area.value is not None:
                axes.plot(area.value, row, marker="o", markersize=4, color=SERIES[0])
        axes.set(xlabel="Mean difference of AUCs within folds, 95 % interval", ylim=(len(pairs) - 0.5, -0.5))
        axes.set_yticks(range(len(pairs)), [str(row + 1) for row in range(len(pairs))])
        axes.grid(axis="y", visible=False)
        title = "Mean differences of AUCs within folds with 95 % intervals, in the order of the table; 0: no difference"
        return to_svg(figure, name="plot-differences", title=title)


def _render(template: str, record: CompareRecord, **more: Any) -> str:
    environment = Environment(
        loader=PackageLoader("usvit.reports"),
        autoescape=template.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        **(_TEX_SIGNS if template.endswith(".tex.j2") else {}),
    )
    environment.filters |= {"figure": _figure, "p": p_words, "tex": latex_text, "md": markdown_text, "spread": _spread}
    more |= {"claims": claim_lines(record), "claims_title": claims_title(record)}
    values = {"c": record, "titles": TITLES, "tests": TESTS, "dashes": DASHES, "n_series": N_SERIES}
    return environment.get_template(template).render(**values, **more)


def _figure(value: Estimate, dash: str = "–") -> str:
    """``0.921 (0.884–0.947)``, as journals print it."""
    style = replace(WORDS, between=dash, between_negative=" to ", end=clear_of_zero())
    return estimate_text(value, style)


def _spread(one: MeanSd, sign: str = " ± ") -> str:
    if one.mean is None:
        return "undefined"
    return f"{one.mean:.3f}" if one.sd is None else f"{one.mean:.3f}{sign}{one.sd:.3f}"
