"""The study's table as text: for a terminal, for Markdown and for LaTeX."""

import re

from usvit.estimate_text import Style, estimate_text, per_cent
from usvit.markup import latex_text, markdown_text
from usvit.terminal import aligned
from usvit.upstream.records.study import StudyColumn, StudyFigure, StudyRecord, StudyRun, StudyTableRow

MARKS = {True: "yes", False: "no", None: "–"}


def number(value: float | None, percent: bool) -> str:
    """Format ``0.867`` as ``0.867`` or ``86.7``."""
    if value is None:
        return "–"
    return per_cent(value) if percent else f"{value:.3f}" if abs(value) < 10 else f"{value:,.1f}"


def ours(figure: StudyFigure, percent: bool, *, unit: bool = True) -> str:
    """Format a value with its interval: ``86.7 [83.9, 89.2] %``."""
    if figure.value is None:
        return "–"
    text = estimate_text(figure, Style(lambda one: number(one, percent)))
    return f"{text} %" if percent and unit else text


def grid(record: StudyRecord) -> tuple[list[str], list[list[str]]]:
    """Return header and rows: group, name and, for each column, our value, the paper's, the difference, the verdict."""
    grouped = any(row.group for row in record.table)
    counted = any(row.n_images for row in record.table)
    header = [*([""] if grouped else []), "row", *(["images"] if counted else [])]
    for column in record.columns:
        header.append(title(column))
        header += ["paper"] if in_paper(column, record) else []
        header += ["difference", "within"] if is_compared(column, record) else []
    lines = []
    for row in record.table:
        cells = [row.group or ""] if grouped else []
        cells.append(row.name)
        if counted:
            cells.append(str(row.n_images) if row.n_images is not None else str(row.state))
        for column in record.columns:
            figure = row.figures[column.name]
            cells.append(ours(figure, column.percent) if figure.value is not None else _missing(row, figure))
            if in_paper(column, record):
                cells.append(figure.paper.printed if figure.paper else "–")
            if is_compared(column, record):
                cells += [difference(figure, column), MARKS[figure.within]]
        lines.append(cells)
    return header, lines


def title(column: StudyColumn) -> str:
    """Return the title of a column with its tolerance: ``ImageNet-1k val (±0.3)``."""
    if column.tolerance is None:
        return column.title
    return f"{column.title} (±{100 * column.tolerance if column.percent else column.tolerance:g})"


def difference(figure: StudyFigure, column: StudyColumn) -> str:
    """Format the difference from the paper's figure, in points if the column is in per cent: ``-0.3``."""
    if figure.difference is None:
        return "–"
    return f"{100 * figure.difference:+.1f}" if column.percent else f"{figure.difference:+.3g}"


def _missing(row: StudyTableRow, figure: StudyFigure) -> str:
    return "–" if figure.reason or row.state == "finished" else str(row.state)


def in_paper(column: StudyColumn, record: StudyRecord) -> bool:
    """Return whether the paper prints a figure of a column."""
    return any(row.figures[column.name].paper for row in record.table)


def is_compared(column: StudyColumn, record: StudyRecord) -> bool:
    """Return whether any figure of a column is compared with the paper's."""
    return any(row.figures[column.name].difference is not None for row in record.table)


def has_paper(record: StudyRecord) -> bool:
    """Return whether any figure has a counterpart in a paper."""
    return any(figure.paper for line in record.table for figure in line.figures.values())


def seeds(record: StudyRecord) -> str:
    """Return the seeds: ``1 to 100``, or ``0, 1, 7``."""
    given = record.seeds
    if len(given) > 3 and given == list(range(given[0], given[0] + len(given))):
        return f"{given[0]} to {given[-1]}"
    return ", ".join(map(str, given))


def spread_grid(record: StudyRecord) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the spread over seeds: mean, SD, minimum and maximum, and the paper's figure."""
    grouped = any(row.group for row in record.seed_spread)
    paper = has_paper(record)
    header = [*([""] if grouped else []), "row", "figure", "seeds", "mean", "SD", "min", "max"]
    header += ["paper"] if paper else []
    lines = []
    for row, spread in zip(record.table, record.seed_spread, strict=True):
        for column in record.columns:
            values, printed = spread.figures[column.name], row.figures[column.name].paper
            lines.append(
                [
                    *([row.group or ""] if grouped else []),
                    row.name,
                    column.title + (" (%)" if column.percent else ""),
                    str(values.n),
                    *(number(value, column.percent) for value in (values.mean, values.sd, values.min, values.max)),
                    *([printed.printed if printed else "–"] if paper else []),
                ]
            )
    return header, lines


def correlation_grid(record: StudyRecord) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the correlations: the two columns, the pairs, Pearson's r and Spearman's rho."""
    titles = {column.name: column.title for column in record.columns}
    lines = []
    for one in record.correlations:
        values = ("–" if value is None else f"{value:.2f}" for value in (one.pearson, one.spearman))
        lines.append([*(titles[name] for name in one.columns), str(one.n), *values])
    return ["column", "with", "pairs", "Pearson's r", "Spearman's ρ"], lines


def caveats(record: StudyRecord) -> list[str]:
    """Return the caveats of the table, the most serious first."""
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
    if record.paper:
        said.append(f"How the paper measured: {record.paper.protocol}")
    warnings = [figure.warning for line in record.table for figure in line.figures.values()]
    said += [f"Intervals: {warning}." for warning in dict.fromkeys(warnings) if warning]
    return said


def counted(record: StudyRecord) -> str:
    """Count the runs by state: ``4 of 5 runs finished, 1 failed``."""
    states = [run.state for run in record.runs]
    parts = [f"{states.count('finished')} of {len(states)} runs finished"]
    parts += [f"{states.count(state)} {state}" for state in ("failed", "running", "waiting") if state in states]
    return ", ".join(parts)


def failures(record: StudyRecord) -> list[StudyRun]:
    """Return the runs that failed."""
    return [run for run in record.runs if run.state == "failed"]


def notes(record: StudyRecord) -> list[str]:
    """Return the notes of the study and of its rows."""
    return [*record.notes, *(f"{row.name}: {row.note}" for row in record.table if row.note)]


def terminal(record: StudyRecord) -> str:
    """Return the output of the command."""
    parts = [f"{record.title}\n{counted(record)}", aligned(*grid(record))]
    if record.seed_spread:
        parts.append(f"Spread over {len(record.seeds)} seeds\n{aligned(*spread_grid(record))}")
    if record.correlations:
        parts.append(f"Correlations, over rows and seeds\n{aligned(*correlation_grid(record))}")
    if notes := caveats(record):
        parts.append("\n".join(notes))
    if failed := failures(record):
        parts.append("Failed, and tried again by the same command:\n" + "\n".join(_failure(run) for run in failed))
    return "\n\n".join(parts)


def markdown(record: StudyRecord) -> str:
    """Return the content of ``study.md``."""
    parts = [
        f"# {markdown_text(record.title)}",
        markdown_text(counted(record)) + ".",
        _md_table(*grid(record)),
        markdown_text(key(record)),
    ]
    if record.seed_spread:
        parts += [f"## Spread over {len(record.seeds)} seeds", _md_table(*spread_grid(record))]
    if record.correlations:
        parts += ["## Correlations, over rows and seeds", _md_table(*correlation_grid(record))]
    if said := [*caveats(record), *notes(record)]:
        parts += ["## Notes", "\n".join(f"- {markdown_text(line)}" for line in said)]
    if failed := failures(record):
        parts += ["## Failed runs", "\n".join(f"- {markdown_text(_failure(run))}" for run in failed)]
    if record.paper:
        parts.append(f"Paper: {markdown_text(record.paper.source)}, {markdown_text(record.paper.table)}.")
    parts.append("For research use only. Not a medical device.")
    return "\n\n".join(parts) + "\n"


def key(record: StudyRecord) -> str:
    """Explain the columns of the table."""
    said = []
    if {run.kind for run in record.runs} & {"cv", "train"}:
        said.append(
            "Figures of cross-validations are means within the folds, each image predicted by the model that did not "
            "see it, with the 95% interval that takes patients (or clusters of near-duplicates) as the units; figures "
            "without such a mean, such as those of a class other than the positive one, are of all test images pooled."
        )
    if len(record.seeds) > 1:
        said.append(f"The table shows the results of seed {record.seeds[0]}.")
    if has_paper(record):
        said.append(
            "Difference: our figure minus the paper's. Within: the difference is at most the tolerance in the head of "
            "the column or, without one, the paper's figure lies in our interval."
        )
    return " ".join(said)


def latex(record: StudyRecord) -> str:
    """Return the content of ``study.tex``, a table for booktabs."""
    header, lines = grid(record)
    caption = f"{record.title}. {key(record)} {' '.join(caveats(record))}"
    rows = "\n".join(f"    {' & '.join(latex_text(cell) for cell in line)} \\\\" for line in lines)
    return (
        "% Needs \\usepackage{booktabs}. Written by usvit study; do not edit, run it again.\n"
        "\\begin{table}\n"
        "  \\centering\n"
        f"  \\caption{{{latex_text(caption)}}}\n"
        f"  \\label{{tab:{re.sub('[^A-Za-z0-9-]', '-', record.name)}}}\n"
        f"  \\begin{{tabular}}{{{'l' * len(header)}}}\n"
        "    \\toprule\n"
        f"    {' & '.join(latex_text(cell) for cell in header)} \\\\\n"
        "    \\midrule\n"
        f"{rows}\n"
        "    \\bottomrule\n"
        "  \\end{tabular}\n"
        "\\end{table}\n"
    )


def _failure(run: StudyRun) -> str:
    return f"{run.id}: {run.error}"


def _md_table(header: list[str], lines: list[list[str]]) -> str:
    rows = [
        [markdown_text(cell) for cell in header],
        ["---"] * len(header),
        *([markdown_text(cell) for cell in line] for line in lines),
    ]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)
