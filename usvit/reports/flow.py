"""The flow of images into the test of a run, of a table or of scored files: steps, and how the test ended."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from usvit.data.splits import EXCLUSION_KINDS, OTHER_EXCLUSION, kind_of_exclusion
from usvit.evaluation import first_repeat, flow_steps, read_predictions
from usvit.records import FlowRecord, FlowStep, MetricsRecord, RunRecord, SummaryRecord, load_record
from usvit.records.run import Data
from usvit.reports.formatting import rule_words
from usvit.reports.run_files import Run, read_folds, read_manifest
from usvit.wording import listed, plural

UNREADABLE = "files that could not be read"
_PARTS, _UNTESTED = {"train": "used for training", "val": "used for inner validation"}, "in no test split"
_MOST_CLASSES = 4
"""More classes are shown as the positive one and all others."""


@dataclass(frozen=True)
class FlowEnd:
    """The tested images of one class, or all scored images, and what the model said of them."""

    name: str
    n: int
    results: tuple[tuple[str, int], ...]
    """(decision, number of images); they add up to ``n``."""


@dataclass(frozen=True)
class Flow:
    """A flow diagram."""

    steps: tuple[FlowStep, ...]
    ends: tuple[FlowEnd, ...]
    positive: str
    decided_by: str
    """The rule of the decisions."""
    labels: tuple[FlowStep, ...] = ()
    """Flow of the labels of an external test; empty for others."""
    remark: str = ""
    unit: str = "image"
    """What the ends count: an image, file, study or patient."""


def flow_of_run(run: Run) -> Flow:
    """Return the flow of a run, or of an evaluation."""
    if run.evaluated is not None:
        return flow_of_metrics(run.metrics)
    return _trained(run.record, run.metrics, run.manifest, run.folds, run.test)


def flow_of_folder(run_dir: Path, metrics: MetricsRecord) -> Flow:
    """Return the flow of a finished run of cv, train or ensemble from its files; of others, that of ``metrics``."""
    if not (run_dir / "run.json").is_file() or not (run_dir / "predictions.csv").is_file():
        return flow_of_metrics(metrics)
    record = load_record(run_dir / "run.json", RunRecord)
    if record.kind not in ("cv", "train", "ensemble"):
        return flow_of_metrics(metrics)
    table = read_predictions(run_dir / "predictions.csv")
    test = first_repeat(table[table["part"] == "test"])
    manifest, folds = read_manifest(run_dir / "manifest.parquet"), read_folds(run_dir / "folds.csv")
    return _trained(record, metrics, manifest, folds, test)


def flow_of_metrics(metrics: MetricsRecord) -> Flow:
    """Return the flow as far as metrics.json tells it: all of an external test, and the end of others."""
    if metrics.external is not None and metrics.external.flow:
        by = {one.of: tuple(one.steps) for one in metrics.external.flow}
        return _flow(by["images"], metrics, labels=by.get("labels", ()))
    return _flow((FlowStep(what="Tested", left_out=False, n=metrics.n_images),), metrics)


def flow_of_scores(summary: SummaryRecord) -> Flow:
    """Return the flow of scored files, whose classes are not known."""
    counts, positive = summary.counts, summary.positive_class
    failed = [
        FlowStep(what=f"not scored: {one.reason}", left_out=True, n=one.rows)
        for _, one in sorted((summary.failures or {}).items(), key=lambda each: each[1].rows, reverse=True)
    ]
    n = counts.frames_scored
    steps = (
        FlowStep(what="Found", left_out=False, n=n + sum(one.n for one in failed)),
        *failed,
        FlowStep(what="Scored", left_out=False, n=n),
    )
    results = (
        ("called positive", counts.frames_positive),
        ("called negative", counts.frames_negative),
        ("without a decision", counts.frames_undecided),
    )
    remark = "Images are frames; a file of which nothing could be read counts as one."
    FlowRecord(of="images", steps=list(steps))  # it adds up
    return Flow(steps, (FlowEnd("scored images", n, results),), positive, "the threshold for single images", (), remark)


def _trained(
    record: RunRecord,
    metrics: MetricsRecord,
    manifest: pd.DataFrame | None,
    folds: pd.DataFrame | None,
    test: pd.DataFrame,
) -> Flow:
    data, skipped = record.data, len(record.data.skipped or [])
    if manifest is not None and "exclude_reason" in manifest:
        table, why = manifest, np.array([kind_of_exclusion(one) for one in manifest["exclude_reason"]], dtype=object)
    else:  # of those left out, only the reasons are known
        used = pd.DataFrame(index=range(data.n_images or metrics.n_images)) if manifest is None else manifest
        kinds = [kind_of_exclusion(one.reason) for one in data.excluded or []]
        table = pd.concat([used, pd.DataFrame(index=range(len(kinds)))], ignore_index=True)
        why = np.array([""] * len(used) + kinds, dtype=object)
    first, *others = flow_steps(
        table, why, found="Found", kept="Included", order=[*EXCLUSION_KINDS.values(), OTHER_EXCLUSION]
    )
    unread = [FlowStep(what=UNREADABLE, left_out=True, n=skipped)] if skipped else []
    steps = [first.model_copy(update={"n": first.n + skipped}), *unread, *others]
    if others[-1].n > metrics.n_images and "image_id" in table:
        used = table[why == ""]
        steps += flow_steps(used, _not_tested(used, folds, test, metrics), found="", kept="Tested", order=[])
    elif others[-1].n > metrics.n_images:
        steps.append(FlowStep(what=_UNTESTED, left_out=True, n=others[-1].n - metrics.n_images))
        steps.append(FlowStep(what="Tested", left_out=False, n=metrics.n_images))
    return _flow(tuple(steps), metrics, remark=_grouped(data))


def _not_tested(
    used: pd.DataFrame, folds: pd.DataFrame | None, test: pd.DataFrame, metrics: MetricsRecord
) -> np.ndarray:
    """Return for what each image was used instead of the test; "" if it was tested."""
    tested = set(zip(test["dataset"], test["image_id"], strict=True))
    part: dict[tuple[str, str], str] = {}
    if folds is not None and "image_id" in folds and len(metrics.folds) == 1:
        part = dict(zip(zip(folds["dataset"], folds["image_id"], strict=True), folds["part"], strict=True))
    keys = zip(used["dataset"], used["image_id"], strict=True)
    why = ["" if one in tested else _PARTS.get(part.get(one, ""), _UNTESTED) for one in keys]
    return np.array(why, dtype=object)


def _grouped(data: Data) -> str:
    copies = (data.grouping or {}).get("copies", 0)
    return f"{plural(copies, 'image')} stay together with near-duplicates; they are not left out." if copies else ""


def _flow(
    steps: tuple[FlowStep, ...], metrics: MetricsRecord, labels: tuple[FlowStep, ...] = (), remark: str = ""
) -> Flow:
    FlowRecord(of="images", steps=list(steps))  # it adds up
    ends, rule = _ends(metrics)
    return Flow(steps, ends, metrics.positive_class, rule, labels, remark, metrics.row)


def _ends(metrics: MetricsRecord) -> tuple[tuple[FlowEnd, ...], str]:
    """Return the decisions by class: of the frozen threshold of an external test, else of the most probable class."""
    positive = metrics.positive_class
    others = [name for name in metrics.classes if name != positive]
    rest = others[0] if len(others) == 1 else f"not {positive}"
    frozen = next((one for one in metrics.operating_points if one.rule.startswith("frozen") and one.pooled), None)
    if frozen is not None and frozen.pooled is not None:
        found = frozen.pooled
        of_positive = _end(positive, found.true_positive, found.false_negative)
        return (of_positive, _end(rest, found.false_positive, found.true_negative)), rule_words(frozen.rule)
    names, counts = metrics.confusion.labels, np.array(metrics.confusion.counts)
    k = names.index(positive)
    called = {name: (int(row[k]), int(row.sum() - row[k])) for name, row in zip(names, counts, strict=True)}
    if len(names) > _MOST_CLASSES:
        both = np.array([called[name] for name in others]).sum(axis=0)
        called = {positive: called[positive], rest: (int(both[0]), int(both[1]))}
    order = [positive, *(name for name in called if name != positive)]
    return tuple(_end(name, *called[name]) for name in order), "the most probable class"


def _end(name: str, positive: int, negative: int) -> FlowEnd:
    return FlowEnd(name, positive + negative, (("called positive", positive), ("called negative", negative)))


def prevalence_sentence(metrics: MetricsRecord) -> str | None:
    """Return the prevalence per unit as a sentence for the checklists; None if it is not recorded."""
    words = [
        f"{one.share.value:.1%} per {one.unit} ({one.n_positive:,} of {plural(one.n, one.unit)})"
        for one in metrics.prevalence or []
        if one.share.value is not None
    ]
    return f"Prevalence of {metrics.positive_class} in the test: {listed(words)}." if words else None
