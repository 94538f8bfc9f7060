"""The study's table: figures of each row with their intervals, figures of the paper, and the spread over seeds."""

import statistics

import pandas as pd
from scipy.stats import pearsonr, spearmanr

from usvit.data.splits import contamination_warning
from usvit.estimate import Estimate
from usvit.records import MetricsRecord, RunRecord, load_record
from usvit.upstream.records.study import (
    PaperFigure,
    Spread,
    SpreadRow,
    State,
    StudyCorrelation,
    StudyFigure,
    StudyTableRow,
)
from usvit.upstream.studies.estimate import operations
from usvit.upstream.studies.metric_names import OF_LENGTH, OF_NETWORK
from usvit.upstream.studies.plan import PlannedRow, PlannedRun, StudyPlan, steps_of
from usvit.upstream.studies.results import (
    RunFigures,
    difference_of,
    figure_of,
    figure_of_network,
    mean_of,
    missing,
    number,
    read_result,
    trained_on,
)
from usvit.upstream.studies.state import StudyDir

_KEYS = ("value", "ci95", "method", "n_groups", "warning", "reason")
"""Keys of an estimate that the table contains."""


def fill(study: StudyDir, plan: StudyPlan) -> None:
    """Write ``table``, ``seed_spread`` and ``correlations`` into the study's record, from its finished runs.

    The rows show the first seed. A figure of the paper is compared by the tolerance of its column; without one,
    ``within`` is true if it lies inside our 95% interval. It is None, with a ``within_reason``, if the two cannot be
    compared.
    """
    results = study.results
    for run in plan.runs:
        if study.state_of(run.id) == "finished" and run.id not in results:
            results[run.id] = _figures_of(study, plan, run)
    record = study.record
    record.table = [_row(study, plan, row, results) for row in plan.rows]
    record.seed_spread = [_spread(plan, row, results) for row in plan.rows] if len(plan.seeds) > 1 else []
    record.correlations = [_correlation(plan, *pair, results) for pair in plan.study.correlations]
    warnings = {run: contamination_warning(result.contamination) for run, result in sorted(results.items())}
    study.record = record.model_copy(
        update={"contamination": {run: warning for run, warning in warnings.items() if warning} or None}
    )
    for entry in record.runs:
        path = study.run_path(entry.id) / "run.json"
        if entry.id in results and entry.seconds is None and path.is_file():
            entry.seconds = load_record(path, RunRecord).seconds


def long_table(study: StudyDir, plan: StudyPlan) -> pd.DataFrame:
    """Return a line for each row and seed: group, row, model, seed, state, and the value of each column.

    A value is missing if its run is not finished or has no such figure.
    """
    lines: list[dict[str, str | float | None]] = []
    for row in plan.rows:
        for seed in plan.seeds:
            found = {name: _ours(plan, row, name, seed, study.results) for name in plan.study.columns}
            lines.append(
                {
                    "group": row.group,
                    "row": row.name,
                    "model": row.model,
                    "seed": seed,
                    "state": _state([study.state_of(run) for run in row.runs[seed].values()]),
                    **{name: None if one is None else one.value for name, one in found.items()},
                }
            )
    return pd.DataFrame(lines)


def _figures_of(study: StudyDir, plan: StudyPlan, run: PlannedRun) -> RunFigures:
    result = read_result(run.kind, study.run_path(run.id))
    figures = {
        name: number(operations(run, plan) / 1e9) if name in OF_LENGTH else figure_of(run.kind, result, name)
        for name in plan.figures_of[run.id]
    }
    contamination = tuple(getattr(result, "contamination", None) or ())
    if isinstance(result, MetricsRecord):
        path = study.run_path(run.id) / "run.json"
        weights = trained_on(load_record(path, RunRecord).model.weights) if path.is_file() else None
        return RunFigures(figures, result.n_images, result.n_groups, contamination, weights)
    return RunFigures(figures, contamination=contamination)


def _row(study: StudyDir, plan: StudyPlan, row: PlannedRow, results: dict[str, RunFigures]) -> StudyTableRow:
    seed = plan.seeds[0]
    runs = row.runs[seed]
    seen = [text for run in runs.values() if run in results and (text := results[run].trained_on)]
    only = results.get(next(iter(runs.values()))) if len(runs) == 1 else None
    return StudyTableRow(
        name=row.name,
        group=row.group,
        model=row.model,
        note=row.note,
        runs=dict(runs),
        seed=seed,
        state=_state([study.state_of(run) for run in runs.values()]),
        n_images=None if only is None else only.n_images,
        n_groups=None if only is None else only.n_groups,
        figures={name: _figure(plan, row, name, results) for name in plan.study.columns},
        trained_on=" / ".join(dict.fromkeys(seen)) or None,
    )


def _state(states: list[State]) -> State:
    each: tuple[State, ...] = ("failed", "running", "waiting")
    return next((one for one in each if one in states), "finished")


def _figure(plan: StudyPlan, row: PlannedRow, name: str, results: dict[str, RunFigures]) -> StudyFigure:
    ours = _ours(plan, row, name, plan.seeds[0], results)
    printed = row.printed.get(name)
    tolerance = plan.study.columns[name].tolerance
    difference, within, reason = None, None, None
    if printed is None:
        reason = "the paper prints none"
    elif plan.scale != "paper" and plan.study.columns[name].figure not in OF_NETWORK:
        reason = "tiny networks on generated images"
    elif plan.dataset is not None:
        reason = "other data than the paper's"
    elif ours is None:
        reason = "no finished run"
    elif ours.value is None:
        reason = "no value"
    else:
        difference = printed.difference(ours.value)
        if tolerance is not None:
            within = abs(difference) <= tolerance.value
        elif ours.ci95 is not None:
            within = ours.ci95[0] <= printed.high and printed.low <= ours.ci95[1]
        else:
            reason = "no interval"
    return StudyFigure(
        **{key: None if ours is None else getattr(ours, key) for key in _KEYS},
        paper=printed and PaperFigure(printed=printed.text, value=printed.value, sd=printed.sd),
        difference=difference,
        within=within,
        within_reason=reason,
    )


def _ours(plan: StudyPlan, row: PlannedRow, name: str, seed: int, results: dict[str, RunFigures]) -> Estimate | None:
    """Return our figure; None if a run of it is not finished."""
    column = plan.study.columns[name]
    if column.figure in OF_NETWORK:
        if row.model is None:
            return missing("the row names no model")
        return figure_of_network(row.model, row.network, column.figure)
    steps = steps_of(plan.study, name, row.runs[seed])
    if not steps:
        return missing("the row has no run for it")
    runs = [row.runs[seed][step] for step in steps]
    if any(run not in results for run in runs):
        return None
    figures = [results[run].figures[column.figure] for run in runs]
    if column.minus is not None:
        return difference_of(mean_of(figures[:-1]), figures[-1])
    return mean_of(figures)


def _spread(plan: StudyPlan, row: PlannedRow, results: dict[str, RunFigures]) -> SpreadRow:
    figures = {}
    for name in plan.study.columns:
        found = [_ours(plan, row, name, seed, results) for seed in plan.seeds]
        known = [one.value for one in found if one is not None and one.value is not None]
        figures[name] = Spread(
            n=len(known),
            mean=statistics.fmean(known) if known else None,
            sd=statistics.stdev(known) if len(known) > 1 else None,
            min=min(known, default=None),
            max=max(known, default=None),
        )
    return SpreadRow(name=row.name, group=row.group, figures=figures)


def _correlation(plan: StudyPlan, one: str, other: str, results: dict[str, RunFigures]) -> StudyCorrelation:
    """Correlate two columns over all rows and seeds that have both figures."""
    pairs = []
    for row in plan.rows:
        for seed in plan.seeds:
            x, y = (_ours(plan, row, name, seed, results) for name in (one, other))
            if x is not None and y is not None and x.value is not None and y.value is not None:
                pairs.append((x.value, y.value))
    xs, ys = [x for x, _ in pairs], [y for _, y in pairs]
    known = len(set(xs)) > 1 and len(set(ys)) > 1 and len(pairs) > 2
    return StudyCorrelation(
        columns=[one, other],
        n=len(pairs),
        pearson=float(pearsonr(xs, ys).statistic) if known else None,
        spearman=float(spearmanr(xs, ys).statistic) if known else None,
    )
