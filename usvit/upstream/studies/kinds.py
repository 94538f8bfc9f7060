"""The table of the kinds of runs that a study can have: their configuration, result, figures and entries."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from usvit.config import RunConfig
from usvit.errors import UsvitError, unknown
from usvit.records import FileRecord, MetricsRecord
from usvit.upstream.config.bench import BenchConfig
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.test import TestConfig
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.records.bench import BenchRecord
from usvit.upstream.records.study import Kind
from usvit.upstream.records.test import TestRecord
from usvit.upstream.records.training import PretrainRecord, TransferRecord
from usvit.upstream.studies import metric_names as names


@dataclass(frozen=True)
class _StepKind:
    """One kind of run, named after its command."""

    config: type[BaseModel]
    record: type[FileRecord]
    """Model of its result."""
    figures: Mapping[str, str]
    """Name of a figure in its result -> title."""
    entries: tuple[str, ...]
    """Entries of a step, beside those that all steps have."""
    trains: bool = False
    """Whether it trains a named network, and so takes the settings of the row."""

    @property
    def result(self) -> str:
        """Name of the file of its result."""
        return f"{self.record.KIND}.json"


_FINE_TUNING = _StepKind(
    RunConfig,
    MetricsRecord,
    names.OVERALL | names.OF_CLASS,
    ("recipe", "weights", "dataset", "variant"),
    trains=True,
)
KINDS: Mapping[Kind, _StepKind] = {
    "cv": _FINE_TUNING,
    "train": _FINE_TUNING,
    "pretrain": _StepKind(
        PretrainConfig,
        PretrainRecord,
        names.OF_PRETRAIN,
        ("recipe", "cell", "weights", "dataset", "source"),
        trains=True,
    ),
    "transfer": _StepKind(
        TransferConfig,
        TransferRecord,
        names.OF_TRANSFER,
        ("recipe", "cell", "weights", "upstream", "dataset", "source", "how"),
    ),
    "test": _StepKind(
        TestConfig,
        TestRecord,
        names.OF_TEST,
        ("weights", "upstream", "dataset", "source"),
    ),
    "bench": _StepKind(BenchConfig, BenchRecord, names.OF_BENCH, ("protocol",)),
}
"""Kind of a run -> what it is."""


def check_figure(name: str, kind: str | None = None) -> str:
    """Return a figure's name as it is.

    Args:
        name: Name of a figure. ``sensitivity.positive`` is that of a class, ``accuracy.10`` of ``transfer`` that of
            the line of the few-shot table with 10 images of each class, ``accuracy.best_of_10`` that of the best of 10
            random cells (``trials``), ``accuracy.halves`` that of a line of ``metric_names.LINES``, and
            ``val_accuracy.150`` of ``pretrain`` that of the evaluation at epoch 150.
        kind: Kind of the run that has the figure; None to accept the figures of all kinds.

    Raises:
        UsvitError: The name is unknown (the error names the nearest), or the class of a figure is missing.
    """
    head, _, part = name.partition(".")
    kinds = {name: known.figures for name, known in KINDS.items() if kind in (None, name)}
    for of_kind, figures in kinds.items():
        if head in figures and _fits(of_kind, head, part):
            return name
    if kind is None and name in names.OF_NETWORK:
        return name
    if head in names.OF_CLASS and not part:
        raise UsvitError(f"The figure '{name}' is of one class: write {head}.positive, or {head}.<class>.")
    if head in names.OVERALL and kind in (None, "cv", "train"):
        raise UsvitError(f"The figure '{name}' is over all classes: write {head}.")
    written = dict.fromkeys(
        f"{one}.positive" if one in names.OF_CLASS else one for known in kinds.values() for one in known
    )
    of = f"figure of 'usvit {kind}'" if kind else "figure"
    raise unknown(of, name, [*written, *(names.OF_NETWORK if kind is None else ())], "See 'usvit docs study'.")


def _fits(kind: str, head: str, part: str) -> bool:
    """Return whether a figure of this kind of run may have this part in its name, or none."""
    if kind in ("cv", "train"):
        return (head in names.OF_CLASS) == bool(part)
    if kind == "pretrain":
        return not part or (head not in names.OF_LENGTH and names.EPOCH.fullmatch(part) is not None)
    return not part or (kind == "transfer" and head != "val_accuracy")
