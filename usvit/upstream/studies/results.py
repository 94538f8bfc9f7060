"""Read the figures of a study from the results of its finished runs."""

import functools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from usvit.estimate import Estimate
from usvit.files import read_csv
from usvit.models import count, find_model, zoo_counts
from usvit.records import ContaminationRecord, MetricsRecord, WeightsRecord, load_record
from usvit.upstream.records.bench import BenchRecord
from usvit.upstream.records.study import Kind
from usvit.upstream.records.test import TestRecord
from usvit.upstream.records.training import PretrainRecord, TransferEstimate, TransferRecord
from usvit.upstream.studies.kinds import KINDS
from usvit.upstream.studies.metric_names import RECALL, line_of, value_of

_MIB_IN_GB = 2**20 / 1e9


@dataclass(frozen=True)
class _PretrainResult:
    """The result of a pre-training: the weights that it kept, and its evaluations."""

    record: PretrainRecord
    histories: tuple[pd.DataFrame, ...]
    """The content of history.csv of each fold."""


@dataclass(frozen=True)
class RunFigures:
    """What the table shows of a finished run; its whole result would take megabytes for each run of a large study."""

    figures: dict[str, Estimate]
    n_images: int | None = None
    n_groups: int | None = None
    contamination: tuple[ContaminationRecord, ...] = ()
    trained_on: str | None = None
    """What the initial weights of a cross-validation were trained on."""


def number(value: float | None, method: str | None = None) -> Estimate:
    """Return a figure without an interval."""
    return Estimate(value=value, ci95=None, method=method)


def missing(reason: str) -> Estimate:
    """Return a figure that a run does not have."""
    return Estimate(value=None, ci95=None, reason=reason)


def read_result(kind: Kind, folder: Path) -> Any:
    """Read the result of a finished run as its record; that of a pre-training as ``_PretrainResult``."""
    record = load_record(folder / KINDS[kind].result, KINDS[kind].record)
    if isinstance(record, PretrainRecord):
        paths = [folder / f"fold-{one.fold}" / "history.csv" for one in record.kept]
        return _PretrainResult(record, tuple(read_csv(path, text=False) for path in paths))
    return record


def trained_on(weights: WeightsRecord) -> str | None:
    """Return what initial weights were trained on: each training of usvit, the last one first, then the authors' words.

    Of weights that usvit did not train, only their authors' words are known, and no image is on record. None if the
    record of a run names no weights.
    """
    if weights.source is None:
        return None
    if weights.source == "scratch":
        return "nothing (random weights)"
    sources = [one.source for one in weights.lineage or () if one.source is not None]
    said = [f"{one.name} ({one.images:,} images)" for one in sources]
    if not said:
        return f"{weights.pretrained_by or 'not known'}; its images are not on record"
    return "; ".join([*said, *([weights.pretrained_by] if weights.pretrained_by else [])])


def figure_of(kind: Kind, result: Any, name: str) -> Estimate:
    """Return a figure of a result, or the reason why it has none."""
    return _READERS[kind](result, name) or Estimate(
        value=None, ci95=None, reason="the results of this run have no such figure"
    )


def mean_of(figures: list[Estimate]) -> Estimate:
    """Return the figure of a single run as it is, or the mean over runs, which has no interval."""
    if len(figures) == 1:
        return figures[0]
    if missing := next((one for one in figures if one.value is None), None):
        return missing
    values = [one.value for one in figures if one.value is not None]
    return number(sum(values) / len(values), f"mean over {len(values)} runs")


def difference_of(minuend: Estimate, subtrahend: Estimate) -> Estimate:
    """Return the difference of two figures; it has no interval."""
    if minuend.value is None or subtrahend.value is None:
        return minuend if minuend.value is None else subtrahend
    return number(minuend.value - subtrahend.value, "difference of two runs")


def figure_of_network(model: str, settings: Mapping[str, Any], name: str) -> Estimate:
    """Return ``params`` in millions or ``macs`` in billions of a network with a head of 1,000 classes, or its shape.

    Args:
        model: Name of the network.
        settings: ``vit`` and ``image_size`` of the section ``model``, if they are changed.
        name: One of ``metric_names.OF_NETWORK``.
    """
    vit = settings.get("vit", {})
    if name in ("params", "macs"):
        return Estimate(
            ci95=None, value=_counted(model, json.dumps(vit, sort_keys=True), settings.get("image_size"))[name]
        )
    shape = find_model(model, vit).shape
    if shape is None:
        return missing(f"{model} is not a plain ViT")
    return number(float(getattr(shape, name)))


@functools.cache
def _counted(model: str, vit: str, image_size: int | None) -> dict[str, float]:
    if "+" in model:  # networks side by side
        each = [_counted(one, vit, image_size) for one in model.split("+")]
        return {name: sum(one[name] for one in each) for name in each[0]}
    spec = find_model(model, json.loads(vit))
    size = image_size or spec.image_size
    known = zoo_counts(model) if vit == "{}" else {}
    if size in known:
        params, macs = known[size]
    else:
        found = count(spec, size)
        params, macs = found.params, found.macs
    return {"params": params / 1e6, "macs": macs / 1e9}


def _of_metrics(result: MetricsRecord, name: str) -> Estimate | None:
    return value_of(result, name)


def _of_pretrain(result: _PretrainResult, name: str) -> Estimate | None:
    head, _, epoch = name.partition(".")
    values = [getattr(one, head) for one in result.record.kept]
    if epoch:
        values = [_at_epoch(history, head, int(epoch)) for history in result.histories]
        if any(value is None for value in values):
            return missing(f"the run was not evaluated at epoch {epoch}")
    if not values or any(value is None or math.isnan(value) for value in values):
        return missing("the run had no validation images for it")
    return number(sum(values) / len(values))


def _at_epoch(history: pd.DataFrame, name: str, epoch: int) -> float | None:
    """Return the figure of the evaluation nearest to an epoch; None if there is none within half an epoch."""
    away = (history.epoch - epoch).abs()
    return float(history[name].iloc[int(away.argmin())]) if len(history) and away.min() <= 0.5 else None


def _of_transfer(result: TransferRecord, name: str) -> Estimate | None:
    head, _, part = name.partition(".")
    if head in RECALL:
        asked = result.text.recall if result.text else []
        found = next((one.recall for one in asked if (one.query, str(one.k)) == (RECALL[head], part or "1")), None)
        return None if found is None else Estimate(value=found.value, ci95=found.ci95, method=found.method)
    if head in ("miou", "dice", "hd95"):
        measured: Estimate | None = None if result.segment is None else getattr(result.segment.heads[0], head)
        return measured
    wanted = line_of(part)
    lines = [line for line in result.summary if not part or line.name == wanted]
    if not lines:
        return missing(f"the run has no line '{wanted}'")
    if head == "val_accuracy":
        return number(result.chosen.val_accuracy)
    last = lines[-1]
    value: TransferEstimate | None = last.accuracy if head == "accuracy" else getattr(last.intervals, head, None)
    if value is not None:
        return Estimate(value=value.value, ci95=value.ci95, method=value.method)
    plain = getattr(last, head)
    return None if plain is None else number(plain)


def _of_test(result: TestRecord, name: str) -> Estimate | None:
    if name == "disagreement":
        return _disagreement(result)
    value = getattr(result.results[0], "top1" if name == "accuracy" else name, None)
    if value is None or isinstance(value, float):
        return None if value is None else number(value)
    return Estimate(value=value.value, ci95=value.ci95, method=value.method)


def _disagreement(result: TestRecord) -> Estimate:
    if len(result.results) == 1 and (top1 := result.results[0].top1.value) is not None:
        return number(1 - top1)
    if len(result.results) == 2 and len(result.disagreement) == 1:
        return number(result.disagreement[0].share[1][2])
    reason = f"the test has {len(result.results)} results, and a disagreement is of two classifiers"
    return missing(reason)


def _of_bench(result: BenchRecord, name: str) -> Estimate | None:
    rows = [row for row in result.results if row.reported]
    done = [row for row in rows if row.status == "ok"]
    if not done:
        return missing(next((str(row.reason) for row in rows), "it has no measurement"))
    best = max(done, key=lambda row: row.images_per_second or 0.0)
    if name == "images_per_second":
        return number(best.images_per_second)
    return None if best.peak_memory_mib is None else number(best.peak_memory_mib * _MIB_IN_GB)


_READERS: Mapping[Kind, Callable[[Any, str], Estimate | None]] = {
    "cv": _of_metrics,
    "train": _of_metrics,
    "pretrain": _of_pretrain,
    "transfer": _of_transfer,
    "test": _of_test,
    "bench": _of_bench,
}
