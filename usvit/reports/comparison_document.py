"""The document of a comparison, from compare.json: for the page, Markdown, LaTeX and the terminal."""

from collections.abc import Iterator, Mapping, Sequence

import usvit.documents as doc
from usvit.estimate import Difference
from usvit.figure_table import COMPARED
from usvit.records import CompareRecord, Pair
from usvit.reports.claims import ClaimLine, claim_lines
from usvit.reports.formatting import of_units, p_words, rows_words, rule_words, spread, unit_sentence
from usvit.reports.remarks import remarks
from usvit.wording import counted, plural

_P = doc.numbers("p", "p, Holm")
_DECISIONS = tuple(row for row in COMPARED if not row.key.startswith("auc"))
_HOLM = "Holm: corrected for all p-values of this table."


def comparison_document(record: CompareRecord, plots: Mapping[str, doc.Plot] | None = None) -> doc.Document:
    """Build the document of a comparison.

    Args:
        record: the content of compare.json.
        plots: ``roc`` and ``differences``; the terminal, Markdown and LaTeX need none.
    """
    shown = plots or {}
    poolings = {run.name: run.pooling for run in record.runs if run.pooling}
    sections = [_runs(record, shown), _differences(record, shown), _decisions(record)]
    sections += [_claims(record)] if record.primary_figure else []
    sections += [_subgroups(record)] if record.pairs[0].subgroups else []
    folds = plural(record.n_folds, "fold")
    return doc.Document(
        title=", ".join(run.name for run in record.runs),
        kind=f"Comparison on the same {rows_words(record)} in {plural(record.n_groups, 'group')}, "
        f"{folds}. Positive class: {record.positive_class} ({counted(record.class_counts)}).",
        lead=[
            *([doc.Paragraph(unit_sentence(record, poolings).strip())] if record.unit else []),
            *(doc.Note(warning) for warning in record.warnings),
        ],
        sections=[*sections, _methods(record)],
        made_from="the predictions of the runs only. All files hold the same numbers: compare.json, compare.md, "
        "compare.tex",
        name="usvit comparison",
    )


def _runs(record: CompareRecord, plots: Mapping[str, doc.Plot]) -> doc.DocumentSection:
    positive, several = record.positive_class, record.n_folds > 1
    share = ", with a 95 % interval that counts groups and accounts for the training images that folds share"
    pooled = ", which ranks scores of different models against each other; its interval takes the models as given"
    areas = doc.Table(
        "AUC of each run",
        [
            "Run",
            *doc.numbers(f"AUC within folds, {positive} vs rest", "AUC, pooled"),
            *doc.numbers("Mean ± SD of folds", "Macro AUC, pooled", detail=True),
        ],
        [(run.name, run.headline, run.auc, spread(run.mean_sd["auc"]), run.auc_macro_ovr) for run in record.runs],
        f"Within folds: the mean of the AUCs of the folds{share if several else ''}. Pooled: the AUC of all test "
        f"images as one set{pooled if several else ''}. The SD of the folds is not a confidence interval.",
    )
    decisions = doc.Table(
        "Decisions of each run",
        ["Run", *doc.numbers(*(row.titled(row.page or row.title, positive) for row in _DECISIONS))],
        [(run.name, *(getattr(run, row.key) for row in _DECISIONS)) for run in record.runs],
        f"Each {record.row} is assigned to its most probable class.",
        detail=True,
    )
    caption = f"ROC curves, {positive} against the rest, pooled test images."
    roc = [doc.Figure(plots["roc"], caption)] if "roc" in plots else []
    return doc.DocumentSection(of_units("Runs", record), [areas, decisions, *roc], "runs")


def _differences(record: CompareRecord, plots: Mapping[str, doc.Plot]) -> doc.DocumentSection:
    caption = "Mean difference of AUCs within folds, numbered as in the table. If an interval contains 0, the data do "
    caption += "not show which run is better."
    if record.non_inferiority_margin is not None:
        caption += (
            " Dashed lines: the margin. For a single pair, the first run is non-inferior if its whole interval lies "
            "right of the left line, and the second if the interval lies left of the right line."
        )
    elif record.equivalence_margin is not None:
        caption += (
            " Dashed lines: the margin. Thick: the 90 % interval; the runs of a single pair are equivalent if it lies "
            "between the lines."
        )
    shown = [doc.Figure(plots["differences"], caption, wide=True)] if "differences" in plots else []
    table = doc.Table(
        "Differences of each pair",
        ["Figure", *doc.numbers("Difference"), *_P],
        [row for number, pair in enumerate(record.pairs, 1) for row in _pair_rows(record, pair, number)],
        "First run minus second run, paired by image, with 95 % intervals that count groups (patients). "
        + (
            "The pooled figures and their p take the models as given: they do not tell whether a way of training is "
            "better. "
            if record.n_folds > 1
            else ""
        )
        + f"Holm: corrected for {plural(record.n_compared, 'pair')}.",
    )
    return doc.DocumentSection("Differences", [*shown, table, *_reasons(record)], "differences")


def _pair_rows(record: CompareRecord, pair: Pair, number: int) -> Iterator[doc.TableRow]:
    several = record.n_folds > 1
    yield doc.TableRow((f"{number}. {_named(pair)}",), "group")
    yield _row("AUC within folds: these ways of training" if several else "AUC: these two models", pair.headline)
    if several:
        yield _row("AUC, pooled: these predictions", pair.auc)
    yield _row("Macro AUC, pooled", pair.auc_macro_ovr, detail=True)
    yield _row("Accuracy", pair.accuracy)
    yield _row("AUC over folds, Nadeau-Bengio", pair.auc_over_folds, detail=True)
    only = f"{pair.mcnemar.only_a} and {pair.mcnemar.only_b} of {record.n_images}"
    cells = ("Correct in the first only, in the second only", only)
    yield doc.TableRow((*cells, p_words(pair.mcnemar.p), p_words(pair.mcnemar.p_holm)), detail=True)


def _row(name: str, value: Difference, *, detail: bool = False) -> doc.TableRow:
    return doc.TableRow((name, *_tested(value)), detail=detail)


def _tested(value: Difference) -> tuple[doc.Cell, doc.Cell, doc.Cell]:
    return value, p_words(value.p), p_words(value.p_holm)


def _named(pair: Pair) -> str:
    return f"{pair.a} minus {pair.b}"


def _reasons(record: CompareRecord) -> list[doc.Block]:
    """Say why an interval or a p is missing."""
    named: list[tuple[str, Difference]] = []
    for pair in record.pairs:
        named += [("AUC within folds", pair.headline), ("AUC, pooled", pair.auc), ("macro AUC", pair.auc_macro_ovr)]
        named += [("accuracy", pair.accuracy), ("AUC over folds", pair.auc_over_folds)]
    said = remarks(named, warnings=False)
    said += dict.fromkeys(f"No McNemar test: {pair.mcnemar.reason}." for pair in record.pairs if pair.mcnemar.reason)
    return [doc.Listing(said, small=True)] if said else []


def _decisions(record: CompareRecord) -> doc.DocumentSection:
    positive = record.positive_class
    taken = "The intervals and p take both models and their thresholds as given."
    if record.n_folds > 1:
        taken = (
            "Each difference is the mean of the differences of the folds; interval and p use these differences alone "
            "as the sample, so they contain the choice of the thresholds and the training."
        )
    rows = []
    for pair in record.pairs:
        rows.append(doc.TableRow((_named(pair),), "group"))
        for number, one in enumerate(pair.decisions):
            if one.sensitivity is None or one.specificity is None:
                cells: tuple[doc.Cell, ...] = (rule_words(one.rule), one.reason)
            else:
                cells = (rule_words(one.rule), *_tested(one.sensitivity), *_tested(one.specificity))
            rows.append(doc.TableRow(cells, detail=number > 0))
    table = doc.Table(
        "Differences of decisions",
        ["Decision", *doc.numbers("Sensitivity"), *_P, *doc.numbers("Specificity"), *_P],
        rows,
        f"Differences with 95 % intervals. {_HOLM}",
    )
    said = (
        f"Sensitivity and specificity for {positive} against the rest: first run minus second run on the same images. "
        f"At an operating point, each run has its own thresholds, which were chosen without these images. {taken}"
    )
    return doc.DocumentSection("Decisions", [doc.Paragraph(said), table], "decisions")


def _claims(record: CompareRecord) -> doc.DocumentSection:
    lines = claim_lines(record)
    if record.non_inferiority_margin is not None:
        margin, wrong, title = f"{record.non_inferiority_margin:g}", "2.5", "Non-inferiority"
        meaning = (
            f"The claim “first against second” is that the first run is not worse than the second by the margin or "
            "more. p is below 0.025 exactly if the lower bound of the one-sided 97.5 % interval of the difference lies "
            f"above −{margin}. “Not shown” does not mean “inferior”."
        )
        once = "; of the two directions of a pair at most one can be wrong, so they count once"
    else:
        margin, wrong, title, once = f"{record.equivalence_margin:g}", "5", "Equivalence", ""
        meaning = (
            f"These are two one-sided tests at 5 %: p is below 0.05 exactly if the whole 90 % interval of the "
            f"difference, first run minus second run, lies between −{margin} and {margin}. “Not shown” does not mean "
            "“different”."
        )
    verdicts = (
        f"Only the primary figure has verdicts ({record.primary_figure}, chosen with --primary). They use p after "
        f"Holm's correction for all pairs{once}. Of all verdicts together, one is wrong in at most {wrong} % of "
        "comparisons, if the figure and the margin were chosen before the comparison."
    )
    primary = [one for one in lines if one.figure == record.primary_figure]
    others = [one for one in lines if one.figure != record.primary_figure]
    return doc.DocumentSection(
        f"{title} with a margin of {margin}",
        [
            doc.Paragraph(meaning),
            doc.Paragraph(verdicts),
            _claim_table("Primary figure", "Primary figure.", primary),
            _claim_table("Other figures", f"Other figures, without verdicts. {_HOLM}", others, detail=True),
        ],
        "noninferiority" if title == "Non-inferiority" else "equivalence",
        title,
    )


def _claim_table(name: str, caption: str, lines: Sequence[ClaimLine], *, detail: bool = False) -> doc.Table:
    rows: list[tuple[doc.Cell, ...]] = [
        (one.runs, rule_words(one.figure), one.verdict, one.limits, p_words(one.p), p_words(one.p_holm))
        for one in lines
    ]
    return doc.Table(name, ["Claim", "Figure", "Verdict", "Limits", *_P], rows, caption, detail=detail)


def _subgroups(record: CompareRecord) -> doc.DocumentSection:
    rows = []
    for pair in record.pairs:
        rows.append(doc.TableRow((_named(pair),), "group"))
        for one in pair.subgroups:
            name = f"{one.by.replace('_', ' ')}: {one.level}"
            rows.append(doc.TableRow((name, one.n_images, one.n_groups, *_tested(one.auc))))
    table = doc.Table(
        "Differences within subgroups",
        [doc.Column("Subgroup"), *doc.numbers("Images", "Groups", "AUC"), *_P],
        rows,
        f"Difference of AUCs, {record.positive_class} against the rest, within each subgroup, pooled; interval and p "
        f"take the models as given. {_HOLM}",
    )
    return doc.DocumentSection("Within subgroups", [table], "subgroups", "Subgroups", detail=True)


def _methods(record: CompareRecord) -> doc.DocumentSection:
    pair, several = record.pairs[0], record.n_folds > 1
    within = (
        "Is the training procedure better at this number of images? Each fold's difference comes from one pair of "
        "models. The variance counts groups, and it counts the part due to chance in training twice, because folds "
        "train on each other's test images."
        if several
        else "Does this one model rank better than the other? One training per model cannot show whether the training "
        "procedure is better."
    )
    given = (
        " A test that takes the models and thresholds as given, such as McNemar's, would find differences between "
        "equal ways of training, because one threshold shifts all decisions of its fold."
        if several
        else f" {pair.mcnemar.warning}."
        if pair.mcnemar.warning
        else ""
    )

    def method(value: Difference) -> str:
        return value.method or "undefined"

    return doc.DocumentSection(
        "Methods",
        [
            doc.Facts(
                [
                    ("AUC within folds", f"{method(pair.headline)}: {within}"),
                    ("AUC, pooled", f"{method(pair.auc)}: Do these predictions rank better on patients like these?"),
                    (
                        "Accuracy, sensitivity and specificity",
                        f"{method(pair.accuracy)}: Are the decisions correct more often?{given}",
                    ),
                    (
                        "Over folds",
                        f"{method(pair.auc_over_folds)}: The same question as within folds, with only the differences "
                        "of the folds as the sample. The sample is small, so the test has less power.",
                    ),
                ]
            )
        ],
        "method",
        detail=True,
    )
