"""The document of a study, from study.json: its table beside the paper's, spread, correlations and runs."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import usvit.documents as doc
from usvit.estimate import Estimate
from usvit.estimate_text import per_cent
from usvit.files import write_text
from usvit.upstream.records.study import StudyColumn, StudyFigure, StudyRecord, StudyRun, StudyTableRow
from usvit.upstream.studies.metric_names import OF_NETWORK
from usvit.wording import plural

_FOLDS = (
    "Figures of cross-validations are means within the folds, each image predicted by the model that did not see it, "
    "with the 95 % interval that takes patients (or clusters of near-duplicates) as the units; figures without such a "
    "mean, such as those of a class other than the positive one, are of all test images pooled."
)
_DIFFERENCE = (
    "Difference: our figure minus the paper's. Within: the difference is at most the tolerance in the head of the "
    "column or, without one, the paper's figure lies in our interval."
)


@dataclass(frozen=True)
class _Shown:
    """How a column of the study is shown."""

    column: StudyColumn
    printed: bool
    """Whether the paper prints a figure of it."""
    compared: bool
    """Whether any of its figures is compared with the paper's."""
    axis: tuple[float, float] | None
    """Limits of the axis on which its figures are drawn; None if there is nothing to draw."""


def write_pages(folder: Path, record: StudyRecord) -> Path:
    """Write ``study.html``, ``study.md`` and, with the table of results, ``study.tex``; returns the page's path."""
    document = study_document(record)
    write_text(folder / "study.md", doc.markdown_document(document))
    write_text(folder / "study.tex", doc.latex_tables(replace(document, sections=document.sections[:1])))
    write_text(folder / "study.html", doc.html_page(document))
    return folder / "study.html"


def study_document(record: StudyRecord) -> doc.Document:
    """Build the document of a study; its first section is the table of results."""
    states = [run.state for run in record.runs]
    counted = [f"{states.count('finished')} of {plural(len(states), 'run')} finished"]
    counted += [f"{states.count(state)} {state}" for state in ("failed", "running", "waiting") if state in states]
    sections = [_results(record)]
    sections += [_spread(record)] if record.seed_spread else []
    sections += [_correlations(record)] if record.correlations else []
    sections += [_failures(failed)] if (failed := failures(record)) else []
    return doc.Document(
        title=record.title,
        kind=f"A study: {', '.join(counted)}",
        lead=_lead(record),
        sections=[*sections, _runs(record), _notes(record), _repeat(record)],
        made_from=f"study.json (schema {record.schema_version})",
    )


def failures(record: StudyRecord) -> list[StudyRun]:
    """Return the runs that failed."""
    return [run for run in record.runs if run.state == "failed"]


def _lead(record: StudyRecord) -> list[doc.Block]:
    """Return what must be known before the figures, the most serious first."""
    said = [f"{run}: {warning}" for run, warning in (record.contamination or {}).items()]
    if record.scale == "tiny":
        said.append(
            "Tiny networks on generated images: these figures show that the study runs from its first step to this "
            "page. They say nothing about the paper, and nothing is compared."
        )
    elif record.other_dataset is not None and record.paper:
        said.append(
            f"These runs are on {record.other_dataset}, not on the paper's data: its figures are shown beside ours to "
            "show the layout, and nothing is compared."
        )
    if record.changed:
        said.append(f"Changed on the command line, for all runs: {', '.join(record.changed)}.")
    measured = [doc.Paragraph(f"How the paper measured: {record.paper.protocol}")] if record.paper else []
    warnings = dict.fromkeys(figure.warning for row in record.table for figure in row.figures.values())
    intervals = [doc.Note(f"Intervals: {warning}.") for warning in warnings if warning]
    return [*map(doc.Note, said), *measured, *intervals]


def _results(record: StudyRecord) -> doc.DocumentSection:
    counted = any(row.n_images for row in record.table)
    named = any(row.model and row.model != row.name for row in record.table)
    heads = [doc.Column("Row")]
    heads += [doc.Column("Model", detail=True)] if named else []
    heads += [*doc.numbers("Test images"), *doc.numbers("Groups", detail=True)] if counted else []
    weights = len({row.trained_on for row in record.table if row.trained_on}) > 1
    heads += [doc.Column("Weights trained on")] if weights else []
    columns = [_shown(record, column) for column in record.columns]
    for one in columns:
        heads += doc.numbers(_head(one.column), *(["Paper"] if one.printed else []))
        heads += [*doc.numbers("Difference"), doc.Column("Within")] if one.compared else []
    rows: list[doc.TableRow | tuple[doc.Cell, ...]] = []
    for group, members in itertools.groupby(record.table, lambda row: row.group):
        if any(row.group for row in record.table):
            rows.append(doc.TableRow((group or "Other rows",), "group"))
        for row in members:
            cells: list[doc.Cell] = [row.name]
            cells += [row.model or ""] if named else []
            cells += [_or(row.n_images, row.state), _or(row.n_groups, "")] if counted else []
            cells += [row.trained_on or "–"] if weights else []
            for one in columns:
                cells += _figure(record, row, one)
            rows.append(tuple(cells))
    title = "Ours beside the paper's" if _has_paper(record) else "Results"
    table = doc.Table(title, heads, rows, " ".join(_key(record)), _legend(columns))
    return doc.DocumentSection(title, [table, *_missing(record)], "table", "Table")


def _or(count: int | None, otherwise: str) -> doc.Words:
    return otherwise if count is None else count


def _head(column: StudyColumn) -> str:
    """Return the title of a column with its unit and tolerance: ``ImageNet-1k val (%, ±0.3)``."""
    unit = ["%"] if column.percent else []
    unit += [] if column.tolerance is None else [f"±{100 * column.tolerance if column.percent else column.tolerance:g}"]
    return f"{column.title} ({', '.join(unit)})" if unit else column.title


def _figure(record: StudyRecord, row: StudyTableRow, shown: _Shown) -> Iterator[doc.Cell]:
    """Return the cells of a figure: ours, the paper's, the difference and the verdict."""
    column, axis = shown.column, shown.axis
    one = row.figures[column.name]
    if one.value is None:
        yield "–" if one.reason or row.state == "finished" else row.state
    elif axis is None:
        yield _ours(one, column)
    else:
        yield doc.Drawn(_ours(one, column), one, axis, one.paper.value if one.paper else None)
    if shown.printed:
        yield one.paper.printed if one.paper else "–"
    if shown.compared:
        yield _difference(one, column)
        within = {True: "yes", False: "no", None: "–"}[one.within]
        ended = one.within is None and one.paper and row.state == "finished"
        yield one.within_reason if ended and record.scale == "paper" and not record.other_dataset else within


def _number(value: float | None, column: StudyColumn) -> str:
    """Format ``0.867`` as ``0.867`` or ``86.7``."""
    if value is None:
        return "–"
    return per_cent(value) if column.percent else f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"


def _ours(one: StudyFigure, column: StudyColumn) -> doc.Words:
    """Return a figure with its interval, in the unit of its column."""
    if one.value is None or one.ci95 is None:
        return _number(one.value, column)
    if not column.percent:
        return doc.Quantity(one, 3 if abs(one.value) < 10 else 1)
    low, high = one.ci95
    return doc.Quantity(Estimate(value=100 * one.value, ci95=(100 * low, 100 * high)), 1)


def _difference(one: StudyFigure, column: StudyColumn) -> str:
    """Format the difference from the paper's figure, in points if the column is in per cent: ``-0.3``."""
    if one.difference is None:
        return "–"
    return f"{100 * one.difference:+.1f}" if column.percent else f"{one.difference:+.3g}"


def _has_paper(record: StudyRecord) -> bool:
    return any(figure.paper for row in record.table for figure in row.figures.values())


def _shown(record: StudyRecord, column: StudyColumn) -> _Shown:
    figures = [row.figures[column.name] for row in record.table]
    drawn: list[float] = []
    for one in figures:
        if one.value is not None:
            drawn += [one.value, *(one.ci95 or []), *([one.paper.value] if one.paper else [])]
    axis = None
    if drawn and column.figure not in OF_NETWORK:
        margin = 0.04 * (max(drawn) - min(drawn)) or 0.01
        axis = min(drawn) - margin, max(drawn) + margin
    compared = any(one.difference is not None for one in figures)
    return _Shown(column, any(one.paper for one in figures), compared, axis)


def _key(record: StudyRecord) -> Iterator[str]:
    """Explain the columns of the table."""
    if {run.kind for run in record.runs} & {"cv", "train"}:
        yield _FOLDS
    if len(record.seeds) > 1:
        yield f"The table shows the results of seed {record.seeds[0]}."
    if _has_paper(record):
        yield _DIFFERENCE


def _legend(columns: Sequence[_Shown]) -> str:
    drawn = ", ".join(
        f"{_number(one.axis[0], one.column)} to {_number(one.axis[1], one.column)} ({one.column.title})"
        for one in columns
        if one.axis
    )
    marks = "Dot: ours, with its interval. Diamond: the paper's. " if any(one.printed for one in columns) else ""
    return f"{marks}Drawn from {drawn}." if drawn else ""


def _missing(record: StudyRecord) -> list[doc.Block]:
    """Say why figures are missing."""
    reasons: dict[str, list[str]] = {}
    for row in record.table:
        for column in record.columns:
            if reason := row.figures[column.name].reason:
                reasons.setdefault(reason, []).append(f"{row.name}, {column.title}")
    facts = doc.Facts([("; ".join(dict.fromkeys(figures)), reason) for reason, figures in reasons.items()])
    return [doc.DocumentSection("Missing figures", [facts], detail=True)] if reasons else []


def _spread(record: StudyRecord) -> doc.DocumentSection:
    paper = _has_paper(record)
    heads = doc.numbers("Seeds", "Mean", "SD", "Min", "Max", *(["Paper"] if paper else []))
    rows: list[doc.TableRow | tuple[doc.Cell, ...]] = []
    for row, spread in zip(record.table, record.seed_spread, strict=True):
        rows.append(doc.TableRow((": ".join(filter(None, [row.group, row.name])),), "group"))
        for column in record.columns:
            one, printed = spread.figures[column.name], row.figures[column.name].paper
            values = (_number(value, column) for value in (one.mean, one.sd, one.min, one.max))
            unit = " (%)" if column.percent else ""
            rows.append(
                (column.title + unit, one.n, *values, *([printed.printed if printed else "–"] if paper else []))
            )
    caption = (
        f"Figures of runs that differ only in their seed ({_seeds(record)}). The spread is that of the training, and "
        "of the folds if they are drawn again with each seed; it is not a confidence interval."
    )
    title = f"Spread over {len(record.seeds)} seeds"
    return doc.DocumentSection(
        title, [doc.Table(title, ["Figure", *heads], rows, caption)], "seeds", "Spread over seeds"
    )


def _seeds(record: StudyRecord) -> str:
    """Return the seeds: ``1 to 100``, or ``0, 1, 7``."""
    given = record.seeds
    if len(given) > 3 and given == list(range(given[0], given[0] + len(given))):
        return f"{given[0]} to {given[-1]}"
    return ", ".join(map(str, given))


def _correlations(record: StudyRecord) -> doc.DocumentSection:
    titles = {column.name: column.title for column in record.columns}
    rows: list[tuple[doc.Cell, ...]] = []
    for one in record.correlations:
        values = ("–" if value is None else f"{value:.2f}" for value in (one.pearson, one.spearman))
        rows.append((*(titles[name] for name in one.columns), one.n, *values))
    heads: list[str | doc.Column] = ["Column", "With", *doc.numbers("Pairs", "Pearson's r", "Spearman's ρ")]
    table = doc.Table("Correlations", heads, rows, "Each pair is the two figures of one row and one seed.")
    return doc.DocumentSection("Correlations, over rows and seeds", [table], "correlations", "Correlations")


def _failures(failed: list[StudyRun]) -> doc.DocumentSection:
    rows: list[tuple[str, doc.Words]] = [
        (run.id, (run.error, " ", doc.muted(f"(tried {plural(run.attempts, 'time')})"))) for run in failed
    ]
    blocks: list[doc.Block] = [doc.Paragraph("The same command tries them again."), doc.Facts(rows)]
    return doc.DocumentSection("Failed runs", blocks, "failed")


def _runs(record: StudyRecord) -> doc.DocumentSection:
    rows: list[tuple[doc.Cell, ...]] = [
        (
            doc.link(run.id, _page_of(run, record.runs_folder)) if run.state == "finished" else run.id,
            run.kind,
            f"{run.state}: {run.error}" if run.state == "waiting" and run.error else run.state,
            "–" if run.seconds is None else f"{run.seconds:,.0f}",
        )
        for run in record.runs
    ]
    table = doc.Table("Runs", ["Run", "Command", "State", *doc.numbers("Seconds")], rows)
    return doc.DocumentSection("Runs", [table], "runs", detail=True)


def _page_of(run: StudyRun, folder: str) -> str:
    """Return the address of a run's page, relative to that of the study."""
    name = "bench.svg" if run.kind == "bench" else "report.html"
    return f"{quote(folder)}/{quote(run.id)}/{name}"


def _notes(record: StudyRecord) -> doc.DocumentSection:
    said = [*record.notes, *(f"{row.name}: {row.note}" for row in record.table if row.note)]
    if _has_paper(record) and record.scale == "paper":
        said.append(
            "That a figure of the paper is within the tolerance or the interval does not show that both measure the "
            "same thing."
        )
    said.append(
        "The rows of the table share their test images, so overlapping intervals do not compare two rows: use a paired "
        "comparison (usvit compare)."
    )
    said += [f"Paper: {record.paper.source}, {record.paper.table}."] if record.paper else []
    return doc.DocumentSection("Notes", [doc.Listing(said)], "known", detail=True)


def _repeat(record: StudyRecord) -> doc.DocumentSection:
    engine = [record.engine or "not begun", *([f"{plural(record.cpus, 'thread')} a run"] if record.cpus else [])]
    facts: list[tuple[str, doc.Words]] = [
        ("Commands", ", ".join(sorted({run.kind for run in record.runs}))),
        ("Seeds", _seeds(record)),
        ("Engine", ", ".join(engine)),
        ("usvit", record.usvit_version),
        ("Begun", record.created),
    ]
    blocks: list[doc.Block] = [doc.CodeBlock("Command", record.command), doc.Facts(facts)]
    return doc.DocumentSection("How to repeat it", blocks, "repeat", detail=True)
