"""The study's table: figures of each run with their intervals, figures of the paper, and the spread over seeds."""

import statistics
from typing import Any

from usvit.records import MetricsRecord, RunRecord, load_record
from usvit.studies.metric_names import value_of
from usvit.studies.plan import Cell, StudyPlan, matches
from usvit.studies.specification import PrintedRow, fraction
from usvit.studies.state import StudyDir


def fill(study: StudyDir, plan: StudyPlan) -> None:
    """Write ``table`` and ``seed_spread`` into the study's record, from the metrics of its finished runs.

    The lines show the first seed. ``within`` is true if the figure of the paper is inside our 95% interval, and None,
    with a ``within_reason``, if the two cannot be compared.
    """
    metrics = {run.id: _metrics(study, run.id) for run in plan.runs if study.state_of(run.id) == "finished"}
    of = {(run.cell, run.seed): run.id for run in plan.runs}
    study.record["table"] = [_line(study, plan, cell, of[cell, plan.seeds[0]], metrics) for cell in plan.cells]
    several = len(plan.seeds) > 1
    study.record["seed_spread"] = [_spread(plan, cell, of, metrics) for cell in plan.cells] if several else []
    for run in study.record["runs"]:
        if run["id"] in metrics:
            run["seconds"] = load_record(study.run_path(run["id"]) / "run.json", RunRecord).seconds


def _metrics(study: StudyDir, run_id: str) -> MetricsRecord:
    return load_record(study.run_path(run_id) / "metrics.json", MetricsRecord)


def _line(
    study: StudyDir, plan: StudyPlan, cell: Cell, run_id: str, metrics: dict[str, MetricsRecord]
) -> dict[str, Any]:
    own = metrics.get(run_id)
    printed = _printed(plan, cell)
    return {
        **cell._asdict(),
        "printed_as": printed and printed.printed_as,
        "run": run_id,
        "seed": plan.seeds[0],
        "state": study.state_of(run_id),
        "n_images": own and own.n_images,
        "n_groups": own and own.n_groups,
        "figures": {name: _figure(plan, name, own, printed) for name in plan.study.figures},
    }


def _printed(plan: StudyPlan, cell: Cell) -> PrintedRow | None:
    """Return the row of the paper for a line; on other data, the only row with the same model, if there is one."""
    rows = plan.study.paper.rows if plan.study.paper else ()
    elsewhere = plan.dataset is not None
    fitting = [row for row in rows if matches(row, cell, any_dataset=elsewhere)]
    return fitting[0] if len(fitting) == 1 else None


def _figure(plan: StudyPlan, name: str, metrics: MetricsRecord | None, printed: PrintedRow | None) -> dict[str, Any]:
    value = value_of(metrics, name) if metrics else None
    names = ("value", "ci95", "method", "n_groups", "warning", "reason")
    ours = {name: value and getattr(value, name) for name in names}
    if metrics and value is None:
        ours["reason"] = "this run's metrics have no such figure"
    text = printed.figures.get(name) if printed else None
    paper = {"printed": text, "value": fraction(text)} if text is not None else None
    within, reason = None, None
    if paper is None:
        reason = "the paper prints none"
    elif metrics is None:
        reason = "no finished run"
    elif plan.dataset is not None:
        reason = "other data than the paper's"
    elif not ours["ci95"]:
        reason = "no interval"
    else:
        within = bool(ours["ci95"][0] <= paper["value"] <= ours["ci95"][1])
    return {**ours, "paper": paper, "within": within, "within_reason": reason}


def _spread(
    plan: StudyPlan, cell: Cell, of: dict[tuple[Cell, int], str], metrics: dict[str, MetricsRecord]
) -> dict[str, Any]:
    done = [metrics[of[cell, seed]] for seed in plan.seeds if of[cell, seed] in metrics]
    figures: dict[str, Any] = {}
    for name in plan.study.figures:
        values = [value_of(one, name) for one in done]
        known = [value.value for value in values if value and value.value is not None]
        figures[name] = {
            "n": len(known),
            "mean": statistics.fmean(known) if known else None,
            "sd": statistics.stdev(known) if len(known) > 1 else None,
            "min": min(known, default=None),
            "max": max(known, default=None),
        }
    return {**cell._asdict(), "figures": figures}
