"""The study's table as text: for a terminal, for Markdown and for LaTeX."""

import re

from usvit.records import CellRecord, StudyFigure, StudyRecord, StudyRun
from usvit.studies.metric_names import title_of

MARKS = {True: "yes", False: "no", None: "–"}
_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "×": r"$\times$",
}


def label_of(line: CellRecord, record: StudyRecord) -> str:
    """Return the name of a line: the model and, if needed, the recipe and variant."""
    table = record.table
    parts = [line.model]
    pairs = {(one.dataset, one.model) for one in table}
    if len(pairs) < len(table):
        parts += [line.recipe, *([line.variant] if line.variant else [])]
    return ", ".join(parts)


def in_percent(name: str, record: StudyRecord) -> bool:
    """Return whether the figure is shown in per cent, as the paper prints it."""
    printed = [line.figures[name].paper for line in record.table]
    return any(paper and paper.printed.endswith("%") for paper in printed)


def number(value: float | None, percent: bool) -> str:
    """Format ``0.867`` as ``0.867`` or ``86.7``."""
    return "–" if value is None else f"{100 * value:.1f}" if percent else f"{value:.3f}"


def ours(figure: StudyFigure, percent: bool, *, unit: bool = True) -> str:
    """Format a value with its interval: ``86.7 [83.9, 89.2] %``."""
    if figure.value is None:
        return "–"
    text = number(figure.value, percent)
    if figure.ci95:
        text += f" [{number(figure.ci95[0], percent)}, {number(figure.ci95[1], percent)}]"
    return f"{text} %" if percent and unit else text


def grid(record: StudyRecord) -> tuple[list[str], list[list[str]]]:
    """Return header and lines: data set, model and, for each figure, our value, the paper's, and if it is within."""
    several = len({line.dataset for line in record.table}) > 1
    paper = has_paper(record)
    header = [*(["data set"] if several else []), "model", *(["in the paper"] if paper else []), "images"]
    for name in record.figures:
        header.append(title_of(name))
        if paper:
            header += ["paper", "within"]
    lines = []
    for line in record.table:
        cells = [line.dataset] if several else []
        cells.append(label_of(line, record))
        if paper:
            cells.append(line.printed_as or "–")
        cells.append(str(line.n_images) if line.n_images is not None else str(line.state))
        for name in record.figures:
            figure = line.figures[name]
            cells.append(ours(figure, in_percent(name, record)))
            if paper:
                cells += [figure.paper.printed if figure.paper else "–", MARKS[figure.within]]
        lines.append(cells)
    return header, lines


def has_paper(record: StudyRecord) -> bool:
    """Return whether any figure has a counterpart in a paper."""
    return any(figure.paper for line in record.table for figure in line.figures.values())


def spread_grid(record: StudyRecord) -> tuple[list[str], list[list[str]]]:
    """Return header and lines of the spread over seeds: mean, SD, minimum and maximum of each figure."""
    several = len({line.dataset for line in record.seed_spread}) > 1
    header = [*(["data set"] if several else []), "model", "figure", "seeds", "mean", "SD", "min", "max"]
    lines = []
    for line in record.seed_spread:
        for name in record.figures:
            spread, percent = line.figures[name], in_percent(name, record)
            lines.append(
                [
                    *([line.dataset] if several else []),
                    label_of(line, record),
                    title_of(name) + (" (%)" if percent else ""),
                    str(spread.n),
                    *(number(value, percent) for value in (spread.mean, spread.sd, spread.min, spread.max)),
                ]
            )
    return header, lines


def caveats(record: StudyRecord) -> list[str]:
    """Return the caveats of the table, the most serious first."""
    said = []
    if record.other_dataset is not None and record.paper:
        said.append(
            f"These runs are on {record.other_dataset}, not on the paper's data: its figures stand beside ours to "
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


def terminal(record: StudyRecord) -> str:
    """Return the output of the command."""
    parts = [f"{record.title}\n{counted(record)}", aligned(*grid(record))]
    if record.seed_spread:
        parts.append(f"Spread over {len(record.seeds)} seeds\n{aligned(*spread_grid(record))}")
    if notes := caveats(record):
        parts.append("\n".join(notes))
    if failed := failures(record):
        parts.append("Failed, and tried again by the same command:\n" + "\n".join(_failure(run) for run in failed))
    return "\n\n".join(parts)


def aligned(header: list[str], lines: list[list[str]]) -> str:
    """Align columns, with two spaces between them."""
    widths = [max(len(cell) for cell in column) for column in zip(header, *lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        for cells in [header, *lines]
    )


def markdown(record: StudyRecord) -> str:
    """Return the content of ``study.md``."""
    parts = [f"# {_md(record.title)}", _md(counted(record)) + ".", _md_table(*grid(record)), _md(key(record))]
    if record.seed_spread:
        parts += [f"## Spread over {len(record.seeds)} seeds", _md_table(*spread_grid(record))]
    if said := [*caveats(record), *record.notes]:
        parts += ["## To be known", "\n".join(f"- {_md(line)}" for line in said)]
    if failed := failures(record):
        parts += ["## Failed runs", "\n".join(f"- {_md(_failure(run))}" for run in failed)]
    if record.paper:
        parts.append(f"Paper: {_md(record.paper.source)}, {_md(record.paper.table)}.")
    parts.append("For research use only. Not a medical device.")
    return "\n\n".join(parts) + "\n"


def key(record: StudyRecord) -> str:
    """Explain the columns of the table."""
    seed = f" Of seed {record.seeds[0]}." if len(record.seeds) > 1 else ""
    within = " Within: whether the paper's figure lies in our interval." if has_paper(record) else ""
    return (
        "Means within the folds, each image predicted by the model that did not see it, with the 95% interval that "
        "takes patients (or clusters of copies) as the units; figures that have no such mean, such as those of a class "
        f"other than the positive one, are of all test images pooled.{seed}{within}"
    )


def latex(record: StudyRecord) -> str:
    """Return the content of ``study.tex``, a table for booktabs."""
    header, lines = grid(record)
    caption = f"{record.title}. {key(record)} {' '.join(caveats(record))}"
    rows = "\n".join(f"    {' & '.join(_tex(cell) for cell in line)} \\\\" for line in lines)
    return (
        "% Needs \\usepackage{booktabs}. Written by usvit study; do not edit, run it again.\n"
        "\\begin{table}\n"
        "  \\centering\n"
        f"  \\caption{{{_tex(caption)}}}\n"
        f"  \\label{{tab:{re.sub('[^A-Za-z0-9-]', '-', record.name)}}}\n"
        f"  \\begin{{tabular}}{{{'l' * len(header)}}}\n"
        "    \\toprule\n"
        f"    {' & '.join(_tex(cell) for cell in header)} \\\\\n"
        "    \\midrule\n"
        f"{rows}\n"
        "    \\bottomrule\n"
        "  \\end{tabular}\n"
        "\\end{table}\n"
    )


def _failure(run: StudyRun) -> str:
    return f"{run.id}: {run.error}"


def _md(text: str) -> str:
    return re.sub(r"([\\`*<>|#]|\](?=\())", r"\\\1", " ".join(text.split()))


def _md_table(header: list[str], lines: list[list[str]]) -> str:
    rows = [[_md(cell) for cell in header], ["---"] * len(header), *([_md(cell) for cell in line] for line in lines)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _tex(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in " ".join(text.split()))
